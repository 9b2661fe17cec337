import random

import numpy as np
import pytest
from builders.results.samples import compute_metrics, sample_result
from builders.results.stored_runs import samples_of, totals_of, verdicts_of
from scipy.stats import bootstrap
from statsmodels.stats.power import TTestPower

from evalrun_registry.metric import Measured, Table
from evalrun_registry.metrics import metrics_in
from evalrun_results.comparisons.differences import compute_differences
from evalrun_results.comparisons.mcnemar import mcnemar_exact
from evalrun_results.comparisons.pairing import PairedDataset, pair
from evalrun_results.comparisons.power import MIN_SIGNIFICANT_FLIPS, power_note
from evalrun_results.metrics.accumulator import MetricOptions
from evalrun_results.samples import SampleResult

COMPARED = [
    metric.name
    for metric, _ in metrics_in(Table.COMPARISON)
    if not metric.number and metric.measured is not Measured.TURNS
]


def paired(first: list[SampleResult], second: list[SampleResult]) -> PairedDataset:
    return pair(totals_of(first)["humaneval"], totals_of(second)["humaneval"])


def some_run(seed: int, problems: int = 150) -> list[SampleResult]:
    rng = random.Random(seed)
    return [
        sample_result(
            problem,
            sample,
            rng.choices(["success", "wrong_answer", "timeout"], [6, 2, 1], k=4),
            output_tokens=rng.randint(10, 900),
            cpu_time=rng.random(),
        )
        for problem in range(problems)
        for sample in range(2)
    ]


def test_only_problems_judged_in_both_are_paired_and_the_others_counted() -> None:
    first = verdicts_of([True, True, None, False, None])
    second = [*verdicts_of([True, None, None, False]), sample_result("Q/1"), sample_result("Q/2")]
    both = paired(first, second)
    assert both.problem_ids == ("P/00000", "P/00003")
    assert (both.only_in_baseline, both.only_in_candidate, both.not_judged) == (1, 2, 2)


def test_differences_are_those_of_the_runs_own_figures() -> None:
    first, second = some_run(1), some_run(2)
    figures = [compute_metrics(run, MetricOptions())["humaneval"].figures for run in (first, second)]
    found = compute_differences(paired(first, second), COMPARED)
    assert set(found) == set(COMPARED) - {"score_mean"}  # no grader scored these
    for name in set(found) - {"solved_within_budget"}:
        ours, theirs = (each[name].value for each in figures)
        assert (found[name].baseline, found[name].candidate) == pytest.approx((ours, theirs)), name
        assert ours is not None
        assert theirs is not None
        assert found[name].difference == pytest.approx(theirs - ours), name


@pytest.mark.parametrize("confidence", [0.95, 0.6])
def test_intervals_of_amounts_agree_with_scipys_paired_bootstrap(confidence: float) -> None:
    metric = "avg_total_gen_tokens"
    first, second = some_run(3), some_run(4)
    both = paired(first, second)
    found = compute_differences(both, [metric], confidence=confidence)[metric]
    ours, theirs = both.baseline.output_tokens, both.candidate.output_tokens
    other = bootstrap(
        (ours, theirs),
        lambda a, b, axis: (b - a).mean(axis=axis),
        paired=True,
        vectorized=True,
        n_resamples=20_000,
        method="percentile",
        confidence_level=confidence,
        rng=np.random.default_rng(7),
    )
    spread = (theirs - ours).std() / np.sqrt(len(ours))  # two bootstraps agree to a small part of the standard error
    assert found.low == pytest.approx(other.confidence_interval.low, abs=0.08 * spread)
    assert found.high == pytest.approx(other.confidence_interval.high, abs=0.08 * spread)


def test_pairing_narrows_the_interval_of_runs_that_agree() -> None:
    first = verdicts_of([place % 2 == 0 for place in range(200)])
    second = verdicts_of([place % 2 == 0 or place == 1 for place in range(200)])
    found = compute_differences(paired(first, second), ["accepted_at_1"])["accepted_at_1"]
    assert found.difference == pytest.approx(0.005)
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low < 0.045  # two independent runs of 200 could not show less than 0.19


def test_interval_does_not_depend_on_order_or_other_metrics() -> None:
    first, second = some_run(5), some_run(6)
    alone = compute_differences(paired(first, second), ["pass_ratio_mean"])["pass_ratio_mean"]
    random.Random(1).shuffle(first)
    again = compute_differences(paired(first, second), COMPARED)["pass_ratio_mean"]
    assert (again.low, again.high, again.difference) == (alone.low, alone.high, alone.difference)


def test_any_k_is_computed_and_problems_with_fewer_samples_are_left_out() -> None:
    first, second = samples_of([(5, 0), (5, 2), (2, 1)]), samples_of([(5, 1), (5, 5), (5, 5)])
    found = compute_differences(paired(first, second), ["pass_at_1", "pass_at_3", "pass_at_9"])
    assert found["pass_at_1"].difference == pytest.approx(np.mean([0.2, 0.6, 0.5]))
    assert (found["pass_at_3"].problems, found["pass_at_3"].left_out) == (2, 1)
    assert found["pass_at_3"].difference == pytest.approx(np.mean([3 / 5, 1 - 9 / 10]))
    assert "pass_at_9" not in found


def test_a_metric_that_is_known_nowhere_is_left_out() -> None:
    rows = [sample_result(0, output_tokens=None, gen_seconds=None)]
    assert not {"avg_total_gen_tokens", "avg_gen_time"} & set(compute_differences(paired(rows, rows), COMPARED))


def test_a_pass_ratio_that_is_null_in_one_run_leaves_the_problem_out_of_that_metric_alone() -> None:
    first = verdicts_of([True, True])
    second = [sample_result(0, 0, ["api_error", "wrong_answer"]), sample_result(1, 0, ["success"])]
    found = compute_differences(paired(first, second), ["accepted_at_1", "pass_ratio_mean"])
    assert (found["accepted_at_1"].problems, found["accepted_at_1"].difference) == (2, -0.5)
    assert (found["pass_ratio_mean"].problems, found["pass_ratio_mean"].left_out) == (1, 1)


def test_runs_without_common_problems_have_no_differences() -> None:
    assert compute_differences(paired(verdicts_of([True]), [sample_result("other")]), COMPARED) == {}


def test_difference_over_one_problem_has_a_very_wide_interval() -> None:
    found = compute_differences(paired(verdicts_of([True]), verdicts_of([False])), ["accepted_at_1"])["accepted_at_1"]
    assert (found.difference, found.low) == (-1.0, -1.0)
    assert found.high == pytest.approx(0.95, abs=0.001)
    assert found.power.smallest_difference is None


def test_the_power_note_is_that_of_a_paired_test() -> None:
    changes = np.random.default_rng(0).choice([-1.0, 0.0, 1.0], p=[0.1, 0.75, 0.15], size=400)
    note = power_note(changes)
    assert note.smallest_difference is not None
    size = note.smallest_difference / changes.std(ddof=1)
    assert TTestPower().power(size, nobs=400, alpha=0.05) == pytest.approx(0.8, abs=0.01)
    assert note.problems_needed is not None
    needed = TTestPower().solve_power(abs(changes.mean()) / changes.std(ddof=1), power=0.8, alpha=0.05)
    assert note.problems_needed == pytest.approx(needed, rel=0.02)


@pytest.mark.parametrize("changes", [[], [0.0], [0.0] * 50, [1.0] * 50, [0.0] * 49 + [1.0]])
def test_power_note_of_too_few_differing_problems_is_empty(changes: list[float]) -> None:
    assert power_note(np.array(changes)).smallest_difference is None


def test_power_note_needs_at_least_two_differing_problems() -> None:
    assert power_note(np.array([1.0, 0.0, 0.0])).smallest_difference is None
    assert power_note(np.array([1.0, 0.0, -1.0])).smallest_difference is not None


def test_fewer_flips_than_the_minimum_never_reach_significance() -> None:
    assert mcnemar_exact(MIN_SIGNIFICANT_FLIPS - 1, 0) > 0.05 >= mcnemar_exact(MIN_SIGNIFICANT_FLIPS, 0)
