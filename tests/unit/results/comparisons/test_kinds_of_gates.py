"""What a gate may ask: a fall, an improvement, several datasets, an anchor, a plausible figure; several gates."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from builders.results.samples import sample_result
from builders.results.stored_runs import a_gate, samples_of, totals_of, verdicts_of, write_run

from evalrun_results.comparisons.gate import IMPLAUSIBLE, GateDecision, GateResult, decide_gate, overall
from evalrun_results.comparisons.run_gate import (
    NOTHING_SAID,
    Drawn,
    decide_or_explain,
    make_gate_decider,
    read_baseline_and_decide,
)
from evalrun_results.comparisons.sample_size import needs
from evalrun_results.samples import SampleResult

PASS, FAIL, INCONCLUSIVE = GateDecision


def ended(statuses: Sequence[str], dataset: str = "humaneval") -> list[SampleResult]:
    return [
        sample_result(place, 0, [each.replace("empty_output", "wrong_answer")], dataset=dataset, empty="empty" in each)
        for place, each in enumerate(statuses)
    ]


def gated(first: list[SampleResult] | None, second: list[SampleResult], **fields: object) -> GateResult:
    return decide_gate(a_gate(**fields), None if first is None else totals_of(first), totals_of(second))


@pytest.mark.parametrize(("before", "after", "decision"), [(0, 30, FAIL), (30, 0, PASS)])
def test_a_metric_that_should_fall_passes_when_it_falls(before: int, after: int, decision: GateDecision) -> None:
    first, second = (ended(["timeout"] * count + ["success"] * (100 - count)) for count in (before, after))
    found = gated(first, second, metric="timeout_rate", maxRegression="0.05")
    assert found.decision is decision
    assert found.difference == pytest.approx((after - before) / 100)
    assert found.low is not None
    assert found.high is not None
    assert found.low < (after - before) / 100 < found.high
    says = "the lower bound is above +0.05" if decision is FAIL else "the upper bound is not above +0.05"
    assert says in found.message


@pytest.mark.parametrize(("gained", "decision"), [(60, PASS), (0, FAIL), (10, INCONCLUSIVE)])
def test_an_improvement_can_be_asked_for(gained: int, decision: GateDecision) -> None:
    first, second = verdicts_of([False] * 100), verdicts_of([place < gained for place in range(100)])
    found = gated(first, second, minImprovement="0.1")
    assert (found.decision, found.min_improvement, found.max_regression) == (decision, 0.1, 0.0)


def test_datasets_are_compared_as_one_by_problem_or_by_weight() -> None:
    def run(large: int, small: int) -> list[SampleResult]:
        rows = verdicts_of([place < large for place in range(300)], dataset="large")
        return [*rows, *verdicts_of([place < small for place in range(60)], dataset="small")]

    first, second = run(150, 30), run(150, 60)  # small gains 50 points
    both = [{"name": "large"}, {"name": "small"}]
    by_problem = gated(first, second, dataset=None, datasets=both)
    assert by_problem.difference == pytest.approx(30 / 360)
    assert by_problem.dataset == "large + small"
    weighted = [{"name": "large", "weight": "1"}, {"name": "small", "weight": "3"}]
    by_weight = gated(first, second, dataset=None, datasets=weighted)
    assert by_weight.difference == pytest.approx(0.5 * 3 / 4)
    assert by_weight.problems == by_problem.problems == 360
    assert by_weight.low is not None
    assert by_weight.high is not None
    assert by_weight.low < 0.375 < by_weight.high
    assert by_weight.decision is PASS


@pytest.mark.parametrize(("anchor", "decision"), [("0.5", PASS), ("0.95", FAIL), ("0.8", INCONCLUSIVE)])
def test_a_fixed_anchor_needs_no_baseline(tmp_path: Path, anchor: str, decision: GateDecision) -> None:
    run = totals_of(verdicts_of([place % 5 != 0 for place in range(100)]))
    found = read_baseline_and_decide(a_gate(baseline=None, anchor=anchor), tmp_path, run)
    assert (found.decision, found.baseline) == (decision, f"the anchor {anchor}")
    assert found.baseline_value == pytest.approx(float(anchor))
    assert found.candidate_value == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("statuses", "causes"),
    [
        (["wrong_answer"] * 40, ["every reward is 0: prompts and tests are not of the same problems"]),
        (["empty_output"] * 40, ["every answer is empty: the chat template", "every reward is 0"]),
        (["compile_error"] * 40, ["every answer is a syntax error: the program is not found"]),
        (["timeout"] * 38 + ["success"] * 2, ["38 of 40 answers are a timeout: the limits are too short"]),
        (["success"] * 40, ["every answer is accepted: the tests accept anything"]),
    ],
    ids=["rewards 0", "empty", "no code", "timeouts", "all accepted"],
)
def test_a_figure_out_of_its_range_leaves_the_gate_open_and_names_likely_causes(
    statuses: list[str], causes: list[str]
) -> None:
    run = ended(statuses)
    found = gated(run, run, maxRegression="0.5", expectedRange={"low": "0.2", "high": "0.9"})
    assert (found.decision, found.reason) == (INCONCLUSIVE, IMPLAUSIBLE)
    for cause in causes:
        assert cause in found.message


def test_figure_within_the_expected_range_leaves_the_gate_unchanged() -> None:
    run = verdicts_of([place % 2 == 0 for place in range(60)])
    asked = {"maxRegression": "0.05"}
    assert gated(run, run, **asked, expectedRange={"low": "0.4", "high": "0.6"}) == gated(run, run, **asked)


def test_several_gates_share_the_error_rate_by_bonferroni(tmp_path: Path) -> None:
    write_run(tmp_path / "main", verdicts_of([True] * 164))
    run = totals_of(verdicts_of([place >= 2 for place in range(164)]))
    gate = a_gate(baseline="main", maxRegression="0.045")
    one = make_gate_decider([gate], tmp_path, NOTHING_SAID, {})(run)
    three = make_gate_decider([gate] * 3, tmp_path, NOTHING_SAID, {})(run)
    assert [each.decision for each in (*one, *three)] == [PASS, INCONCLUSIVE, INCONCLUSIVE, INCONCLUSIVE]
    assert three[0].correction == "Bonferroni over 3 gates"
    assert three[0].confidence == pytest.approx(1 - 0.05 / 3)
    assert one[0].correction is None


def test_the_worst_of_several_gates_is_the_runs_own() -> None:
    run = verdicts_of([True] * 60)
    passed, failed = gated(run, run, maxRegression="0.2"), gated(run, verdicts_of([False] * 60))
    together = overall([passed, failed, passed])
    assert (together["decision"], together["reason"]) == ("FAIL", "Regression")
    assert str(together["message"]).startswith("2 of 3 gates pass (Bonferroni's correction); humaneval accepted_at_1")
    assert overall([passed]) == passed.as_json()


SEQUENTIAL = {"sequential": True, "maxRegression": "0.02"}


def test_a_sequential_gate_decides_by_the_first_problems_in_drawing_order() -> None:
    first, second = verdicts_of([True] * 300), verdicts_of([False] * 300)
    found = decide_or_explain(a_gate(**SEQUENTIAL), totals_of(first), totals_of(second), drawn=Drawn(3))
    assert (found.decision, found.sequential, found.population, found.of_problems) == (FAIL, True, "benchmark", 300)
    assert found.decided_after == found.problems
    assert found.problems < 12
    assert f"over the first {found.problems} of 300 problems; below -0.02, whenever one looks" in found.message


def test_results_behind_a_problem_that_is_not_there_yet_do_not_count() -> None:
    first, second = verdicts_of([True] * 300), verdicts_of([False] * 300)
    names = [row.problem_id for row in first]
    gate, asked = a_gate(**SEQUENTIAL), Drawn(3, {"humaneval": names})
    whole = decide_or_explain(gate, totals_of(first), totals_of(second), drawn=asked)
    from evalrun_results.sequential.order import order_problems

    missing = order_problems(3, "humaneval", names)[2]
    part = [row for row in second if row.problem_id != missing]
    found = decide_or_explain(gate, totals_of(first), totals_of(part), drawn=asked)
    assert (found.decision, found.problems) == (INCONCLUSIVE, 2)
    assert whole.decision is FAIL


def test_a_sequential_gate_may_ask_for_a_fall_beside_an_anchor() -> None:
    run = ended(["timeout"] * 5 + ["success"] * 295)
    gate = a_gate(**SEQUENTIAL, baseline=None, anchor="0.2", metric="timeout_rate")
    found = decide_or_explain(gate, None, totals_of(run))
    assert found.decision is PASS
    assert found.baseline_value == pytest.approx(0.2)
    assert found.candidate_value is not None
    assert found.candidate_value <= 0.06
    assert found.low is not None
    assert found.high is not None
    assert found.low <= -0.15 < found.high <= 0.02


def test_answers_that_were_not_judged_keep_a_full_benchmark_open() -> None:
    first = verdicts_of([True] * 100)
    second = verdicts_of([None if place < 5 else True for place in range(100)])
    found = decide_or_explain(a_gate(**SEQUENTIAL), totals_of(first), totals_of(second))
    assert found.decision is INCONCLUSIVE
    assert "5 of them were not judged, and these decide: judge them again" in found.message


def test_undecided_gate_names_the_number_of_similar_problems_needed() -> None:
    first, second = verdicts_of([True] * 60), verdicts_of([place != 7 for place in range(60)])
    found = decide_or_explain(a_gate(**SEQUENTIAL, population="similar"), totals_of(first), totals_of(second))
    assert found.decision is INCONCLUSIVE
    assert "such problems would decide, or population: benchmark" in found.message


def test_a_baseline_without_some_problems_makes_a_smaller_benchmark() -> None:
    first, second = verdicts_of([True] * 50), verdicts_of([True] * 80)
    found = decide_or_explain(a_gate(**SEQUENTIAL), totals_of(first), totals_of(second))
    assert (found.decision, found.of_problems, found.left_out) == (PASS, 50, 30)


def test_a_pilot_of_several_samples_says_how_many_of_each_would_do() -> None:
    chance = samples_of([(4, 2)] * 100)  # every difference is chance
    said = needs(a_gate(maxRegression="0.05"), totals_of(chance), totals_of(chance))
    assert "samples: 0.333 of the variance of an answer is chance within its problem" in said
    assert "with these 100 problems about" in said
    single = verdicts_of([place % 2 == 0 for place in range(100)])
    said = needs(a_gate(maxRegression="0.02", sequential=True), totals_of(single), totals_of(single))
    assert "run the pilot with several samples (EVAL@k), or repeat it (noiseFloorRepeats)" in said
    assert "sequential, population benchmark: an equal run is decided after" in said


def test_pilot_with_repeats_reports_the_variance_by_chance() -> None:
    run = verdicts_of([True] * 100)
    repeats = [sample_result(place, 0, ["wrong_answer" if place < 10 else "success"], repeat=1) for place in range(100)]
    said = needs(a_gate(maxRegression="0.05"), totals_of(run), totals_of([*run, *repeats]))
    assert "samples: 0.050 of the variance" in said
