// One sample: its prompt, its answer, and each test with what was expected and what came.

import { diffLines } from "./diff.js";
import { fill, h, number, percent, pill } from "./dom.js";
import { answer, program } from "./highlight.js";
import { sampleAddress } from "./samples.js";
import { openRun } from "./store.js";

/** Return the number of the latest row with this key, which replaces earlier rows; -1 if there is none. */
export function findRow(run, [dataset, problem, sample, repeat, turn]) {
  const [datasets, problems] = [run.column("dataset"), run.column("problem")];
  const codes = [datasets.codes.get(dataset), problems.codes.get(problem)];
  const [samples, repeats, turns] = ["sample", "repeat", "turn"].map((name) => run.column(name).values);
  for (let row = run.rows - 1; row >= 0; row -= 1) {
    if (problems.values[row] === codes[1] && datasets.values[row] === codes[0] && samples[row] === Number(sample)
      && repeats[row] === Number(repeat) && turns[row] === Number(turn)) return row;
  }
  return -1;
}

export async function showSample(id, key, { page, parameters, isCurrent }) {
  const run = openRun(id);
  await run.whole(isCurrent);
  const number_ = findRow(run, key);
  if (number_ < 0) throw new Error(`no such sample in ${id}: ${key[0]} ${key[1]} sample ${key[2]}`);
  const others = samplesOfProblem(run, number_);
  const [row, prompt] = await Promise.all([run.row(number_), run.prompt(key[0], key[1]).catch((error) => error)]);
  const turns = await Promise.all(others.filter((each) => isTurnOf(run, each, number_)).map((each) => run.row(each)));
  if (!isCurrent()) return null;
  const back = `#/run/${encodeURIComponent(id)}/samples${parameters.size ? `?${parameters}` : ""}`;
  fill(page,
    h("h1", null, `${key[1]} · sample ${key[2]}`, Number(key[4]) ? ` · turn ${Number(key[4]) + 1}` : ""),
    h("p", null, pill(row.judged ? row.final_status : "api_error"), " ", factsOf(row)),
    h("p", null, h("a", { href: back }, "← back to the table"), siblings(run, others, number_)),
    row.not_judged_reason ? h("p", { class: "notice" }, `Not judged: ${row.not_judged_reason}`) : null,
    promptOf(prompt),
    turns.filter((each) => each.turn < row.turn).map((each) => [h("h2", null, `Answer of turn ${each.turn + 1}`), answer(each.response, each.language)]),
    h("h2", null, "Answer"), row.response ? answer(row.response, row.language) : h("p", { class: "quiet" }, "(empty)"),
    row.code && row.code.trim() !== row.response.trim()
      ? h("details", null, h("summary", null, "Program that was judged"), program(row.code, row.language)) : null,
    testsOf(row.tests ?? []));
  const onKey = (event) => {
    if (event.target.closest?.("input")) return;
    const step = { j: 1, k: -1 }[event.key];
    const place = others.indexOf(number_) + (step ?? 0);
    if (event.key === "Escape") location.hash = back;
    else if (step && others[place] !== undefined) location.hash = sampleAddress(run, others[place]);
  };
  addEventListener("keydown", onKey);
  return { leave: () => removeEventListener("keydown", onKey) };
}

function samplesOfProblem(run, row) {
  const [datasets, problems] = [run.column("dataset").values, run.column("problem").values];
  const found = [];
  for (let each = 0; each < run.rows; each += 1) {
    if (problems[each] === problems[row] && datasets[each] === datasets[row] && !run.hidden.has(each)) found.push(each);
  }
  return found;
}

const isTurnOf = (run, each, row) => ["sample", "repeat"].every((name) => run.column(name).values[each] === run.column(name).values[row])
  && run.column("turn").values[each] < run.column("turn").values[row];

function siblings(run, others, row) {
  if (others.length < 2) return null;
  const place = others.indexOf(row);
  const link = (each, text) => (each === undefined ? null : [" · ", h("a", { href: sampleAddress(run, each) }, text)]);
  return [` · ${place + 1} of ${others.length} of this problem`, link(others[place - 1], "previous (k)"), link(others[place + 1], "next (j)")];
}

function factsOf(row) {
  return [
    row.pass_ratio === null ? "" : `${percent(row.pass_ratio)} of tests passed`,
    row.output_tokens === null ? "" : `${row.output_tokens} tokens`,
    row.gen_time === null ? "" : `generated in ${number(row.gen_time)} s`,
    row.total_judge_time === null ? "" : `${number(row.total_judge_time)} s of judge's CPU`,
    row.difficulty, ...(row.tags ?? []), row.model, row.language, row.finish_reason ? `finish: ${row.finish_reason}` : "",
    row.extraction ? `program: ${row.extraction.replaceAll("_", " ")}` : "",
    ...(row.guardrails ?? []).map((each) => each.replaceAll("_", " ")),
    row.forgeable ? `forgeable: ${row.forgeable_cause.replaceAll("_", " ")}` : "", row.cached ? "verdict from the cache" : "",
  ].filter(Boolean).join(" · ");
}

function promptOf(prompt) {
  if (prompt instanceof Error) return h("p", { class: "notice" }, `The prompt cannot be read: ${prompt.message}`);
  if (!prompt) return h("p", { class: "quiet" }, "The prompt is not stored with this run; its dataset has it.");
  return h("details", { open: true }, h("summary", null, "Prompt"),
    prompt.map((message) => [h("h2", { class: "role" }, message.role), answer(message.content, "python")]));
}

function testsOf(tests) {
  const failed = tests.filter((test) => test.status !== "success");
  const ordered = [...failed, ...tests.filter((test) => test.status === "success")];
  return [h("h2", null, `Tests: ${tests.length - failed.length} of ${tests.length} passed`),
    ordered.map((test, place) => h("details", { open: place === 0 && failed.length > 0 },
      h("summary", null, `test ${test.case_index} `, pill(STATUS_CLASS[test.status] ?? test.status), test.status in STATUS_CLASS ? ` ${test.status.replaceAll("_", " ")}` : "",
        h("span", { class: "quiet" }, ` ${number(test.cpu_time)} s CPU, ${number(test.duration)} s`, test.exit_code ? `, exit code ${test.exit_code}` : "")),
      test.reason ? h("p", null, test.reason) : null, textsOf(test)))];
}

const STATUS_CLASS = { memory_limit: "runtime_error", compile_error: "syntax_error", compile_timeout: "syntax_error", assumed_timeout: "timeout" };

function textsOf(test) {
  const block = (label, name) => (test[name] ? h("section", null, h("h3", null, label), h("pre", { dir: "ltr", tabindex: 0 }, test[name]), cut(test, name)) : null);
  const differs = test.expected_output && test.stdout && test.expected_output !== test.stdout && test.status !== "success";
  const lines = differs ? diffLines(test.expected_output.replace(/\n$/, ""), test.stdout.replace(/\n$/, "")) : null;
  return h("div", { class: "grid" }, block("Input", "input"), block("Expected", "expected_output"), block("Printed", "stdout"),
    lines ? h("section", null, h("h3", null, "Difference"), drawDiff(lines, ["expected", "printed"])) : null,
    test.stderr === test.compile_stderr ? null : block("Errors", "stderr"), block("Compiler", "compile_stderr"));
}

const cut = (test, name) => (test[`${name}_length`] > new Blob([test[name]]).size
  ? h("p", { class: "quiet" }, `${test[`${name}_length`]} bytes in all; the first 2 KiB are kept`) : null);

/** Return a diff as lines with signs; `names` are the names of the two sides. */
export function drawDiff(lines, names) {
  const sign = { same: " ", less: "-", more: "+" };
  const says = { less: `only ${names[0]}`, more: `only ${names[1]}` };
  return h("pre", { class: "diff", dir: "ltr", tabindex: 0 }, lines.map(([kind, line]) =>
    h("span", { class: kind, title: says[kind] ?? null }, `${sign[kind]} ${line}\n`)));
}
