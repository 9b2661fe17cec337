// Compares two or more runs: lists the samples that ended differently, and shows one sample's answers side by side.

import { diffLines } from "./diff.js";
import { fill, h, pill, table } from "./dom.js";
import { answer } from "./highlight.js";
import { drawDiff, findRow } from "./sample.js";
import { openRun } from "./store.js";

const MAX_LISTED = 500;

export async function showCompare({ page, parameters, isCurrent }) {
  const ids = parameters.getAll("run");
  if (ids.length < 2) throw new Error("choose at least two runs on the page of all runs");
  const runs = ids.map(openRun);
  await Promise.all(runs.map((run) => run.whole(isCurrent)));
  if (!isCurrent()) return null;
  const chosen = parameters.get("sample");
  if (chosen) return showSide(page, runs, JSON.parse(chosen), isCurrent);
  const { common, flips } = flipsOf(runs);
  const gained = flips.filter((each) => each.statuses[0] !== "success" && each.statuses.at(-1) === "success").length;
  const lost = flips.filter((each) => each.statuses[0] === "success" && each.statuses.at(-1) !== "success").length;
  const address = (key) => `#/compare?${ids.map((id) => `run=${encodeURIComponent(id)}`).join("&")}&sample=${encodeURIComponent(JSON.stringify(key))}`;
  fill(page, h("h1", null, "Compare"), h("p", null,
    `${common.toLocaleString("en")} samples are in all runs; ${flips.length.toLocaleString("en")} ended otherwise: ${gained} gained and ${lost} lost from ${ids[0]} to ${ids.at(-1)}.`),
  h("p", { class: "quiet" }, "Counts alone: evalrun compare says whether the difference is more than chance."),
  table("Samples that ended otherwise", ["problem", "sample", ...ids], flips.slice(0, MAX_LISTED).map((each) => [
    h("a", { href: address(each.key) }, each.key[1]), each.key[2], ...each.statuses.map((status) => pill(status)),
  ])), flips.length > MAX_LISTED ? h("p", { class: "quiet" }, `The first ${MAX_LISTED} are listed.`) : null);
  return null;
}

/** Return how many samples all runs have, and those that did not end alike. */
export function flipsOf(runs) {
  const [first, ...others] = runs;
  const indexes = others.map(indexOf);
  const flips = [];
  let common = 0;
  const status = (run, row) => run.column("status").at(row);
  for (let row = 0; row < first.rows; row += 1) {
    if (first.hidden.has(row)) continue;
    const key = keyOf(first, row);
    const rows = indexes.map((index) => index.get(key.join("\0")));
    if (rows.some((each) => each === undefined)) continue;
    common += 1;
    const statuses = [status(first, row), ...rows.map((each, place) => status(others[place], each))];
    if (statuses.some((each) => each !== statuses[0])) flips.push({ key, statuses });
  }
  return { common, flips };
}

const keyOf = (run, row) => ["dataset", "problem", "sample", "repeat", "turn"].map((name) => String(run.column(name).at(row)));

function indexOf(run) {
  const index = new Map();
  for (let row = 0; row < run.rows; row += 1) if (!run.hidden.has(row)) index.set(keyOf(run, row).join("\0"), row);
  return index;
}

async function showSide(page, runs, key, isCurrent) {
  const rows = await Promise.all(runs.map((run) => {
    const row = findRow(run, key);
    return row < 0 ? null : run.row(row);
  }));
  if (!isCurrent()) return null;
  const lines = rows[0] && rows.at(-1) ? diffLines(rows[0].response, rows.at(-1).response) : null;
  fill(page, h("h1", null, `${key[1]} · sample ${key[2]}`),
    h("p", null, h("a", { href: `#/compare?${runs.map((run) => `run=${encodeURIComponent(run.id)}`).join("&")}` }, "← all that ended otherwise")),
    h("div", { class: "grid sides" }, rows.map((row, place) => h("section", null, h("h2", null, runs[place].id),
      row ? [h("p", null, pill(row.final_status)), answer(row.response, row.language)] : h("p", null, "no such sample")))),
    lines ? [h("h2", null, "Difference of the answers"), drawDiff(lines, [`in ${runs[0].id}`, `in ${runs.at(-1).id}`])] : null);
  return null;
}
