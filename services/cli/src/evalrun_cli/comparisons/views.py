"""`evalrun compare` and `evalrun gate`: read the runs, compare them, and write the result."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evalrun_api.v1alpha1 import Gate
from evalrun_cli.comparisons import text as words
from evalrun_cli.comparisons.gate_policy import read_policy
from evalrun_cli.comparisons.junit import gates_as_junit
from evalrun_cli.comparisons.page import comparison_page, gate_page
from evalrun_cli.printable_text import printable
from evalrun_cli.terminal import open_console
from evalrun_results.comparisons.comparison import Comparison, DatasetComparison, Flip, RunFacts, compare_runs
from evalrun_results.comparisons.gate import GateDecision, GateResult
from evalrun_results.comparisons.gate_values import UnusableGateError
from evalrun_results.comparisons.roles import refusal_for_role, render_dataset_name, role_in
from evalrun_results.comparisons.run_gate import Totals, baseline_totals, decide_or_raise, drawn_by, version_warnings
from evalrun_results.comparisons.sample_size import needs
from evalrun_results.metrics.problem_totals import DatasetTotals
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.exits import BadInputError, ExitCode

_MARKDOWN = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]#!~"} | {sign: f"&#{ord(sign)};" for sign in "<>|&"})
_MENTION = re.compile(r"(?<!\w)@")

Found = TypeVar("Found")

SHOWN_FLIPS = 20
"""Maximum number of flips of each kind on a terminal; the other formats list all."""
SOME_WIDTH = 100
"""Columns of a text that does not go to a terminal."""


def compare(first: str, second: str, *, view: str, output: Path | None) -> ExitCode:
    """Compare the runs in two directories or URLs, and show or write the comparison.

    Raises:
        BadInputError: a place holds no finished run, the runs share no dataset, or the file cannot be written.
    """
    write(VIEWS[view](compare_two(first, second)), output)
    return ExitCode.SUCCEEDED


def compare_two(first: str, second: str) -> Comparison:
    """Compare the runs in two directories or URLs.

    Raises:
        BadInputError: a place holds no finished run, or the runs share no dataset.
    """
    baseline, candidate = run_facts(first), run_facts(second)
    comparison = compare_runs(baseline, candidate)
    if not comparison.datasets:
        has = " and ".join(f"{run.place} has {dataset_names(run.totals)}" for run in (baseline, candidate))
        raise BadInputError(f"the runs share no dataset: {has}")
    if baseline.place == candidate.place:
        same = f"A and B are the same run, {baseline.place}: nothing can differ"
        return replace(comparison, warnings=(same, *comparison.warnings))
    return comparison


def gate(run: str, policy: Path, *, view: str, output: Path | None) -> ExitCode:
    """Decide every gate of a policy file for a run. A failed gate outweighs an inconclusive gate.

    Raises:
        BadInputError: policy, run or a baseline cannot be used.
    """
    decisions = decide_gates(run, read_policy(policy), policy)
    write(GATE_VIEWS[view](decisions), output)
    return exit_code([each.decision for each in decisions])


def decide_gates(run: str, gates: Sequence[Gate], policy: Path) -> list[GateResult]:
    """Decide the gates of a policy for a run; relative baselines are read from the policy's directory.

    Raises:
        BadInputError: run or a baseline cannot be used.
    """
    stored = StoredRun.open(run)

    def decide_gate(each: Gate, baseline: Totals | None, candidate: Totals) -> GateResult:
        drawn = drawn_by(stored, each, baseline, candidate)
        found = decide_or_raise(each, baseline, candidate, drawn=drawn, family=len(gates))
        return replace(found, warnings=version_warnings(each, policy.resolve().parent, stored.run_info))

    return _map_gates(stored, policy, gates, decide_gate)


def gate_sample_sizes(pilot: str, policy: Path, *, view: str, output: Path | None) -> ExitCode:
    """Estimate from a pilot run how many problems every gate of a policy file needs. Nothing is decided.

    Raises:
        BadInputError: policy, pilot or a baseline cannot be used, or another format than text is asked for.
    """
    if view != "text":
        raise BadInputError(f"--sample-size: is text only: leave out --format {view}")
    gates = read_policy(policy)

    def told(each: Gate, baseline: Totals | None, run: Totals) -> str:
        return needs(each, baseline, run, family=len(gates))

    lines = _map_gates(StoredRun.open(pilot), policy, gates, told)
    write("\n".join(printable(line) for line in lines), output)
    return ExitCode.SUCCEEDED


def _map_gates(
    run: StoredRun, policy: Path, gates: Sequence[Gate], found: Callable[[Gate, Totals | None, Totals], Found]
) -> list[Found]:
    candidate = run.totals()
    baselines: dict[str | None, Totals | None] = {}
    answers = []
    for index, each in enumerate(gates):
        try:
            for name in each.dataset_names:
                if refusal := refusal_for_role(each, name, role_in(run.run_info, name)):
                    raise UnusableGateError(refusal)
            if each.baseline not in baselines:
                baselines[each.baseline] = baseline_totals(each, policy.resolve().parent)
            answers.append(found(each, baselines[each.baseline], candidate))
        except (BadInputError, UnusableGateError) as error:
            raise BadInputError(f"{policy}: [{index}]: {error}") from error
    return answers


def exit_code(decisions: Collection[GateDecision]) -> ExitCode:
    """Return the exit code of several gates: failed outweighs inconclusive, and inconclusive outweighs passed."""
    if GateDecision.FAIL in decisions:
        return ExitCode.GATE_FAILED
    return ExitCode.GATE_INCONCLUSIVE if GateDecision.INCONCLUSIVE in decisions else ExitCode.SUCCEEDED


def run_facts(place: str) -> RunFacts:
    """Read the facts about a run that a comparison needs. Raises BadInputError."""
    run = StoredRun.open(place)
    return RunFacts(place, run.summary, run.run_info, run.totals())


def write(text: str, output: Path | None) -> None:
    """Print a text, or write it to a file. Raises BadInputError if the file cannot be written."""
    if output is None:
        print(text)  # noqa: T201 - the command's result
        return
    try:
        output.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"--output {output}: {error.strerror}") from error


def as_text(comparison: Comparison) -> str:
    """Return a comparison for a terminal."""
    console = terminal()
    with console.capture() as captured:
        for letter, run in (("A", comparison.baseline), ("B", comparison.candidate)):
            line = f"{letter}  {run.place}  ({run.label}; {run.summary.get('state')})"
            console.print(plain(line), soft_wrap=True)
        for warning in comparison.warnings:
            console.print(plain(f"!  {warning}", style="yellow"), soft_wrap=True)
        for each in comparison.datasets:
            console.print()
            console.print(
                plain(
                    f"{render_dataset_name(each.dataset, each.role)}: {each.problems} problems judged in both",
                    style="italic",
                )
            )
            if each.differences:
                console.print(_table(each))
            for note in words.notes(each):
                console.print(Text(note))
            for title, flips in _flip_lists(each):
                console.print(Text(f"\n{title}", style="bold"))
                for flip in flips[:SHOWN_FLIPS]:
                    console.print(plain(f"  {_flip_line(flip)}"), soft_wrap=True)
                if len(flips) > SHOWN_FLIPS:
                    console.print(Text(f"  and {len(flips) - SHOWN_FLIPS} more (--format json lists all)"))
    return captured.get().rstrip()


def as_markdown(comparison: Comparison) -> str:
    """Return a comparison as GitHub's Markdown."""
    lines = [f"## {cell(comparison.baseline.label)} against {cell(comparison.candidate.label)}", ""]
    for letter, run in (("A", comparison.baseline), ("B", comparison.candidate)):
        lines.append(f"- **{letter}**: {cell(run.place)} ({cell(str(run.summary.get('state')))})")
    if comparison.warnings:
        lines += ["", *(f"> ⚠ {cell(warning)}  " for warning in comparison.warnings)]
    for each in comparison.datasets:
        lines += [
            "",
            f"### {cell(render_dataset_name(each.dataset, each.role))}: {each.problems} problems judged in both",
            "",
        ]
        lines += ["| | A | B | B - A | 95 % interval |", "|---|--:|--:|--:|--:|"]
        for row in _rows(each):
            lines.append("| " + " | ".join(row) + " |")
        lines += ["", *(f"{cell(note)}.  " for note in words.notes(each))]
        for title, flips in _flip_lists(each):
            lines += ["", f"<details><summary>{cell(title)}</summary>", ""]
            lines += [f"- {cell(_flip_line(flip))}" for flip in flips]
            lines += ["", "</details>"]
    return "\n".join(lines)


def as_json(comparison: Comparison) -> str:
    """Return a comparison as JSON."""
    return json.dumps(comparison.as_json(), indent=2, ensure_ascii=False, allow_nan=False)


VIEWS: Mapping[str, Callable[[Comparison], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "json": as_json,
    "html": comparison_page,
}


def gates_as_text(decisions: Sequence[GateResult]) -> str:
    """Return decisions for a terminal: a line each, and McNemar's test where it fits."""
    lines = []
    for each in decisions:
        lines.append(printable(f"{each.decision.value:12}  {each.message} (baseline {each.baseline})"))
        lines += [f"{'':12}  {note}" for note in words.gate_notes(each)]
    return "\n".join(lines)


def gates_as_markdown(decisions: Sequence[GateResult]) -> str:
    """Return decisions as a table of GitHub's Markdown."""
    lines = ["| Gate | Decision | Why |", "|---|---|---|"]
    for each in decisions:
        why = ". ".join([each.message, *words.gate_notes(each)])
        lines.append(f"| {cell(each.dataset)} {each.metric} | **{each.decision.value}** | {cell(why)} |")
    return "\n".join(lines)


def gates_as_json(decisions: Sequence[GateResult]) -> str:
    """Return decisions as JSON: objects as in summary.json."""
    return json.dumps([each.as_json() for each in decisions], indent=2, ensure_ascii=False, allow_nan=False)


GATE_VIEWS: Mapping[str, Callable[[Sequence[GateResult]], str]] = {
    "text": gates_as_text,
    "markdown": gates_as_markdown,
    "json": gates_as_json,
    "html": gate_page,
    "junit": gates_as_junit,
}


def plain(text: str, style: str = "") -> Text:
    """Return a line without terminal control sequences."""
    return Text(printable(text), style=style)


def terminal() -> Console:
    """Return the console that formats text: as wide as the terminal or COLUMNS says, else `SOME_WIDTH` columns wide."""
    return open_console(width=SOME_WIDTH)


def _table(each: DatasetComparison) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("")
    for heading in ("A", "B", "B - A", "95 % interval"):
        table.add_column(heading, justify="right")
    for row, found in zip(_rows(each), words.shown_differences(each), strict=True):
        table.add_row(*row, style="bold" if words.is_clear(found) else None)
    return table


def _rows(each: DatasetComparison) -> Iterator[list[str]]:
    for found in words.shown_differences(each):
        name = found.metric
        left_out = f" ({found.problems} problems)" if found.left_out else ""
        yield [
            words.label(name) + left_out,
            words.value(name, found.baseline),
            words.value(name, found.candidate),
            words.change(name, found.difference),
            words.interval(found),
        ]


def _flip_lists(each: DatasetComparison) -> Iterator[tuple[str, Sequence[Flip]]]:
    if each.lost:
        yield f"Solved only by A ({len(each.lost)})", each.lost
    if each.gained:
        yield f"Solved only by B ({len(each.gained)})", each.gained


def _flip_line(flip: Flip) -> str:
    return f"{flip.problem_id}: {flip.baseline.text} -> {flip.candidate.text}"


def cell(text: str) -> str:
    """Escape Markdown and HTML markup and mentions of people, because names come from untrusted data."""
    return " ".join(_MENTION.sub("&#64;", text.translate(_MARKDOWN)).split())


def dataset_names(totals: Mapping[str, DatasetTotals]) -> str:
    """Return the names of a run's datasets, for a message."""
    return ", ".join(sorted(totals)) or "no results"
