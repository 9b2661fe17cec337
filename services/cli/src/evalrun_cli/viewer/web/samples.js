// The table of all samples of a run: only the rows in view are elements, however many there are.

import { fill, h, number, percent, pill } from "./dom.js";
import { chooseRows, parseQuery, sortRows } from "./query.js";
import { openRun } from "./store.js";

const ROW = 30; // pixels, as in style.css
const MAX_HEIGHT = 8_000_000; // pixels: browsers draw nothing beyond some 16 million
const TYPING_MILLISECONDS = 120;
const SHOWN = ["dataset", "problem", "sample", "turn", "repeat", "status", "pass_ratio", "tokens", "gen_time", "judge_time",
  "score", "difficulty", "tag", "language", "source", "finish"];

/** Return the address of one sample's page. */
export function sampleAddress(run, row, query = "") {
  const parts = ["dataset", "problem", "sample", "repeat", "turn"].map((name) => encodeURIComponent(run.column(name).at(row)));
  return `#/run/${encodeURIComponent(run.id)}/sample/${parts.join("/")}${query}`;
}

export async function showSamples(id, context) {
  const view = new SamplesView(openRun(id), context);
  await view.start();
  return view;
}

class SamplesView {
  constructor(run, { page, parameters, tell, isCurrent }) {
    Object.assign(this, { run, page, tell, isCurrent });
    this.query = parameters.get("q") ?? "";
    this.sort = parameters.get("sort") ?? "";
    this.rows = new Uint32Array(0);
    this.chosen = 0; // place in rows
    this.columns = [];
    this.asked = 0;
  }

  async start() {
    let isDrawn = false;
    const changed = () => {
      if (!this.isCurrent()) return;
      if (!isDrawn) {
        this.draw();
        isDrawn = true;
      }
      this.choose();
    };
    if (this.run.rows) changed();
    await this.run.refresh(changed);
    if (!isDrawn) changed();
  }

  async refresh() {
    const { about } = this.run;
    if (about.live || !about.complete) await this.run.refresh(() => this.choose());
    if (this.isCurrent()) this.count();
  }

  leave() {
    clearTimeout(this.timer);
    removeEventListener("resize", this.onResize);
  }

  draw() {
    this.box = h("input", {
      type: "search", value: this.query, placeholder: "words, status=timeout, tokens>=2000 …", "aria-label": "Filter and search",
      spellcheck: "false", autocomplete: "off", oninput: () => this.typed(), onkeydown: (event) => this.boxKey(event),
    });
    this.counter = h("p", { class: "quiet", role: "status" });
    this.problem = h("p", { class: "problem", role: "alert" });
    this.head = h("div", { class: "row head", role: "row", "aria-rowindex": 1 });
    this.body = h("div", { class: "rows", role: "rowgroup" });
    this.spacer = h("div", { class: "spacer", role: "presentation" }, this.body);
    this.scroller = h("div", {
      class: "scroller", tabindex: 0, role: "grid", "aria-label": "Samples", "aria-readonly": "true",
      onscroll: () => this.drawRows(), onkeydown: (event) => this.key(event),
    }, h("div", { role: "rowgroup", class: "sticky" }, this.head), this.spacer);
    fill(this.page, h("h1", null, `Samples of ${this.run.id}`),
      h("div", { class: "tools" }, this.box, this.counter), this.problem, this.scroller,
      h("p", { class: "quiet hint" }, "/ search · ↑ ↓ or j k move · Enter opens · click a heading to sort"));
    this.onResize = () => this.drawRows();
    addEventListener("resize", this.onResize);
  }

  /** Choose the columns again if the number of rows has changed. */
  updateColumns() {
    if (this.columns.length && this.columnsOf === this.run.rows) return;
    this.columnsOf = this.run.rows;
    const columns = this.shownColumns();
    if (columns.join() === this.columns.join()) return;
    this.columns = columns;
    this.drawHead();
  }

  /** Return the columns worth showing. Columns such as dataset, turn or language are left out if they have one value. */
  shownColumns() {
    return SHOWN.filter((name) => {
      if (["problem", "status", "pass_ratio", "tokens", "sample"].includes(name)) return true;
      const { values, field, texts } = this.run.column(name);
      if (field.kind === "text" || field.kind === "tags") return texts.length > 1;
      const first = values[0];
      for (let row = 1; row < this.run.rows; row += 1) {
        if (values[row] !== first && !(Number.isNaN(values[row]) && Number.isNaN(first))) return true;
      }
      return false;
    });
  }

  drawHead() {
    const [name, isDown] = this.sortOrder();
    this.scroller.style.setProperty("--columns", this.columns.map((each) => WIDTHS[each] ?? "6.5rem").join(" "));
    this.scroller.setAttribute("aria-colcount", this.columns.length);
    fill(this.head, this.columns.map((each) => {
      const { field } = this.run.column(each);
      return h("div", {
        role: "columnheader", class: field.kind === "number" ? "right" : null,
        "aria-sort": each === name ? (isDown ? "descending" : "ascending") : "none",
      }, h("button", { type: "button", title: `sort by ${field.says}`, onclick: () => this.sortBy(each) },
        each.replace("_", " "), each === name ? (isDown ? " ↓" : " ↑") : ""));
    }));
  }

  sortOrder() {
    const isDown = this.sort.startsWith("-");
    const name = isDown ? this.sort.slice(1) : this.sort;
    return this.columns.includes(name) ? [name, isDown] : ["", false];
  }

  sortBy(name) {
    const [current, isDown] = this.sortOrder();
    this.sort = current !== name ? name : isDown ? "" : `-${name}`;
    this.drawHead();
    this.choose();
    this.remember();
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.query = this.box.value;
      this.chosen = 0;
      this.scroller.scrollTop = 0;
      this.choose();
      this.remember();
    }, TYPING_MILLISECONDS);
  }

  /** Put the view into the address, without a new entry in the history. An address that leads elsewhere stays. */
  remember() {
    const own = `#/run/${encodeURIComponent(this.run.id)}/samples`;
    if (location.hash.split("?")[0] === own) history.replaceState(null, "", own + this.parameters());
  }

  parameters() {
    const parameters = new URLSearchParams();
    if (this.query) parameters.set("q", this.query);
    if (this.sort) parameters.set("sort", this.sort);
    return parameters.size ? `?${parameters}` : "";
  }

  async choose() {
    this.asked += 1;
    const mine = this.asked;
    const begun = performance.now();
    const { conditions, words, problems } = parseQuery(this.query, this.run.about.fields);
    fill(this.problem, problems.join("; "));
    try {
      const marks = await Promise.all(words.map((word) => this.run.search(word)));
      if (mine !== this.asked || !this.isCurrent()) return;
      this.updateColumns();
      let rows = chooseRows(this.run, conditions, marks);
      const [name, isDown] = this.sortOrder();
      if (name) rows = sortRows(this.run, rows, name, isDown);
      this.rows = rows;
    } catch (error) {
      if (mine === this.asked) fill(this.problem, `the search failed: ${error.message}`);
      return;
    }
    this.chosen = Math.min(this.chosen, Math.max(0, this.rows.length - 1));
    this.count();
    this.drawRows();
    performance.measure("choose", { start: begun });
  }

  count() {
    const { about, rows } = this.run;
    const all = rows - this.run.hidden.size;
    const total = about.segments.reduce((sum, each) => sum + each.rows, 0);
    const still = about.live ? ", running" : about.complete && rows === total ? "" : ", loading…";
    fill(this.counter, `${this.rows.length.toLocaleString("en")} of ${all.toLocaleString("en")} samples${still}`);
  }

  get height() {
    return Math.min(this.rows.length * ROW, MAX_HEIGHT);
  }

  /** Draw the rows in view. Beyond MAX_HEIGHT a pixel of the scroll bar stands for more than a pixel of rows. */
  drawRows() {
    const view = this.scroller.clientHeight;
    this.spacer.style.height = `${this.height}px`;
    const top = this.scroller.scrollTop;
    const visible = Math.ceil(view / ROW) + 1;
    const room = this.height - view + ROW;
    const isScaled = this.rows.length * ROW > MAX_HEIGHT;
    const last = Math.max(0, this.rows.length - visible + 2);
    const first = isScaled ? Math.min(last, Math.floor((top / room) * last)) : Math.floor(top / ROW);
    this.first = first;
    this.body.style.transform = `translateY(${isScaled ? top : first * ROW}px)`;
    const end = Math.min(this.rows.length, first + visible);
    const drawn = [];
    for (let place = first; place < end; place += 1) drawn.push(this.drawRow(place));
    this.body.replaceChildren(...drawn);
    this.scroller.setAttribute("aria-rowcount", this.rows.length + 1);
    const chosen = this.body.querySelector("[aria-selected=true]");
    if (chosen) this.scroller.setAttribute("aria-activedescendant", chosen.id);
    else this.scroller.removeAttribute("aria-activedescendant");
  }

  drawRow(place) {
    const row = this.rows[place];
    const isChosen = place === this.chosen;
    return h("div", {
      class: "row", role: "row", id: `row-${place}`, "aria-rowindex": place + 2, "aria-selected": isChosen ? "true" : "false",
      onclick: (event) => {
        this.chosen = place;
        if (!event.target.closest("a")) this.open();
      },
    }, this.columns.map((name) => h("div", { role: "gridcell", class: this.run.column(name).field.kind === "number" ? "right" : null },
      this.cell(name, row))));
  }

  cell(name, row) {
    const value = this.run.column(name).at(row);
    if (name === "status") return pill(value);
    if (name === "problem") return h("a", { href: this.address(row), tabindex: -1 }, value);
    if (name === "pass_ratio") return percent(Number.isNaN(value) ? null : value);
    if (name === "tag") return value.replaceAll("\n", ", ");
    return typeof value === "number" ? number(value) : value ?? "";
  }

  address(row) {
    return sampleAddress(this.run, row, this.parameters());
  }

  open() {
    if (this.rows.length) location.hash = this.address(this.rows[this.chosen]);
  }

  boxKey(event) {
    if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      this.scroller.focus();
    }
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW) - 2);
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "/") this.box.focus();
    else if (event.key === "Enter") this.open();
    else if (event.key in steps) this.move(steps[event.key]);
    else return;
    event.preventDefault();
  }

  move(step) {
    this.chosen = Math.max(0, Math.min(this.rows.length - 1, this.chosen + step));
    const visible = Math.floor(this.scroller.clientHeight / ROW) - 1;
    if (this.chosen < this.first || this.chosen >= this.first + visible) {
      const first = Math.max(0, step > 0 ? this.chosen - visible + 1 : this.chosen);
      const last = Math.max(1, this.rows.length - visible);
      this.scroller.scrollTop = this.rows.length * ROW > MAX_HEIGHT
        ? (first / last) * (this.height - this.scroller.clientHeight + ROW) : first * ROW;
    }
    this.drawRows();
  }
}

const WIDTHS = {
  dataset: "10rem", problem: "minmax(14rem, 1fr)", status: "9rem", sample: "5rem", turn: "4rem", repeat: "5rem",
  difficulty: "7rem", tag: "12rem", language: "6.5rem", source: "8rem",
};
