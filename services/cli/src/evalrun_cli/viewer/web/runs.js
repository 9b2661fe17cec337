// The pages of all runs, and of one run.

import { STATUSES, fill, h, number, percent, pill, table } from "./dom.js";
import { openRun, readJson } from "./store.js";

const runAddress = (id) => `#/run/${encodeURIComponent(id)}`;

/** All runs: one row per run and dataset. */
export async function showRuns({ page, isCurrent }) {
  let before = "";
  const chosen = new Set();
  const refresh = async () => {
    const { runs } = await readJson("runs.json");
    const now = JSON.stringify(runs);
    if (now === before || !isCurrent()) return;
    before = now;
    fill(page, h("h1", null, "Runs"), table("Runs", ["run", "state", "dataset", "accepted@1", "95 % interval", "coverage", "samples", "model"],
      runs.flatMap((run) => rowsOf(run, chosen)), [3, 4, 5, 6]),
    h("p", null, h("button", { type: "button", onclick: () => compare(chosen) }, "Compare the chosen runs")));
  };
  await refresh();
  return { refresh };
}

function compare(chosen) {
  if (chosen.size >= 2) location.hash = `#/compare?${[...chosen].map((id) => `run=${encodeURIComponent(id)}`).join("&")}`;
}

function rowsOf(run, chosen) {
  const box = h("input", {
    type: "checkbox", "aria-label": `choose ${run.id}`, checked: chosen.has(run.id),
    onchange: (event) => (event.target.checked ? chosen.add(run.id) : chosen.delete(run.id)),
  });
  const name = h("span", null, box, " ", h("a", { href: runAddress(run.id) }, run.id));
  if (run.error) return [[name, "cannot be read", run.error, "", "", "", "", ""]];
  const entries = Object.entries(run.datasets ?? {});
  if (!entries.length) return [[name, state(run), "", "", "", "", "", run.model ?? ""]];
  return entries.map(([dataset, entry], index) => {
    const figure = entry.metrics?.accepted_at_1;
    return [index ? "" : name, index ? "" : state(run), dataset, percent(figure?.value), interval(figure),
      percent(entry.coverage), number(entry.counts?.samples ?? entry.counts?.answers), index ? "" : run.model];
  });
}

const state = (run) => h("span", { class: run.live ? "pill live" : "pill state" }, run.live ? "running" : run.state);
const interval = (figure) => (figure && figure.low !== null && figure.low !== undefined
  ? `${percent(figure.low)} to ${percent(figure.high)}` : "");

/** One run: how its samples ended, its figures, its warnings. */
export async function showRun(id, { page, tell, isCurrent }) {
  const run = openRun(id);
  const draw = () => isCurrent() && drawRun(run, page);
  const refresh = async () => {
    if (await run.refresh(draw)) draw();
    if (run.about.live && isCurrent()) tell(`running: ${run.rows.toLocaleString("en")} samples judged`);
  };
  await refresh();
  draw();
  return { refresh };
}

function drawRun(run, page) {
  const { about } = run;
  const datasets = Object.entries(about.summary?.datasets ?? {});
  fill(page, h("h1", null, about.info?.run ?? about.id), h("p", { class: "quiet" }, about.place),
    h("p", null, h("a", { class: "button", href: `${runAddress(run.id)}/samples` }, `All ${run.rows.toLocaleString("en")} samples`)),
    (about.summary?.warnings ?? []).map((each) => h("p", { class: "notice" }, typeof each === "string" ? each : JSON.stringify(each))),
    h("h2", null, "How the samples ended"), endings(run),
    datasets.map(([name, entry]) => [h("h2", null, name), figures(entry)]),
    facts(about));
}

function endings(run) {
  const counts = new Map();
  const [dataset, status] = [run.column("dataset"), run.column("status")];
  for (let row = 0; row < run.rows; row += 1) {
    if (run.hidden.has(row)) continue;
    const of = counts.get(dataset.values[row]) ?? new Map();
    of.set(status.values[row], (of.get(status.values[row]) ?? 0) + 1);
    counts.set(dataset.values[row], of);
  }
  const link = (name, each, count) => h("a", {
    href: `${runAddress(run.id)}/samples?q=${encodeURIComponent(`${quoted("dataset", name)} status=${each}`)}`,
  }, count.toLocaleString("en"));
  return table("Samples by status", ["dataset", ...STATUSES.map((each) => pill(each))], [...counts].map(([code, of]) => {
    const name = dataset.texts[code];
    return [name, ...STATUSES.map((each) => {
      const count = of.get(status.codes.get(each)) ?? 0;
      return count ? link(name, each, count) : "0";
    })];
  }), STATUSES.map((_, index) => index + 1));
}

const quoted = (name, value) => (/\s/.test(value) ? `"${name}=${value}"` : `${name}=${value}`);

function figures(entry) {
  const rows = Object.entries(entry.metrics ?? {}).filter(([, figure]) => figure && figure.value !== null)
    .map(([name, figure]) => [name, number(figure.value), figure.low === null || figure.low === undefined ? ""
      : `${number(figure.low)} to ${number(figure.high)}`, number(figure.n)]);
  return h("details", { open: true }, h("summary", null, `${rows.length} figures`),
    table("Figures", ["metric", "value", "95 % interval", "problems"], rows, [1, 2, 3]));
}

function facts(about) {
  const shown = Object.entries(about.info ?? {}).filter(([, value]) => value !== null && value !== "");
  if (!shown.length) return null;
  return [h("h2", null, "About the run"), table("About the run", ["fact", "value"],
    shown.map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]))];
}
