"""The tables at the end of a run, from its summary.json: they show figures and compute none."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich import box
from rich.table import Table
from rich.text import Text

ENDS = {
    "success": "success",
    "wrong_answer": "wrong\nanswer",
    "runtime_error": "runtime\nerror",
    "timeout": "timeout",
    "syntax_error": "syntax\nerror",
    "empty_output": "empty\noutput",
    "api_error": "not\njudged",
}
"""Each final status with its heading; two lines each, so that the table fits 80 columns."""

MAX_NAME_WIDTH: Final = 18
"""Characters of a dataset's name that no other column may take the place of; a longer one goes over lines."""

ASKED_FOR: Final = {
    "solved_within_budget": "solved within budget",
    "recovery_rate": "recovery rate",
    "flip_rate": "noise floor",
}
"""Figures that stand in a table of their own where the run has them, beside pass@k."""


def results_tables(summary: Mapping[str, Any]) -> Iterator[Table]:
    """Return the figures of each dataset, what else it was asked for, how its answers ended, why some were not judged,
    and where another comparator would decide otherwise.
    """
    figures = _table(f"{summary['state']}")
    _add_names(figures, summary)
    for heading in ("problems", "accepted@1", "95 % interval", "pass\nratio", "coverage"):
        figures.add_column(heading, justify="right", no_wrap=True)
    ends = _table("How the answers ended")
    _add_names(ends, summary)
    for heading in ENDS.values():
        ends.add_column(heading, justify="right", no_wrap=True)
    for name, dataset in summary["datasets"].items():
        figures.add_row(name, *_figures(dataset))
        counts = dataset["counts"]["final_status"]
        ends.add_row(name, *(str(counts.get(status, 0)) for status in ENDS))
    tables = (figures, _more_figures(summary), ends, _causes(summary), _disagreements(summary))
    return iter([table for table in tables if table.row_count or table in (figures, ends)])


def _table(title: str | None = None) -> Table:
    """Return a table whose columns stand so close that none falls off at 80 columns."""
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)


def _add_names(table: Table, summary: Mapping[str, Any]) -> None:
    """Add the column of the datasets' names: whole, as far as they leave the figures half of 80 columns."""
    longest = max((len(name) for name in summary["datasets"]), default=0)
    table.add_column("dataset", min_width=min(longest, MAX_NAME_WIDTH), overflow="fold")


def _more_figures(summary: Mapping[str, Any]) -> Table:
    """Return pass@k and whatever else the protocol asked for, and between which bounds accepted@1 lies where answers
    were
    not judged; no rows where there is nothing.
    """
    table = _table()
    _add_names(table, summary)
    table.add_column("figure")
    for heading in ("value", "95 % interval", "problems"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, dataset in summary["datasets"].items():
        metrics, counts = dataset["metrics"], dataset["counts"]
        ks = sorted(int(metric[1]) for metric in map(re.compile(r"pass_at_(\d+)").fullmatch, metrics) if metric)
        turns = sum(metric.startswith("accepted_by_turn_") for metric in metrics)
        by_turn = {f"accepted_by_turn_{turn}": f"accepted by turn {turn}" for turn in range(2, turns + 1)}
        wanted = {f"pass_at_{k}": f"pass@{k}" for k in ks} | by_turn | ASKED_FOR
        for metric, heading in wanted.items():
            figure = metrics.get(metric)
            if figure is None:
                continue
            left_out = counts.get("left_out_problems", {}).get(metric, 0)
            problems = f"{figure['n']}, {left_out} left out" if left_out else str(figure["n"])
            interval = f"{percent(figure['low'])} to {percent(figure['high'])}"
            table.add_row(name, heading, percent(figure["value"]), interval, problems)
        if counts.get("not_judged"):
            low, high = dataset["accepted_bounds"]
            bounds = f"{percent(low)} to {percent(high)}"
            table.add_row(name, "accepted@1, bounds", "", bounds, str(counts["problems"]))
    return table


def _causes(summary: Mapping[str, Any]) -> Table:
    """Return why answers were not judged; no rows if all were."""
    table = _table("Why answers were not judged")
    _add_names(table, summary)
    table.add_column("answers", justify="right", no_wrap=True)
    table.add_column("cause", overflow="fold")
    for name, dataset in summary["datasets"].items():
        for cause, number in dataset["counts"].get("not_judged_causes", {}).items():
            table.add_row(name, str(number), Text(cause))
    return table


def _disagreements(summary: Mapping[str, Any]) -> Table:
    """Return the comparators under which verdicts change; no rows where none do, or where the summary is an older
    one.
    """
    table = _table("Comparators that would decide otherwise")
    _add_names(table, summary)
    table.add_column("comparator")
    for heading in ("would accept", "would reject", "accepted then"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, dataset in summary["datasets"].items():
        for comparator, counts in dataset.get("comparators", {}).get("otherwise", {}).items():
            table.add_row(
                name, comparator, *(str(counts[field]) for field in ("would_accept", "would_reject", "accepted"))
            )
    return table


def _figures(dataset: Mapping[str, Any]) -> list[str]:
    metrics = dataset["metrics"]
    accepted = metrics["accepted_at_1"]
    return [
        str(dataset["counts"]["problems"]),
        percent(accepted["value"]),
        f"{percent(accepted['low'])} to {percent(accepted['high'])}",
        percent(metrics["pass_ratio_mean"]["value"]),
        percent(dataset["coverage"]),
    ]


def percent(share: float | None) -> str:
    """Return a share as a percentage with one decimal; a dash where there is no figure."""
    return "-" if share is None else f"{100 * share:.1f} %"
