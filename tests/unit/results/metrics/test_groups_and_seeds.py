"""Figures by difficulty, by tag and by seed, and what a run costs by its prices."""

import pytest
from builders.results.samples import compute_metrics, sample_result, with_changes

from evalrun_results.exports.content import MAX_GROUP, metric_values, name_groups
from evalrun_results.metrics.accumulator import DatasetMetrics, MetricOptions, MetricsAccumulator
from evalrun_results.metrics.groups import MAX_GROUPS
from evalrun_results.outputs.qa_logs import QaOptions
from evalrun_results.outputs.writer import OutputPlan, compute_cost
from evalrun_results.samples import SampleResult

QA = QaOptions(temperature=None, max_new_tokens=None)


def measured(results: list[SampleResult], options: MetricOptions | None = None) -> DatasetMetrics:
    return compute_metrics(results, options or MetricOptions())["humaneval"]


def test_figures_by_difficulty_are_those_of_its_problems_alone() -> None:
    easy = [with_changes(sample_result(number), difficulty="EASY") for number in range(3)]
    hard = [with_changes(sample_result(3 + number, 0, ["wrong_answer"]), difficulty="HARD") for number in range(2)]
    groups = measured([*easy, *hard]).summary()["by_difficulty"]
    assert isinstance(groups, dict)
    assert list(groups) == ["EASY", "HARD"]
    alone = measured(easy).summary()["metrics"]
    assert isinstance(alone, dict)
    assert groups["EASY"] == {
        "problems": 3,
        "judged": 3,
        "metrics": {name: alone[name] for name in ("accepted_at_1", "pass_ratio_mean")},
    }
    assert groups["HARD"]["metrics"]["accepted_at_1"]["value"] == 0.0  # type: ignore[index,call-overload]


def test_a_problem_counts_in_each_of_its_tags() -> None:
    results = [
        with_changes(sample_result(0), tags=("graphs", "greedy")),
        with_changes(sample_result(1, 0, ["wrong_answer"]), tags=("greedy",)),
    ]
    groups = measured(results).groups["by_tag"]
    assert isinstance(groups, dict)
    problems = {tag: (group["problems"], group["metrics"]["accepted_at_1"]["value"]) for tag, group in groups.items()}  # type: ignore[index,call-overload]
    assert problems == {"graphs": (1, 1.0), "greedy": (2, 0.5)}


def test_problems_without_difficulty_and_tags_have_no_groups() -> None:
    assert measured([with_changes(sample_result(0), difficulty="")]).groups == {}


def test_tags_with_the_most_problems_are_listed_up_to_the_limit() -> None:
    results = [
        with_changes(sample_result(number), tags=(f"rare-{number}", "common")) for number in range(MAX_GROUPS + 5)
    ]
    groups = measured(results).groups["by_tag"]
    assert isinstance(groups, dict)
    assert len(groups) == MAX_GROUPS
    assert "common" in groups


def test_single_tests_are_counted_by_their_status() -> None:
    results = [sample_result(0, 0, ["success", "wrong_answer", "timeout"]), sample_result(1, 0, ["success"])]
    assert measured(results).counts["tests"] == {"success": 2, "wrong_answer": 1, "timeout": 1}


def test_two_seeds_have_a_value_each_with_mean_and_deviation() -> None:
    """Seed 0 has the samples 0 and 1, seed 1 the samples 2 and 3: 3 of 4 and 1 of 4 answers are accepted."""
    wrong = ["wrong_answer"]
    accumulator = MetricsAccumulator(2)
    for problem, statuses in ((0, [None, None, None, wrong]), (1, [None, wrong, wrong, wrong])):
        for sample, status in enumerate(statuses):
            accumulator.add(sample_result(problem, sample, status or ["success"]))
    metrics = accumulator.finish(MetricOptions())["humaneval"]
    by_seed = metrics.summary()["by_seed"]
    assert isinstance(by_seed, dict)
    assert by_seed["seeds"] == 2
    figures = by_seed["metrics"]
    assert isinstance(figures, dict)
    assert figures["accepted_at_1"] == {
        "values": [0.75, 0.25],
        "mean": 0.5,
        "deviation": pytest.approx(0.125**0.5),
    }
    assert metrics.figures["accepted_at_1"].value == 0.5
    assert "throughput" not in figures


def test_one_seed_has_no_figures_by_seed() -> None:
    assert "by_seed" not in measured([sample_result(0)]).summary()


@pytest.mark.parametrize(
    ("gpu_seconds", "gpu_hour", "cpu_hour", "money"),
    [(3600.0, 2.0, None, 2.0), (3600.0, 2.0, 0.5, 2.25), (None, None, 0.5, 0.25), (3600.0, None, None, None)],
)
def test_the_cost_of_a_run_is_by_the_prices_it_names(
    gpu_seconds: float | None, gpu_hour: float | None, cpu_hour: float | None, money: float | None
) -> None:
    metrics = MetricOptions(gpu_seconds=gpu_seconds, gpu_hour_price=gpu_hour, cpu_hour_price=cpu_hour)
    cost = compute_cost(OutputPlan({}, metrics, QA, currency="EUR"), cpu_seconds=1800.0)
    assert cost is not None
    assert cost["money"] == money
    assert (cost["gpu_seconds"], cost["cpu_seconds"]) == (gpu_seconds, 1800.0)


def test_without_gpus_and_prices_there_is_no_cost() -> None:
    assert compute_cost(OutputPlan({}, MetricOptions(), QA), 1800.0) is None


def test_money_per_solved_problem_counts_gpus_and_judged_programs() -> None:
    options = MetricOptions(gpu_seconds=3600.0, gpu_hour_price=2.0, cpu_hour_price=3600.0)
    figures = measured([sample_result(0), sample_result(1, 0, ["wrong_answer"])], options).figures
    assert figures["money_per_solved"].value == pytest.approx(2.0 + 1.0)


def test_exports_have_parts_of_a_dataset_under_names_that_services_take() -> None:
    accumulator = MetricsAccumulator(1)
    wrong = ["wrong_answer", "success"]
    for problem, tags in enumerate((("c++",), ("c++", "../../x"))):
        for sample in range(2):
            result = sample_result(problem, sample, ["success"] if problem <= sample else wrong)
            accumulator.add(with_changes(result, difficulty="EASY", tags=tags))
    values = metric_values(accumulator.finish(MetricOptions()))
    assert values["eval/humaneval/by_difficulty/EASY/accepted_at_1"] == values["eval/humaneval/accepted_at_1"] == 0.75
    assert values["eval/humaneval/by_tag/c__/accepted_at_1"] == 0.75
    assert values["eval/humaneval/by_tag/______x/accepted_at_1"] == 0.5
    assert values["eval/humaneval/by_seed/accepted_at_1/mean"] == 0.75
    assert values["eval/humaneval/by_seed/accepted_at_1/deviation"] == pytest.approx(0.3535533905932738)
    assert (values["eval/humaneval/tests/success"], values["eval/humaneval/tests/wrong_answer"]) == (4.0, 1.0)


def test_groups_whose_names_are_alike_or_long_stay_apart() -> None:
    names = name_groups(["c++", "c##", "plain", "x" * 240, "x" * 241, "\udcff"])
    assert names["plain"] == "plain"
    assert len(set(names.values())) == len(names)
    assert max(map(len, names.values())) <= MAX_GROUP + 9
    assert all(name.startswith("c__") for name in (names["c++"], names["c##"]))
