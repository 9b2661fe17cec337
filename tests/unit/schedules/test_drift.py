"""A loss of half a margin each night: every comparison with the night before passes, the fixed one fails."""

from itertools import pairwise

from builders.results.stored_runs import a_gate, totals_of, verdicts_of

from evalrun_results.comparisons.gate import GateDecision, decide_gate

PROBLEMS = 800
MARGIN = "0.04"
LOSS = 16
"""Problems that each night no longer solves: half of the margin."""


def test_a_slow_drift_passes_against_the_last_good_and_is_caught_by_the_anchor() -> None:
    nights = [totals_of(verdicts_of([place < 600 - LOSS * night for place in range(PROBLEMS)])) for night in range(7)]
    gate = a_gate(maxRegression=MARGIN)
    last_good = [decide_gate(gate, before, after, family=2).decision for before, after in pairwise(nights)]
    anchor = [decide_gate(gate, nights[0], night, family=2).decision for night in nights[1:]]
    assert set(last_good) == {GateDecision.PASS}
    assert anchor[0] is GateDecision.PASS
    assert anchor[-1] is GateDecision.FAIL
