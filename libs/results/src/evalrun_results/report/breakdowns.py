"""A dataset's figures by difficulty, by tag and by seed, and its single tests. Pure."""

from collections.abc import Iterator
from typing import Final

from evalrun_registry.metric import Column, NamedMetric, Table
from evalrun_registry.metrics import metrics_in
from evalrun_results.report import quantities as shown
from evalrun_results.report.headline import interval_text
from evalrun_results.report.json_access import Json, amount, count, inside, mapping
from evalrun_results.report.markup import Child, Markup, element, joined
from evalrun_results.report.page import make_foldable, table

_SHOWN: Final = [(metric.to_named(0), column) for metric, column in metrics_in(Table.END)]
"""Metrics that a breakdown shows: those of the terminal's table."""


def breakdowns(dataset: Json) -> Iterator[Markup]:
    """Yield a panel for each breakdown that a dataset's entry in summary.json has."""
    for field, title in (("by_difficulty", "By difficulty"), ("by_tag", "By tag")):
        if groups := mapping(dataset, field):
            yield _groups(title, groups)
    if seeds := mapping(dataset, "by_seed"):
        yield _seeds(seeds)
    tests = mapping(dataset, "counts", "tests")
    if sum(count(tests, status) for status in tests) > count(dataset, "counts", "judged"):
        yield _tests(tests)


def _groups(title: str, groups: Json) -> Markup:
    entries = {name: mapping(groups, name) for name in groups}
    listed = [
        (named.name, _render_heading(named, column))
        for named, column in _SHOWN
        if any(named.name in mapping(entry, "metrics") for entry in entries.values())
    ]
    rows: list[list[Child]] = []
    for name, entry in entries.items():
        figures = [_figure(metric, mapping(entry, "metrics")) for metric, _ in listed]
        rows.append([name, count(entry, "problems"), count(entry, "judged"), *figures])
    headings = ["", "Problems", "Judged", *(heading for _, heading in listed)]
    return element(
        "div", make_foldable(title, table(headings, rows, right=frozenset(range(1, len(headings))))), class_="panel"
    )


def _render_heading(named: NamedMetric, column: Column) -> str:
    return named.render_heading(column).replace("\n", " ")


def _figure(name: str, metrics: Json) -> Child:
    value = amount(metrics, name, "value")
    return joined(shown.figure(name, value), element("small", interval_text(name, metrics)))


def _seeds(seeds: Json) -> Markup:
    figures = mapping(seeds, "metrics")
    rows: list[list[Child]] = []
    for named, column in _SHOWN:
        name = named.name
        values = inside(figures, name, "values")
        if isinstance(values, list):
            each = ", ".join(shown.figure(name, value) for value in values if isinstance(value, float | int))
            mean, deviation = (shown.figure(name, amount(figures, name, part)) for part in ("mean", "deviation"))
            rows.append([_render_heading(named, column), mean, deviation, each])
    return element(
        "div",
        element("h3", f"By seed, {count(seeds, 'seeds')} seeds"),
        table(["Metric", "Mean", "Standard deviation", "Each"], rows, right=frozenset({1, 2})),
        class_="panel",
    )


def _tests(tests: Json) -> Markup:
    total = sum(count(tests, status) for status in tests)
    rows: list[list[Child]] = [
        [status.replace("_", " "), number, shown.percent(number / total)]
        for status in tests
        if (number := count(tests, status))
    ]
    return element(
        "div",
        make_foldable(f"How {total} single tests ended", table(["", "Tests", "Share"], rows, right=frozenset({1, 2}))),
        class_="panel",
    )
