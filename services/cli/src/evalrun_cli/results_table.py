"""The table at the end of a run, from its summary.json: it shows figures and computes none."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

STATUSES = ("success", "wrong_answer", "runtime_error", "timeout", "syntax_error", "empty_output")


def results_table(summary: Mapping[str, Any]) -> Table:
    """Give one row a dataset: accepted@1 with its interval, pass ratio, coverage, and how the programs ended."""
    table = Table(title=f"{summary['state']}", title_justify="left")
    table.add_column("dataset")
    for heading in ("problems", "accepted@1", "95 % interval", "pass ratio", "coverage"):
        table.add_column(heading, justify="right")
    for status in STATUSES:
        table.add_column(status.replace("_", " "), justify="right")
    table.add_column("not judged", justify="right")
    for name, dataset in summary["datasets"].items():
        table.add_row(name, *_cells(dataset))
    return table


def _cells(dataset: Mapping[str, Any]) -> list[str]:
    metrics, counts = dataset["metrics"], dataset["counts"]
    accepted = metrics["accepted_at_1"]
    ends = counts.get("final_status", {})
    coverage = dataset["coverage"]
    share = coverage["value"] if isinstance(coverage, Mapping) else coverage
    return [
        str(counts.get("problems", counts.get("total", ""))),
        percent(accepted["value"]),
        f"{percent(accepted['low'])} to {percent(accepted['high'])}",
        percent(metrics["pass_ratio_mean"]["value"]),
        percent(share),
        *(str(ends.get(status, 0)) for status in STATUSES),
        str(counts.get("not_judged", 0)),
    ]


def percent(share: float | None) -> str:
    """Give a share as a percentage with one decimal; a dash where there is no figure."""
    return "-" if share is None else f"{100 * share:.1f} %"
