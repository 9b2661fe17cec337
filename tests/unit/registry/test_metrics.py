"""The descriptions of the metrics: each has an estimator, and names are found again."""

import re

import pytest

from evalrun_registry.metric import Interval, Table, Unit
from evalrun_registry.metrics import HEADLINE, METRICS, find_metric, gate_metrics, metrics_in, shown_in
from evalrun_results.metrics.estimators import ESTIMATORS


def test_metrics_every_description_has_an_estimator() -> None:
    assert list(ESTIMATORS) == [metric.name for metric in METRICS]


@pytest.mark.parametrize(
    ("name", "stem", "number"),
    [
        ("accepted_at_1", "accepted_at_1", 0),
        ("pass_at_10", "pass_at_", 10),
        ("recovery_rate", "recovery_rate", 0),
        ("recovery_rate_by_turn_2", "recovery_rate_by_turn_", 2),
    ],
)
def test_find_metric_known_name_returns_its_description_and_number(name: str, stem: str, number: int) -> None:
    found = find_metric(name)
    assert found is not None
    assert (found.metric.stem, found.number, found.name) == (stem, number, name)


@pytest.mark.parametrize("name", ["", "pass_at_", "pass_at_<k>", "accepted_at_2", "pass_at_k", "coverage"])
def test_find_metric_other_name_returns_none(name: str) -> None:
    assert find_metric(name) is None


def test_gate_metrics_every_one_is_a_mean_of_shares() -> None:
    for metric in (*gate_metrics(falls=False), *gate_metrics(falls=True)):
        assert metric.unit is Unit.SHARE
        assert metric.interval in {Interval.PROPORTION, Interval.MEAN_SHARE}


def test_pattern_numbered_metric_matches_its_names_only() -> None:
    metric = next(metric for metric in METRICS if metric.name == "pass_at_<k>")
    assert [name for name in ("pass_at_1", "pass_at_9999", "pass_at_0", "pass_at_", "pass_at_10000")
            if re.fullmatch(metric.pattern, name)] == ["pass_at_1", "pass_at_9999"]  # fmt: skip


def test_metrics_in_ranks_differ_within_each_table() -> None:
    for table in Table:
        ranks = [column.rank for _, column in metrics_in(table)]
        assert len(ranks) == len(set(ranks)), table


def test_shown_in_omits_pass_at_1_beside_accepted_at_1() -> None:
    names = ["pass_at_10", "accepted_at_1", "pass_at_1", "pass_at_2", "throughput", "unknown"]
    assert [metric.name for metric, _ in shown_in(Table.HEADLINE, names)] == [
        "accepted_at_1",
        "pass_at_2",
        "pass_at_10",
    ]


def test_series_names_the_subject() -> None:
    assert (HEADLINE.series(), HEADLINE.series("run")) == ("evalrun_accepted_at_1", "evalrun_run_accepted_at_1")
