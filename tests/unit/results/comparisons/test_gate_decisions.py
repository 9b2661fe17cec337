import random
from pathlib import Path

import pytest
from builders.results.samples import sample_result, with_changes
from builders.results.stored_runs import a_gate, samples_of, totals_of, verdicts_of, write_run

from evalrun_results.comparisons.gate import GateDecision, GateResult, decide, decide_gate, overall
from evalrun_results.comparisons.gate_values import UnusableGateError
from evalrun_results.comparisons.power import gate_outlook
from evalrun_results.comparisons.run_gate import (
    NOTHING_SAID,
    baseline_place,
    make_gate_decider,
    read_baseline_and_decide,
)
from evalrun_results.samples import SampleResult
from evalrun_runtime.exits import BadInputError

pytestmark = pytest.mark.slow

PASS, FAIL, INCONCLUSIVE = GateDecision


@pytest.mark.parametrize(
    ("low", "high", "max_regression", "decision"),
    [
        (0.0, 0.0, 0.0, PASS),
        (-0.02, 0.05, 0.02, PASS),  # the bound itself is allowed
        (-0.020001, 0.05, 0.02, INCONCLUSIVE),
        (-0.05, -0.02, 0.02, INCONCLUSIVE),  # the upper bound is not below
        (-0.05, -0.020001, 0.02, FAIL),
        (-0.05, -0.001, 0.0, FAIL),
        (-0.05, 0.0, 0.0, INCONCLUSIVE),
        (0.01, 0.2, 0.0, PASS),
        (-1.0, 1.0, 1.0, PASS),
        (-(0.1 + 0.2), 0.0, 0.3, PASS),  # 0.30000000000000004 is 0.3 on paper
    ],
)
def test_decide_compares_the_interval_with_the_margin(
    low: float, high: float, max_regression: float, decision: GateDecision
) -> None:
    assert decide(low, high, max_regression, problems=30) is decision
    assert decide(low, high, max_regression, problems=29) is INCONCLUSIVE


def test_difference_without_an_interval_is_inconclusive() -> None:
    assert decide(None, None, 1.0, problems=100) is INCONCLUSIVE


def gated(first: list[SampleResult], second: list[SampleResult], **fields: str) -> GateResult:
    return decide_gate(a_gate(**fields), totals_of(first), totals_of(second))


def test_the_same_run_passes_with_an_allowance_that_its_problems_can_show() -> None:
    run = verdicts_of([place % 3 != 0 for place in range(60)])
    found = gated(run, run, maxRegression="0.06")
    assert (found.decision, found.reason, found.difference) == (PASS, "NoRegression", 0.0)
    assert (found.low, found.high) == pytest.approx((-0.0596, 0.0596), abs=1e-4)
    assert (found.problems, found.mcnemar_p) == (60, 1.0)


def test_a_run_that_agrees_on_every_problem_may_still_be_worse_on_others() -> None:
    """With no allowance only a better run can pass; what was not seen in 60 problems may still happen in one of 50."""
    run = verdicts_of([place % 3 != 0 for place in range(60)])
    found = gated(run, run)
    assert found.decision is INCONCLUSIVE
    assert "to decide it needs a maxRegression of about 0.090" in found.message
    better = verdicts_of([True] * 60)
    assert gated(run, better).decision is PASS


def test_gate_over_one_problem_is_inconclusive() -> None:
    for second in (True, False):
        found = gated(verdicts_of([True]), verdicts_of([second]), maxRegression="0.5")
        assert (found.decision, found.reason, found.problems) == (INCONCLUSIVE, "Inconclusive", 1)
        assert "over 1 problem; a gate needs at least 30 problems to decide" in found.message


def test_gate_with_the_advised_margin_passes_an_equal_run_4_times_in_5() -> None:
    """What `validate` promises: equal runs over 164 problems, of which 5 % flip, with the margin that it names."""
    rng = random.Random(5)
    passed = 0
    for _ in range(60):
        pairs = rng.choices([(True, True), (True, False), (False, True)], [0.95, 0.025, 0.025], k=164)
        first, second = ([pair[side] for pair in pairs] for side in (0, 1))
        passed += gated(verdicts_of(first), verdicts_of(second), maxRegression="0.06").decision is PASS
    assert passed >= 0.7 * 60
    assert gate_outlook(a_gate(maxRegression="0.06"), 164) is None
    assert gate_outlook(a_gate(maxRegression="0.05"), 164) is not None


def test_an_inconclusive_gate_says_how_many_problems_or_which_margin_would_decide() -> None:
    first = verdicts_of([True] * 164)
    found = gated(first, verdicts_of([place >= 4 for place in range(164)]), maxRegression="0.02")
    assert found.decision is INCONCLUSIVE
    assert "the interval holds -0.02: to decide it needs about 846 problems that differ this much, or" in found.message


def test_a_clear_loss_fails_and_says_why() -> None:
    found = gated(verdicts_of([True] * 100), verdicts_of([place % 2 == 0 for place in range(100)]), maxRegression="0.1")
    assert (found.decision, found.reason, found.difference) == (FAIL, "Regression", -0.5)
    assert "humaneval accepted_at_1: -0.5000 [" in found.message
    assert "the upper bound is below -0.1" in found.message


def test_small_loss_is_inconclusive_until_the_margin_allows_more() -> None:
    first = verdicts_of([True] * 100)
    second = verdicts_of([place >= 3 for place in range(100)])
    assert gated(first, second, maxRegression="0.02").decision is INCONCLUSIVE
    assert gated(first, second, maxRegression="0.1").decision is PASS
    assert gated(first, second).decision is INCONCLUSIVE


def test_confidence_widens_the_interval() -> None:
    first, second = verdicts_of([True] * 100), verdicts_of([place >= 8 for place in range(100)])
    narrow, wide = gated(first, second, confidence="0.5"), gated(first, second, confidence="0.999")
    assert narrow.low is not None
    assert wide.low is not None
    assert wide.low < narrow.low - 0.03


def test_mcnemars_test_is_shown_at_one_sample_only() -> None:
    many = samples_of([(3, 1), (3, 2)])
    assert gated(many, many, metric="pass_at_2").mcnemar_p is None
    assert gated(many, many).mcnemar_p is None
    one = verdicts_of([True, False])
    assert gated(one, one, metric="pass_ratio_mean").mcnemar_p is None
    assert gated(one, one).mcnemar_p == 1.0


def test_gate_on_pass_at_k_outside_of_the_protocols_ks_is_computed() -> None:
    first, second = samples_of([(7, 3)] * 30), samples_of([(7, 0)] * 30)
    found = gated(first, second, metric="pass_at_4")
    assert found.difference == pytest.approx(-(1 - 1 / 35))
    assert found.decision is FAIL


def test_nothing_to_compare_is_inconclusive_and_named() -> None:
    few = samples_of([(2, 1)] * 5)
    found = gated(few, few, metric="pass_at_5")
    assert (found.decision, found.difference, found.left_out) == (INCONCLUSIVE, None, 5)
    assert "no problem with 5 judged samples in both runs" in found.message
    nobody = gated(verdicts_of([None, None]), verdicts_of([True, True]))
    assert (nobody.decision, nobody.reason, nobody.left_out) == (INCONCLUSIVE, "Inconclusive", 2)


def test_problems_that_were_not_judged_in_both_are_left_out_and_counted() -> None:
    found = gated(verdicts_of([True, True, None, True]), verdicts_of([True, None, True]))
    assert (found.decision, found.problems, found.left_out) == (INCONCLUSIVE, 1, 3)


def test_problems_with_too_few_judged_samples_are_left_out_beside_those_of_one_run_only() -> None:
    run = [*samples_of([(3, 1), (3, 2), (1, 1)]), sample_result("only here", 0)]
    found = gated(samples_of([(3, 1), (3, 2), (3, 3)]), run, metric="pass_at_2")
    assert (found.problems, found.left_out) == (2, 2)


@pytest.mark.parametrize("forged", ["baseline", "candidate"])
def test_results_that_can_be_forged_feed_no_gate(forged: str) -> None:
    good, bad = verdicts_of([True] * 3), verdicts_of([True] * 3)
    for result in bad:
        assert result.verdict is not None
        result.verdict.forgeable = True
    runs = (bad, good) if forged == "baseline" else (good, bad)
    with pytest.raises(UnusableGateError, match=f"3 results of humaneval in the {forged} can be forged"):
        gated(*runs)
    gate = a_gate().model_copy(update={"allow_forgeable": True})
    assert decide_gate(gate, totals_of(runs[0]), totals_of(runs[1])).difference == 0.0


def test_dataset_that_a_run_lacks_is_named_with_the_datasets_that_it_has() -> None:
    other = verdicts_of([True], dataset="mbpp_reg")
    with pytest.raises(UnusableGateError, match="the baseline has no results of dataset humaneval: it has mbpp_reg"):
        gated(other, verdicts_of([True]))
    with pytest.raises(UnusableGateError, match="the candidate has no results of dataset humaneval: it has no results"):
        gated(verdicts_of([True]), [])


def test_noise_floor_repeats_and_later_turns_do_not_count() -> None:
    run = verdicts_of([True] * 10)
    repeats = [sample_result(place, 0, ["wrong_answer"], repeat=1) for place in range(10)]
    turns = [with_changes(sample_result(place, 0, ["wrong_answer"]), turn=1) for place in range(10)]
    assert gated(run, [*run, *repeats, *turns]).difference == 0.0


def test_a_run_ends_with_its_decision_in_summary_json(tmp_path: Path) -> None:
    write_run(tmp_path / "main", verdicts_of([True] * 40))
    decide_gates = make_gate_decider([a_gate(baseline="main")], tmp_path, NOTHING_SAID, {})
    decision = overall(decide_gates(totals_of(verdicts_of([False] * 40))))
    assert decision["decision"] == "FAIL"
    assert (decision["difference"], decision["low"]) == (-1.0, -1.0)
    assert decision["high"] == pytest.approx(-0.824, abs=0.001)  # 40 lost of 40: a few of the next 40 may be won
    assert set(decision) >= {"reason", "message", "dataset", "metric", "baseline", "max_regression", "confidence"}


@pytest.mark.parametrize(
    ("baseline", "says"),
    [
        ("nightly", "names of EvalRuns are resolved only in a cluster"),
        ("./gone", "no finished run there: summary.json is missing"),
        ("pvc://claim/dir", "a volume can be read only in its cluster"),
        ("nope://bucket/run", "Protocol not known: nope"),
        ("memory://nowhere/run", "no finished run there"),
    ],
)
def test_a_baseline_that_cannot_be_read_leaves_the_gate_open_and_the_run_whole(
    tmp_path: Path, baseline: str, says: str
) -> None:
    found = read_baseline_and_decide(a_gate(baseline=baseline), tmp_path, totals_of(verdicts_of([True])))
    assert (found.decision, found.reason) == (INCONCLUSIVE, "BaselineNotFound")
    assert says in found.message


def test_a_baseline_without_the_dataset_leaves_the_gate_open(tmp_path: Path) -> None:
    write_run(tmp_path / "main", verdicts_of([True], dataset="mbpp_reg"))
    found = read_baseline_and_decide(a_gate(baseline="main"), tmp_path, totals_of(verdicts_of([True])))
    assert (found.decision, found.reason) == (INCONCLUSIVE, "Inconclusive")
    assert "the baseline has no results of dataset humaneval" in found.message


def test_a_directory_that_is_called_like_a_run_is_found(tmp_path: Path) -> None:
    (tmp_path / "nightly").mkdir()
    assert baseline_place("nightly", tmp_path) == str(tmp_path / "nightly")
    assert baseline_place("s3://bucket/run", tmp_path) == "s3://bucket/run"
    with pytest.raises(BadInputError, match="baseline nightly-2"):
        baseline_place("nightly-2", tmp_path)
