"""Answers that were not judged count in the least favourable way for either decision, on both sides."""

import random
from collections.abc import Callable
from functools import partial

import pytest
from builders.results.samples import sample_result, with_changes
from builders.results.stored_runs import a_gate, facts_of, totals_of, verdicts_of

from evalrun_api.v1alpha1 import Gate
from evalrun_results.comparisons.comparison import compare_runs
from evalrun_results.comparisons.gate import GateDecision, GateResult
from evalrun_results.comparisons.run_gate import Drawn, decide_or_explain
from evalrun_results.comparisons.several import compare_several, make_configurations
from evalrun_results.samples import SampleResult

pytestmark = pytest.mark.slow

PASS, FAIL, INCONCLUSIVE = GateDecision
KINDS = [
    {},
    {"metric": "wrong_answer_rate"},
    {"metric": "pass_at_2"},
    {"metric": "pass_ratio_mean"},
    {"sequential": True},
    {"sequential": True, "population": "similar"},
]


def run_of(accepted: list[list[bool]], missing: Callable[[], bool]) -> list[SampleResult]:
    return [
        sample_result(place, sample, None if missing() else ["success" if passed else "wrong_answer"])
        for place, samples in enumerate(accepted)
        for sample, passed in enumerate(samples)
    ]


def is_missing(rng: random.Random, share: float) -> bool:
    return rng.random() < share


def decided(gate: Gate, first: list[SampleResult], second: list[SampleResult]) -> GateResult:
    return decide_or_explain(gate, totals_of(first), totals_of(second), drawn=Drawn(5))


@pytest.mark.parametrize("fields", KINDS, ids=str)
@pytest.mark.parametrize("side", ["baseline", "candidate", "both"])
def test_gate_with_missing_answers_decides_like_all_answers_or_not_at_all(fields: dict[str, object], side: str) -> None:
    rng = random.Random(f"{fields}{side}")
    gate = a_gate(**{"maxRegression": "0.1", **fields})
    for _ in range(25):
        solved, changed = rng.random(), 0.25 * rng.random()
        first = [[rng.random() < solved for _ in range(2)] for _ in range(rng.randint(30, 120))]
        second = [[passed != (rng.random() < changed) for passed in samples] for samples in first]
        whole = decided(gate, run_of(first, lambda: False), run_of(second, lambda: False))
        missing = partial(is_missing, rng, rng.choice([0.02, 0.1, 0.5]))
        holes = [missing if side in {each, "both"} else lambda: False for each in ("baseline", "candidate")]
        found = decided(gate, run_of(first, holes[0]), run_of(second, holes[1]))
        if whole.decision is INCONCLUSIVE or gate.population == "benchmark" or not gate.sequential:
            assert found.decision in {whole.decision, INCONCLUSIVE}
        assert (found.decision_of_judged is None) == (found.not_judged == 0)


@pytest.mark.parametrize("fields", KINDS, ids=str)
def test_gate_that_all_answers_do_not_pass_is_not_passed_by_any_subset_of_them(fields: dict[str, object]) -> None:
    """Whoever hands answers in knows which fail, so the worst subset is that of the accepted ones alone."""
    rng = random.Random(str(fields))
    gate = a_gate(**{"maxRegression": "0.05", **fields})
    tried = 0
    for _ in range(4):
        solved, lost = rng.random(), rng.uniform(0.02, 0.3)
        first = [[rng.random() < solved for _ in range(2)] for _ in range(rng.randint(20, 60))]
        second = [[passed and rng.random() > lost for passed in samples] for samples in first]
        baseline, everything = run_of(first, lambda: False), run_of(second, lambda: False)
        if decided(gate, baseline, everything).decision is PASS:
            continue
        size = rng.randint(1, len(everything))
        subsets = [
            [
                each
                for each in everything
                if each.accepted != (gate.metric == "wrong_answer_rate" and rng.random() < 0.5)
            ],
            rng.sample(everything, size),
            everything[:size],
            [each for each in everything if each.sample == 0],
        ]
        for kept in subsets:
            tried += 1
            kept_keys = {(each.problem_id, each.sample) for each in kept}
            rest = [
                each if (each.problem_id, each.sample) in kept_keys else with_changes(each, verdict=None)
                for each in everything
            ]
            assert decided(gate, baseline, rest).decision is not PASS
    assert tried >= 4


def test_fixed_gate_does_not_pass_if_the_lost_problems_were_not_judged() -> None:
    """The complete cases alone would pass: the 10 points that are worse are those that have no verdict."""
    first = verdicts_of([True] * 300)
    found = decided(a_gate(maxRegression="0.02"), first, verdicts_of([None] * 30 + [True] * 270))
    assert (found.decision, found.decision_of_judged, found.not_judged) == (INCONCLUSIVE, PASS, 30)
    assert "answers not judged, counted in the least favourable way: 30 in the candidate; without them: PASS" in (
        found.message
    )
    assert found.low is not None
    assert found.low < -0.1


@pytest.mark.parametrize("population", ["benchmark", "similar"])
def test_sequential_gate_keeps_baseline_problems_that_were_not_judged(population: str) -> None:
    """Dropping them failed equal candidates: the baseline's losses were among those that have no verdict."""
    gate = a_gate(maxRegression="0.02", sequential=True, population=population)
    first = verdicts_of([None] * 60 + [True] * 140)
    found = decided(gate, first, verdicts_of([True] * 60 + [place % 10 != 0 for place in range(140)]))
    assert found.of_problems == 200
    assert found.decision is INCONCLUSIVE
    assert found.decision_of_judged is FAIL
    assert "60 in the baseline; without them: FAIL" in found.message


def test_missing_turns_of_a_recovery_gate_widen_the_interval() -> None:
    first = verdicts_of([False] * 100)
    turns = [with_changes(sample_result(place, 0, ["success"]), turn=1) for place in range(100)]
    holes = [with_changes(sample_result(p, 0, ["success"] if p >= 10 else None), turn=1) for p in range(100)]
    gate = a_gate(metric="recovery_rate", maxRegression="0.05")
    whole, found = decided(gate, [*first, *turns], [*first, *turns]), decided(gate, [*first, *turns], [*first, *holes])
    assert (whole.decision, found.decision, found.decision_of_judged) == (PASS, INCONCLUSIVE, PASS)
    assert found.not_judged == 10


def test_comparison_shows_the_least_favourable_interval_and_names_the_one_without_missing_answers() -> None:
    found = compare_runs(
        facts_of(verdicts_of([False] * 100)), facts_of(verdicts_of([True] * 40 + [None] * 20 + [False] * 40))
    )
    difference = found.datasets[0].differences["accepted_at_1"]
    assert (difference.problems, difference.difference) == (80, 0.5)
    assert difference.low == pytest.approx(0.289, abs=0.01)
    assert difference.high == pytest.approx(0.697, abs=0.01)
    assert difference.missing is not None
    assert (difference.missing.baseline, difference.missing.candidate) == (0, 20)
    assert any("0 answers of A and 20 of B were not judged" in line for line in found.warnings)


def test_several_runs_p_value_is_that_of_the_least_favourable_answers() -> None:
    def p_of(missing: int) -> float | None:
        runs = [verdicts_of([False] * 60), verdicts_of([True] * 10 + [None] * missing + [False] * (50 - missing))]
        found = compare_several(make_configurations([facts_of(run) for run in runs], pool_seeds=False), all_pairs=False)
        return found.datasets[0].contrasts[0].p

    assert p_of(0) == pytest.approx(2 / 2**10)
    assert p_of(3) == pytest.approx(2 / 2**10)
