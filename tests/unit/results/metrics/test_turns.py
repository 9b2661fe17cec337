"""The figures of EVAL@turns against tables worked out by hand."""

import pytest
from builders.results.samples import compute_metrics, sample_result, with_changes

from evalrun_results.comparisons.differences import compute_differences
from evalrun_results.comparisons.pairing import pair
from evalrun_results.metrics.accumulator import DatasetMetrics, MetricOptions, MetricsAccumulator
from evalrun_results.metrics.problem_totals import DatasetTotals
from evalrun_results.samples import SampleResult

PASS, FAIL, HALF, LOST = ["success"], ["wrong_answer"], ["success", "wrong_answer"], None
"""Tests of an answer: all pass, none does, half of them do; not judged at all."""

Answers = list[list[str] | None]


def answers(problem: int, turns: Answers, sample: int = 0, tokens: int = 10) -> list[SampleResult]:
    """Return a sample's answers, one a turn; the answer of turn t has t + 1 times as many tokens."""
    return [
        with_changes(sample_result(problem, sample, statuses, output_tokens=tokens * (turn + 1)), turn=turn)
        for turn, statuses in enumerate(turns)
    ]


def of_problems(*problems: Answers) -> list[SampleResult]:
    return [result for number, turns in enumerate(problems) for result in answers(number, turns)]


def measured(results: list[SampleResult], turns: int = 3) -> DatasetMetrics:
    return compute_metrics(results, MetricOptions(turns=turns))["humaneval"]


def value(metrics: DatasetMetrics, name: str) -> float | None:
    return metrics.figures[name].value


RUN = of_problems(
    [PASS],  # accepted at once
    [FAIL, PASS],  # recovered in turn 2
    [FAIL, HALF, PASS],  # recovered in turn 3
    [HALF, FAIL, FAIL],  # never
    [FAIL],  # no room for another turn: it keeps its verdict
    [FAIL, LOST],  # nobody knows about turn 2 and 3
    [LOST],  # nobody knows anything
)


def test_metrics_by_turn_have_the_expected_values() -> None:
    metrics = measured(RUN)
    expected = {
        "accepted_at_1": 1 / 6,
        "accepted_by_turn_1": 1 / 6,
        "accepted_by_turn_2": 2 / 5,
        "accepted_by_turn_3": 3 / 5,
        "recovery_rate_by_turn_2": 1 / 4,  # of problems 1 to 4; of 5 nobody knows
        "recovery_rate_by_turn_3": 2 / 4,
        "recovery_rate": 2 / 4,
        "turns_to_accept": (1 + 2 + 3) / 3,
        "zero_reward_rate": 4 / 6,
        "zero_reward_rate_by_turn_1": 4 / 6,
        "zero_reward_rate_by_turn_2": 2 / 5,  # 3 and 4
        "zero_reward_rate_by_turn_3": 2 / 5,
        "avg_gen_tokens_turn_1": 10.0,
        "avg_gen_tokens_turn_2": 20.0,
        "avg_gen_tokens_turn_3": 30.0,
        "avg_total_gen_tokens": (10 + 30 + 60 + 60 + 10 + 30) / 6,  # over problems that were judged
        "tokens_per_solved": (10 + 30 + 60 + 60 + 10 + 30 + 10) / 3,
    }
    assert {name: value(metrics, name) for name in expected} == pytest.approx(expected)
    left_out = metrics.counts["left_out_problems"]
    assert isinstance(left_out, dict)
    assert (left_out["recovery_rate"], metrics.counts["solved_problems"]) == (2, 3)
    assert (metrics.counts["not_judged"], metrics.counts["not_judged_later_turns"]) == (1, 1)
    assert not metrics.complete


def test_one_answer_of_a_later_turn_without_a_verdict_degrades_the_run() -> None:
    assert measured(of_problems([FAIL, FAIL], [PASS])).complete
    assert not measured(of_problems([FAIL, LOST], [PASS])).complete


def test_with_several_samples_each_problem_weighs_the_same() -> None:
    results = [*answers(0, [FAIL, PASS]), *answers(0, [FAIL, FAIL], sample=1), *answers(0, [PASS], sample=2)]
    results += [*answers(1, [FAIL, PASS]), *answers(1, [PASS], sample=1), *answers(1, [PASS], sample=2)]
    metrics = measured(results, turns=2)
    assert value(metrics, "recovery_rate") == pytest.approx((1 / 2 + 1 / 1) / 2)
    assert value(metrics, "accepted_by_turn_2") == pytest.approx((2 / 3 + 1) / 2)
    assert value(metrics, "turns_to_accept") == pytest.approx((2 + 1 + 2 + 1 + 1) / 5)


def test_recovery_rate_without_failed_answers_is_none() -> None:
    metrics = measured(of_problems([PASS], [PASS]))
    assert (value(metrics, "recovery_rate"), metrics.figures["recovery_rate"].n) == (None, 0)


def test_answer_accepted_at_an_early_turn_counts_despite_later_failed_turns() -> None:
    """Judged again, a first answer may pass of which later turns exist."""
    metrics = measured(of_problems([PASS, FAIL], [FAIL, LOST, PASS]))
    assert value(metrics, "accepted_by_turn_3") == 1.0
    assert value(metrics, "zero_reward_rate_by_turn_3") == 0.0
    assert value(metrics, "turns_to_accept") == 2.0


def test_figures_by_turn_are_those_of_the_protocol_alone() -> None:
    names = measured(of_problems([PASS], [FAIL]), turns=1).figures
    assert not [name for name in names if "turn" in name or "recovery" in name]


def totals(results: list[SampleResult]) -> DatasetTotals:
    accumulator = MetricsAccumulator()
    for result in results:
        accumulator.add(result)
    return accumulator.datasets["humaneval"]


def test_two_runs_are_compared_over_the_problems_that_failed_at_first_in_both() -> None:
    ours = of_problems([FAIL, FAIL], [FAIL, PASS], [PASS], [FAIL, FAIL])
    theirs = of_problems([FAIL, PASS], [FAIL, PASS], [FAIL, PASS], [PASS])
    paired = pair(totals(ours), totals(theirs))
    found = compute_differences(paired, ["recovery_rate", "recovery_rate_by_turn_2", "accepted_by_turn_2"])
    both = found["recovery_rate"]
    assert (both.problems, both.left_out, both.baseline, both.candidate) == (2, 2, 0.5, 1.0)
    assert found["recovery_rate_by_turn_2"].difference == both.difference
    assert (found["accepted_by_turn_2"].baseline, found["accepted_by_turn_2"].candidate) == (0.5, 1.0)
