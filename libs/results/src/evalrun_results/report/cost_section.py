"""Cost of the run and of each solved problem. Pure."""

from typing import Final

from evalrun_registry.metric import Table
from evalrun_registry.metrics import metrics_in
from evalrun_results.report import quantities as shown
from evalrun_results.report.headline import interval_text
from evalrun_results.report.json_access import Json, amount, mapping, text
from evalrun_results.report.markup import Child, Markup, element, joined
from evalrun_results.report.page import table

COLUMNS: Final = {metric.name: column.heading for metric, column in metrics_in(Table.COST)}
"""Cost of the whole run, unsolved problems included, per solved problem."""


def cost_section(summary: Json) -> Markup | None:
    """Return the costs of a solved problem by dataset, and of the whole run; None if no cost is known."""
    datasets = mapping(summary, "datasets")
    known = [
        metric
        for metric in COLUMNS
        if any(amount(datasets, name, "metrics", metric, "value") is not None for name in datasets)
    ]
    if not known:
        return None
    currency = text(summary, "cost", "currency")
    headings = [
        "Dataset",
        *(COLUMNS[metric] + (f", {currency}" if metric == "money_per_solved" else "") for metric in known),
    ]
    rows: list[list[Child]] = [
        [name, *(_figure(mapping(datasets, name, "metrics"), metric) for metric in known)] for name in datasets
    ]
    return element(
        "div",
        element("h2", "What a solved problem cost", id="cost"),
        table(headings, rows, right=frozenset(range(1, len(headings)))),
        element("p", describe_run_cost(summary), class_="quiet"),
        class_="panel",
    )


def _figure(metrics: Json, metric: str) -> Markup:
    return joined(
        shown.figure(metric, amount(metrics, metric, "value")), element("small", interval_text(metric, metrics))
    )


def describe_run_cost(summary: Json) -> str:
    """Describe the cost of the whole run in a sentence or two."""
    what = "The whole run over the problems that were solved, unsolved ones included."
    seconds, money = amount(summary, "cost", "gpu_seconds"), amount(summary, "cost", "money")
    parts = [f"GPUs in all: {shown.seconds(seconds)}"] if seconds else []
    if amount(summary, "cost", "cpu_hour") is not None:
        parts.append(f"judged programs: {shown.seconds(amount(summary, 'cost', 'cpu_seconds') or 0.0)} of CPU")
    if not parts:
        return what
    price = "" if money is None else f", {shown.number(money)} {text(summary, 'cost', 'currency')}"
    named = "; ".join(parts)
    return f"{what} {named[0].upper()}{named[1:]}{price}."
