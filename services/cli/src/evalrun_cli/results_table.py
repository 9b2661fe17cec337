"""The tables at the end of a run, from its summary.json: they show metrics and compute none."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from rich import box
from rich.table import Table
from rich.text import Text

from evalrun_registry.metric import Column, Metric
from evalrun_registry.metric import Table as MetricTable
from evalrun_registry.metrics import HEADLINE, metrics_in, shown_in
from evalrun_results.repeated_figures import find_repeated_figures

ENDS = {
    "success": "success",
    "wrong_answer": "wrong\nanswer",
    "runtime_error": "runtime\nerror",
    "timeout": "timeout",
    "syntax_error": "syntax\nerror",
    "empty_output": "empty\noutput",
    "api_error": "not\njudged",
}
"""Each final status with its heading in two lines, so that the table fits 60 columns unless a run has all of them."""

MAX_NAME_WIDTH: Final = 18
"""Characters of a dataset's name that are reserved for it; a longer name is folded."""


def results_tables(summary: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the tables of a summary: metrics by dataset, protocol metrics, outcomes, reasons of completions that
    were not judged, and comparators that would decide otherwise."""
    figures = _table(f"{summary['state']}, partial" if summary.get("partial") else summary["state"])
    _add_names(figures, summary)
    repeated = find_repeated_figures(summary["datasets"])
    for heading in ("problems", *_headings(repeated), "coverage"):
        figures.add_column(heading, justify="right", no_wrap=True)
    ends = _table("How the answers ended")
    _add_names(ends, summary)
    counted = [dataset["counts"]["final_status"] for dataset in summary["datasets"].values()]
    shown = [status for status in ENDS if status == "success" or any(counts.get(status) for counts in counted)]
    for status in shown:
        ends.add_column(ENDS[status], justify="right", no_wrap=True)
    for name, dataset in summary["datasets"].items():
        figures.add_row(name, *_figures(dataset, repeated))
        counts = dataset["counts"]["final_status"]
        ends.add_row(name, *(str(counts.get(status, 0)) for status in shown))
    tables = (figures, _more_figures(summary), ends, _failures(summary), _causes(summary), _disagreements(summary))
    return iter([table for table in tables if table.row_count or table in (figures, ends)])


def _table(title: str | None = None) -> Table:
    """Return a table with columns narrow enough for 80 characters."""
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)


def _add_names(table: Table, summary: Mapping[str, Any]) -> None:
    """Add the column of dataset names. If space is short, names longer than `MAX_NAME_WIDTH` are folded."""
    longest = max((len(name) for name in summary["datasets"]), default=0)
    table.add_column("dataset", min_width=min(longest, MAX_NAME_WIDTH), overflow="fold")


def _more_figures(summary: Mapping[str, Any]) -> Table:
    """Return pass@k, the protocol's other metrics, and the bounds of pass@1 if completions were not judged."""
    table = _table()
    _add_names(table, summary)
    table.add_column("figure")
    for heading in ("value", "95 % interval", "problems"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, dataset in summary["datasets"].items():
        metrics, counts = dataset["metrics"], dataset["counts"]
        scored = _count_scored_problems(dataset)
        for shown, _ in metrics_in(MetricTable.END):
            known = metrics.get(shown.name)
            if known is not None and known.get("n", scored) < scored:
                table.add_row(name, shown.title, percent(known["value"]), _interval(known), str(known["n"]))
        for metric, column in shown_in(MetricTable.RESULTS, metrics):
            figure = metrics[metric.name]
            left_out = counts.get("left_out_problems", {}).get(metric.name, 0)
            problems = f"{figure['n']}, {left_out} left out" if left_out else str(figure["n"])
            table.add_row(name, metric.render_heading(column), percent(figure["value"]), _interval(figure), problems)
        if together := counts.get("judged_together"):
            share, where = percent(together / counts["judged"]), f"{together} of {counts['judged']}"
            table.add_row(name, "judged together, can be forged", share, "", where)
        if counts.get("not_judged") and metrics:
            low, high = dataset["accepted_bounds"]
            bounds = f"{percent(low)} to {percent(high)}"
            table.add_row(name, f"{HEADLINE.title}, bounds", "", bounds, str(counts["problems"]))
    return table


def _failures(summary: Mapping[str, Any]) -> Table:
    """Return the classes of failed completions, with an example and a remedy; no rows if none was recognized."""
    table = _table("Why answers failed")
    _add_names(table, summary)
    table.add_column("answers", justify="right", no_wrap=True)
    for heading in ("are", "such as", "what to do"):
        table.add_column(heading, overflow="fold")
    for name, dataset in summary["datasets"].items():
        for found in dataset.get("failures", ()):
            example = found["examples"][0]["problem_id"] if found["examples"] else ""
            samples = dataset["counts"].get("samples", 0)
            count = f"{found['answers']} of {samples}" if samples else str(found["answers"])
            table.add_row(name, count, Text(found["says"]), Text(str(example)), Text(found["advice"]))
    return table


def _causes(summary: Mapping[str, Any]) -> Table:
    """Return the reasons of completions that were not judged; no rows if all were judged."""
    table = _table("Why answers were not judged")
    _add_names(table, summary)
    table.add_column("answers", justify="right", no_wrap=True)
    table.add_column("cause", overflow="fold")
    for name, dataset in summary["datasets"].items():
        for cause, number in dataset["counts"].get("not_judged_causes", {}).items():
            table.add_row(name, str(number), Text(cause))
    return table


def _disagreements(summary: Mapping[str, Any]) -> Table:
    """Return the comparators that would change verdicts; no rows without such a comparator, or for an older summary."""
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


def _count_scored_problems(dataset: Mapping[str, Any]) -> int:
    """Return the number of problems that the headline metric covers."""
    return int(dataset["metrics"].get(HEADLINE.name, {}).get("n", dataset["counts"]["problems"]))


def _figures(dataset: Mapping[str, Any], left_out: Collection[str]) -> list[str]:
    problems = dataset["counts"]["problems"]
    # The metrics are empty with purpose: Sampling.
    metrics = dataset["metrics"]
    judged = _count_scored_problems(dataset)
    cells = [str(problems) if judged == problems else f"{judged} of {problems}"]
    for metric, column in _shown(left_out):
        figure = metrics.get(metric.name)
        cells.append("-" if figure is None else percent(figure["value"]))
        if column.prominent:
            cells.append("-" if figure is None else _interval(figure))
    return [*cells, percent(dataset["coverage"])]


def _shown(left_out: Collection[str]) -> Iterator[tuple[Metric, Column]]:
    return ((metric, column) for metric, column in metrics_in(MetricTable.END) if metric.name not in left_out)


def _headings(left_out: Collection[str]) -> Iterator[str]:
    for metric, column in _shown(left_out):
        yield column.heading or metric.title
        if column.prominent:
            yield "95 % interval"


def _interval(figure: Mapping[str, Any]) -> str:
    return f"{percent(figure['low'])} to {percent(figure['high'])}"


def percent(share: float | None) -> str:
    """Return a share as a percentage with a decimal, or a dash without a value."""
    return "-" if share is None else f"{100 * share:.1f} %"
