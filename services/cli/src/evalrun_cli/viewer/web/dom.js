// Builds elements. Every text becomes a text node: what models and programs wrote is shown and never parsed.

const BIDI = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g; // reorders text: CVE-2021-42574
const CONTROL = /[\0-\x08\x0b-\x1f\x7f-\x9f]/g;

const MARKS = /(\p{M}{8})(\p{M}+)/gu; // piled on one letter, they cover other lines and stick out

/** Return a text with the marks that steer a display spelt out. */
export function plain(text) {
  return String(text).replace(MARKS, (_, kept, more) => `${kept}\u27e8${more.length} more marks\u27e9`).replace(/\r\n/g, "\n").replace(CONTROL, (sign) => {
    const code = sign.charCodeAt(0);
    return code < 32 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? "\u2421" : "\ufffd";
  }).replace(BIDI, (sign) => `\u27e8U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`);
}

/** Return an element. `on…` attributes are listeners; null and false leave an attribute out. */
export function h(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : plain(value));
  }
  made.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined)
    .map((each) => (each instanceof Node ? each : document.createTextNode(plain(each)))));
  return made;
}

/** Replace the children of an element. */
export function fill(parent, ...children) {
  parent.replaceChildren(...h("div", null, ...children).childNodes);
}

/** Return a table that scrolls by itself. Cells may be nodes; `right` are the numbers of columns of numbers. */
export function table(caption, headings, rows, right = []) {
  const side = (place) => (right.includes(place) ? "right" : null);
  return h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": caption },
    h("table", null, h("caption", null, caption),
      h("thead", null, h("tr", null, headings.map((each, place) => h("th", { scope: "col", class: side(place) }, each)))),
      h("tbody", null, rows.map((row) => h("tr", null, row.map((cell, place) =>
        place ? h("td", { class: side(place) }, cell) : h("th", { scope: "row", class: side(place) }, cell)))))));
}

const LABELS = {
  success: "success", wrong_answer: "wrong answer", runtime_error: "runtime error", timeout: "timeout",
  syntax_error: "syntax error", empty_output: "empty output", api_error: "not judged",
};
export const STATUSES = Object.keys(LABELS);

/** Return a final status as a coloured word. */
export function pill(status) {
  return h("span", { class: `pill ${status in LABELS ? status : ""}` }, LABELS[status] ?? status);
}

export const percent = (value) => (value === null || value === undefined ? "" : `${(100 * value).toFixed(1)} %`);
export const number = (value) => (Number.isNaN(value) || value === null || value === undefined ? ""
  : Number.isInteger(value) ? value.toLocaleString("en") : value < 10 ? value.toFixed(3) : value.toFixed(1));
