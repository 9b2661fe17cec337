"""Warnings about figures that are far from what is published for a model."""

import pytest
from builders.results.stored_runs import totals_of, verdicts_of

from evalrun_results.metrics.accumulator import MetricOptions, MetricsAccumulator
from evalrun_results.published_figures import PLAUSIBLE, implausible_figures

QWEN = "Qwen/Qwen2.5-Coder-7B-Instruct"


def warnings_of(model: str, accepted: int, problems: int, dataset: str = "humaneval") -> list[str]:
    results = verdicts_of([number < accepted for number in range(problems)], dataset=dataset)
    accumulator = MetricsAccumulator()
    for result in results:
        accumulator.add(result)
    return list(implausible_figures(model, accumulator.finish(MetricOptions()), totals_of(results)))


@pytest.mark.parametrize("model", [QWEN, "/models/qwen2.5-coder-7b-instruct/", "s3://models/Qwen2.5-Coder-7B-Instruct"])
def test_a_low_figure_of_a_known_model_points_at_the_template(model: str) -> None:
    (line,) = warnings_of(model, 20, 164)
    assert "12.2%" in line
    assert "88.4% is published" in line
    assert "look at the chat template" in line


def test_a_high_figure_points_at_the_tests_and_the_training() -> None:
    (line,) = warnings_of(QWEN, 110, 117, "codecontests_valid")
    assert "3 to 10 % is usual" in line
    assert "whether the model was trained on them" in line


@pytest.mark.parametrize(
    ("model", "accepted", "problems", "dataset"),
    [
        (QWEN, 140, 164, "humaneval"),
        (QWEN, 4, 117, "codecontests_valid"),
        (QWEN, 1, 2, "humaneval"),  # two problems say nothing
        (QWEN, 0, 164, "my_own_set"),
        ("org/another-model", 0, 164, "humaneval"),
        ("", 0, 164, "humaneval"),
    ],
)
def test_a_plausible_or_unknown_figure_gives_no_warning(model: str, accepted: int, problems: int, dataset: str) -> None:
    assert warnings_of(model, accepted, problems, dataset) == []


def test_every_range_is_one_of_shares() -> None:
    assert all(0.0 <= each.low < each.high <= 1.0 for each in PLAUSIBLE.values())
