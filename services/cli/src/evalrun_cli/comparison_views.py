"""`evalrun compare` and `evalrun gate`: reads the runs, compares them, and writes what was found."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evalrun_aggregator.comparing.comparison import Comparison, DatasetComparison, Flip, RunFacts, compare_runs
from evalrun_aggregator.comparing.gate import Decision, GateDecision, UnusableGateError, decide_gate
from evalrun_aggregator.gating import baseline_place
from evalrun_aggregator.problem_totals import DatasetTotals
from evalrun_aggregator.stored_run import StoredRun
from evalrun_cli import comparison_text as words
from evalrun_cli.comparison_page import comparison_page, gate_page
from evalrun_cli.gate_policy import read_policy
from evalrun_runtime.exits import BadInputError, ExitCode

_MARKDOWN = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]#!~"} | {sign: f"&#{ord(sign)};" for sign in "<>|&"})

SHOWN_FLIPS = 20
"""Of each kind on a terminal; the other formats list them all."""
SOME_WIDTH = 100
"""Columns of a text that does not go to a terminal."""


def compare(first: str, second: str, *, view: str, output: Path | None) -> ExitCode:
    """Compare the runs in two folders or URLs and show, or write, what was found.

    Raises:
        BadInputError: no finished run lies there, the runs share no dataset, or the file cannot be written.
    """
    baseline, candidate = run_facts(first), run_facts(second)
    comparison = compare_runs(baseline, candidate)
    if not comparison.datasets:
        has = " and ".join(f"{run.place} has {_names(run.totals)}" for run in (baseline, candidate))
        raise BadInputError(f"the runs share no dataset: {has}")
    write(VIEWS[view](comparison), output)
    return ExitCode.SUCCEEDED


def gate(run: str, policy: Path, *, view: str, output: Path | None) -> ExitCode:
    """Decide every gate of a policy file for a run; a failed one outweighs an inconclusive one.

    Raises:
        BadInputError: policy, run or a baseline cannot be used.
    """
    gates = read_policy(policy)
    candidate = StoredRun.open(run).totals()
    baselines: dict[str, Mapping[str, DatasetTotals]] = {}
    decisions = []
    for index, each in enumerate(gates):
        try:
            place = baseline_place(each.baseline, policy.resolve().parent)
            if place not in baselines:
                baselines[place] = StoredRun.open(place).totals()
            decisions.append(decide_gate(each, baselines[place], candidate))
        except (BadInputError, UnusableGateError) as error:
            raise BadInputError(f"{policy}: [{index}]: {error}") from error
    write(GATE_VIEWS[view](decisions), output)
    return exit_code([each.decision for each in decisions])


def exit_code(decisions: Collection[Decision]) -> ExitCode:
    """Give the exit code of several gates: a failed one outweighs an inconclusive one, that one a passed one."""
    if Decision.FAIL in decisions:
        return ExitCode.GATE_FAILED
    return ExitCode.GATE_INCONCLUSIVE if Decision.INCONCLUSIVE in decisions else ExitCode.SUCCEEDED


def run_facts(place: str) -> RunFacts:
    """Read what a comparison needs of a run. Raises BadInputError."""
    run = StoredRun.open(place)
    return RunFacts(place, run.summary, run.run_info, run.totals())


def write(text: str, output: Path | None) -> None:
    """Print a text, or write it to a file. Raises BadInputError where it cannot be written."""
    if output is None:
        print(text)  # noqa: T201 - the command's result
        return
    try:
        output.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"--output {output}: {error.strerror}") from error


def as_text(comparison: Comparison) -> str:
    """Give a comparison for a terminal."""
    console = _console()
    with console.capture() as captured:
        for letter, run in (("A", comparison.baseline), ("B", comparison.candidate)):
            line = f"{letter}  {run.place}  ({run.label}; {run.summary.get('state')})"
            console.print(_plain(line), soft_wrap=True)
        for warning in comparison.warnings:
            console.print(_plain(f"!  {warning}", style="yellow"), soft_wrap=True)
        for each in comparison.datasets:
            console.print()
            console.print(_plain(f"{each.dataset}: {each.problems} problems judged in both", style="italic"))
            if each.differences:
                console.print(_table(each))
            for note in words.notes(each):
                console.print(Text(note))
            for title, flips in _flip_lists(each):
                console.print(Text(f"\n{title}", style="bold"))
                for flip in flips[:SHOWN_FLIPS]:
                    console.print(_plain(f"  {_flip_line(flip)}"), soft_wrap=True)
                if len(flips) > SHOWN_FLIPS:
                    console.print(Text(f"  and {len(flips) - SHOWN_FLIPS} more (--format json lists all)"))
    return captured.get().rstrip()


def as_markdown(comparison: Comparison) -> str:
    """Give a comparison as GitHub's Markdown."""
    lines = [f"## {_cell(comparison.baseline.label)} against {_cell(comparison.candidate.label)}", ""]
    for letter, run in (("A", comparison.baseline), ("B", comparison.candidate)):
        lines.append(f"- **{letter}**: {_cell(run.place)} ({_cell(str(run.summary.get('state')))})")
    if comparison.warnings:
        lines += ["", *(f"> ⚠ {_cell(warning)}  " for warning in comparison.warnings)]
    for each in comparison.datasets:
        lines += ["", f"### {_cell(each.dataset)}: {each.problems} problems judged in both", ""]
        lines += ["| | A | B | B - A | 95 % interval |", "|---|--:|--:|--:|--:|"]
        for row in _rows(each):
            lines.append("| " + " | ".join(row) + " |")
        lines += ["", *(f"{_cell(note)}.  " for note in words.notes(each))]
        for title, flips in _flip_lists(each):
            lines += ["", f"<details><summary>{_cell(title)}</summary>", ""]
            lines += [f"- {_cell(_flip_line(flip))}" for flip in flips]
            lines += ["", "</details>"]
    return "\n".join(lines)


def as_json(comparison: Comparison) -> str:
    """Give a comparison as JSON."""
    return json.dumps(comparison.as_json(), indent=2, ensure_ascii=False, allow_nan=False)


VIEWS: Mapping[str, Callable[[Comparison], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "json": as_json,
    "html": comparison_page,
}


def gates_as_text(decisions: Sequence[GateDecision]) -> str:
    """Give decisions for a terminal: a line each, and McNemar's test where it fits."""
    lines = []
    for each in decisions:
        lines.append(words.printable(f"{each.decision.value:12}  {each.message} (baseline {each.baseline})"))
        lines += [f"{'':12}  {note}" for note in words.gate_notes(each)]
    return "\n".join(lines)


def gates_as_markdown(decisions: Sequence[GateDecision]) -> str:
    """Give decisions as a table of GitHub's Markdown."""
    lines = ["| Gate | Decision | Why |", "|---|---|---|"]
    for each in decisions:
        why = ". ".join([each.message, *words.gate_notes(each)])
        lines.append(f"| {_cell(each.dataset)} {each.metric} | **{each.decision.value}** | {_cell(why)} |")
    return "\n".join(lines)


def gates_as_json(decisions: Sequence[GateDecision]) -> str:
    """Give decisions as JSON: objects as in summary.json."""
    return json.dumps([each.as_json() for each in decisions], indent=2, ensure_ascii=False, allow_nan=False)


GATE_VIEWS: Mapping[str, Callable[[Sequence[GateDecision]], str]] = {
    "text": gates_as_text,
    "markdown": gates_as_markdown,
    "json": gates_as_json,
    "html": gate_page,
}


def _plain(text: str, style: str = "") -> Text:
    return Text(words.printable(text), style=style)


def _console() -> Console:
    terminal = Console()
    return Console(
        width=terminal.width if terminal.is_terminal else SOME_WIDTH,
        force_terminal=terminal.is_terminal,
        no_color=terminal.no_color,
        highlight=False,
    )


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


def _cell(text: str) -> str:
    """Escape what Markdown or HTML would read as markup: names come from data that nobody vouches for."""
    return " ".join(text.translate(_MARKDOWN).split())


def _names(totals: Mapping[str, DatasetTotals]) -> str:
    return ", ".join(sorted(totals)) or "no results"
