"""`evalrun show` and `evalrun samples`: find samples and print them."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click
from rich.console import Group
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from evalrun_cli.results_table import ENDS
from evalrun_cli.samples.run_samples import RunSamples, open_samples
from evalrun_cli.samples.selection import Row, collect_texts, is_named, name_sample, names_in, sort_rows, sort_tests
from evalrun_cli.terminal import open_console, print_whole, whole_table
from evalrun_results.sample_rows.conditions import Condition, choose_rows, list_columns, parse_condition
from evalrun_runtime.exits import BadInputError, ExitCode

KEY: Final = ("dataset", "problem_id", "sample", "turn", "repeat")
LISTED: Final = (
    *KEY, "judged", "accepted", "final_status", "not_judged_reason", "pass_ratio", "output_tokens", "gen_time",
    "total_judge_time",
)  # fmt: skip
"""Columns that a list shows."""
MAX_TESTS: Final = 3
"""Maximum number of failed tests that are shown, unless all tests are asked for."""
MAX_LINES: Final = 40
"""Lines shown of each text of a test."""
_LABELS: Final = {
    "input": "input", "expected_output": "expected", "stdout": "printed", "stderr": "errors",
    "compile_stderr": "compiler",
}  # fmt: skip


def list_samples(place: str, where: Sequence[str], limit: int, *, as_json: bool) -> ExitCode:
    """Print the samples that meet every condition, at most `limit` (0: all).

    Raises:
        BadInputError: the run or a condition cannot be read.
    """
    conditions = [parse_condition(each) for each in where]
    run = open_samples(place)
    found = _iter_chosen_rows(run, conditions, () if as_json else LISTED)
    if as_json:
        for row in itertools.islice(found, limit or None):
            click.echo(json.dumps(row, ensure_ascii=False))
        return ExitCode.SUCCEEDED
    rows = list(itertools.islice(found, limit + 1 if limit else None))
    is_cut = bool(limit) and len(rows) > limit
    rows = rows[:limit] if is_cut else rows
    console = open_console(width=110)
    if not rows:
        console.print("no sample meets the conditions" if where else "no samples")
        return ExitCode.SUCCEEDED
    console.print(_make_table(rows, console.width))
    if is_cut:
        console.print(f"more than {limit}: narrow --where, or raise --limit (0: all)")
    console.print(Text(f"evalrun show {place} '{name_sample(rows[0]).partition(' ')[0]}' prints the first"))
    return ExitCode.SUCCEEDED


def show_run(place: str, *, as_json: bool) -> ExitCode:
    """Print how the samples of a run ended, by dataset. Raises BadInputError as `list_samples` does."""
    counts: dict[str, dict[str, int]] = {}
    for batch in open_samples(place).read(("dataset", "final_status", "judged")):
        for row in batch.to_pylist():
            of_dataset = counts.setdefault(row["dataset"], {})
            status = row["final_status"] if row["judged"] else "api_error"
            of_dataset[status] = of_dataset.get(status, 0) + 1
    if as_json:
        click.echo(json.dumps(counts, ensure_ascii=False))
        return ExitCode.SUCCEEDED
    shown = [status for status in ENDS if status == "success" or any(status in each for each in counts.values())]
    rows = [
        [name, str(sum(of_dataset.values())), *(str(of_dataset.get(status, 0)) for status in shown)]
        for name, of_dataset in counts.items()
    ]
    headings = ["dataset", "samples", *(ENDS[status] for status in shown)]
    console = open_console(width=110)
    print_whole(console, whole_table("dataset", headings, rows))
    worst = next((s for s in ENDS if s != "success" and any(each.get(s) for each in counts.values())), "success")
    console.print(Text(f"evalrun samples {place} --where status={worst} lists some"))
    return ExitCode.SUCCEEDED


def show_sample(place: str, written: str, *, as_json: bool, all_tests: bool) -> ExitCode:
    """Print the sample that `written` names, or the list of a problem's samples.

    Raises:
        BadInputError: the run cannot be read, or has no such sample.
    """
    rows = find_rows(open_samples(place), written)
    if not rows:
        raise BadInputError(f"{written}: {place} has no such sample: evalrun samples {place} lists what it has")
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False))
        return ExitCode.SUCCEEDED
    console = open_console(width=110)
    if len({row["sample"] for row in rows}) > 1:
        console.print(_make_table(rows, console.width))
        console.print(Text(f"evalrun show {place} '{name_sample(rows[0]).partition(' ')[0]}' prints the first"))
        return ExitCode.SUCCEEDED
    for row in rows:
        # In a file or pipe the program keeps its own lines, because somebody may run it.
        is_read = console.is_terminal
        console.print(_describe_sample(row, all_tests=all_tests, wraps=is_read), soft_wrap=not is_read)
    return ExitCode.SUCCEEDED


def find_rows(run: RunSamples, written: str) -> list[Row]:
    """Return the rows that `PROBLEM` or `PROBLEM#SAMPLE` names, in reading order; empty: none. Raises BadInputError."""
    for by_end in (False, True):
        for name in names_in(written):
            batches = run.read(problem=None if by_end else name.problem)
            named = (row for batch in batches for row in batch.to_pylist() if is_named(row, name, by_end=by_end))
            if rows := sort_rows(named):
                return rows
    return []


def _iter_chosen_rows(run: RunSamples, conditions: Sequence[Condition], columns: Sequence[str]) -> Iterator[Row]:
    """Yield the rows that meet every condition. Only these rows are read completely."""
    wanted = tuple(dict.fromkeys((*columns, *list_columns(conditions)))) if columns else ()
    for batch in run.read(wanted):
        chosen = choose_rows(batch, conditions)
        yield from chosen.select(list(columns)).to_pylist() if columns else chosen.to_pylist()


def _make_table(rows: Sequence[Row], width: int) -> Table:
    """Return a table that fits `width` columns. If it does not, the last columns are left out."""
    names: dict[str, list[Text]] = {}
    if len({row["dataset"] for row in rows}) > 1:
        names["dataset"] = [Text(row["dataset"]) for row in rows]
    names["sample"] = [Text(name_sample(row)) for row in rows]
    status = {"status": [_status_text(row) for row in rows]}
    figures = {
        "tests passed": [_shown(row["pass_ratio"], "{:.0%}") for row in rows],
        "tokens": [_shown(row["output_tokens"], "{}") for row in rows],
        "seconds": [Text(_seconds(row["gen_time"])) for row in rows],
        "judge CPU s": [Text(_seconds(row["total_judge_time"])) for row in rows],
    }
    reasons = [Text(row["not_judged_reason"] or "") for row in rows]
    while figures and _measure_width({**names, **status, **figures}) > width:
        figures.popitem()
    table = Table(box=None, pad_edge=False)
    for heading in names:
        table.add_column(heading, overflow="fold")
    table.add_column("status", no_wrap=True)
    for heading in figures:
        table.add_column(heading, justify="right", no_wrap=True)
    columns = [*names.values(), *status.values(), *figures.values()]
    if any(reason.plain for reason in reasons):
        table.add_column("reason", overflow="fold")
        columns.append(reasons)
    for cells in zip(*columns, strict=True):
        table.add_row(*cells)
    return table


def _shown(value: object, form: str) -> Text:
    return Text("" if value is None else form.format(value))


def _measure_width(columns: Mapping[str, Sequence[Text]]) -> int:
    """Return how wide a table of these columns is, with two spaces between them."""
    widest = [max(len(heading), *(text.cell_len for text in cells)) for heading, cells in columns.items()]
    return sum(widest) + 2 * (len(widest) - 1)


def _describe_sample(row: Row, *, all_tests: bool, wraps: bool) -> Group:
    head = Text(f"{row['dataset']} · {name_sample(row)} · ", style="bold")
    head.append(_status_text(row))
    facts = [f"{row['pass_ratio']:.0%} of tests passed"] if row["pass_ratio"] is not None else []
    facts += [f"{row['output_tokens']} tokens"] if row["output_tokens"] is not None else []
    facts += [f"mean log-probability {_mean(row['log_probs']):.3f}"] if row["log_probs"] else []
    facts += [f"generated in {_seconds(row['gen_time'])} s"] if row["gen_time"] is not None else []
    facts += [f"program: {row['extraction'].replace('_', ' ')}"] if row["extraction"] else []
    facts += [name.replace("_", " ") for name in row["guardrails"] or ()]
    facts += ["verdict forgeable"] if row["forgeable"] else []
    parts: list[Any] = [head, Text(", ".join(facts))]
    if row["not_judged_reason"]:
        parts.append(Text(f"not judged: {row['not_judged_reason']}"))
    parts += [Text("\nAnswer", style="bold"), Text(row["response"] or "(empty)")]
    if row["code"] and row["code"].strip() != (row["response"] or "").strip():
        language = row["language"] or "python"
        coloured = Syntax(row["code"], language, background_color="default", word_wrap=True)
        parts += [Text("\nProgram that was judged", style="bold"), coloured if wraps else Text(row["code"])]
    tests = sort_tests(row["tests"] or ())
    passed = sum(test["status"] == "success" for test in tests)
    parts.append(Text(f"\nTests: {passed} of {len(tests)} passed", style="bold"))
    failed = tests if all_tests else [test for test in tests if test["status"] != "success"]
    shown = failed if all_tests else failed[:MAX_TESTS]
    parts += [part for test in shown for part in _test_parts(test)]
    if len(failed) > len(shown):
        parts.append(Text(f"{len(failed) - len(shown)} more failed: --all-tests prints them"))
    return Group(*parts)


def _test_parts(test: Row) -> Iterator[Any]:
    line = Text(f"\ntest {test['case_index']}: ")
    line.append(test["status"].replace("_", " "), style="green" if test["status"] == "success" else "red")
    line.append(f", {_seconds(test['cpu_time'])} s CPU, {_seconds(test['duration'])} s")
    if test["exit_code"]:
        line.append(f", exit code {test['exit_code']}")
    yield line
    if test["reason"]:
        yield Text(f"  {test['reason']}")
    for field, text in collect_texts(test).items():
        yield Text(f"  {_LABELS[field]}:")
        yield Text("\n".join(f"    {each}" for each in _cut_lines(text, test[f"{field}_length"])))


def _cut_lines(text: str, length: int | None) -> list[str]:
    lines = text.split("\n")
    kept = lines[:MAX_LINES]
    if len(lines) > MAX_LINES:
        return [*kept, f"... {len(lines) - MAX_LINES} more lines"]
    left = (length or 0) - len(text.encode())
    return [*kept, f"... {left} more bytes were not kept"] if left > 0 else kept


def _status_text(row: Row) -> Text:
    status = row["final_status"] if row["judged"] else "api_error"
    style = {"success": "green", "api_error": "dim"}.get(status, "red")
    return Text(ENDS.get(status, status).replace("\n", " "), style=style)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"
