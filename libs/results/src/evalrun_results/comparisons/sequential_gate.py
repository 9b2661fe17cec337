"""Decides a sequential gate from the problems drawn so far, in drawing order, as early as possible. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from evalrun_api.v1alpha1 import Gate
from evalrun_results.comparisons.gate import (
    REASONS,
    GateDecision,
    GateResult,
    bound_text,
    check_expected_range,
    correct_confidence,
    describe_missing_completions,
    explain_missing_problems,
    gains,
    make_undecided_result,
    name_correction,
)
from evalrun_results.comparisons.gate_values import SequentialGains, sequential_values, usable
from evalrun_results.metrics.problem_totals import DatasetTotals
from evalrun_results.sequential.confidence_sequence import STAKES
from evalrun_results.sequential.mean_decision import Finding, MeanDecision, Values, decide_mean

DECISIONS: Final[Mapping[MeanDecision, GateDecision]] = {
    MeanDecision.AT_LEAST: GateDecision.PASS,
    MeanDecision.BELOW: GateDecision.FAIL,
    MeanDecision.OPEN: GateDecision.INCONCLUSIVE,
}


def decide_sequentially(
    gate: Gate,
    baseline: Mapping[str, DatasetTotals] | None,
    candidate: Mapping[str, DatasetTotals],
    problem_ids: Sequence[str],
    *,
    seed: int,
    family: int = 1,
) -> GateResult:
    """Decide a gate by the problems drawn so far. The first decision is the same, whoever calls it and however often.

    Args:
        gate: with `sequential`.
        baseline: the totals of the earlier run, by dataset; None with an anchor.
        candidate: of the run, as far as it is; every problem in it has all its results.
        problem_ids: every problem of the run's dataset, drawn or not.
        seed: of the run: the order of its problems follows from it.
        family: how many gates the run has.

    Raises:
        UnusableGateError: a run lacks the dataset, or results that can be forged would feed the gate.
    """
    name, confidence = gate.dataset_names[0], correct_confidence(gate, family)
    earlier = None if baseline is None else usable(baseline, name, "baseline", gate)
    totals = usable(candidate, name, "candidate", gate)
    seen = sequential_values(gate, earlier, totals, problem_ids, seed)
    values, without = seen.values, seen.without
    if not len(values.floors):
        return make_undecided_result(gate, explain_missing_problems(gate), left_out=without, family=family)
    found = decide_mean(values, gate.min_gain, gate.population, confidence)
    decision = DECISIONS[found.answer]
    base = float(_bases(gate, values)[: found.looked_at].mean()) if found.looked_at else None
    missing = seen.unknown_baseline + seen.unknown_candidate
    judged = _decision_of_judged(gate, seen, confidence) if missing else None
    mean = -found.mean if gate.falls else found.mean
    low, high = gains(gate, found.low, found.high)
    figures = GateResult(
        decision=decision,
        reason=REASONS[decision],
        message=_message(gate, decision, found, values, confidence)
        + (
            ""
            if judged is None
            else describe_missing_completions(seen.unknown_baseline, seen.unknown_candidate, judged)
        ),
        dataset=gate.label,
        metric=gate.metric,
        baseline=gate.compared_with,
        max_regression=gate.max_regression_value,
        confidence=confidence,
        difference=mean if found.looked_at else None,
        low=low,
        high=high,
        candidate_value=None if base is None else base + mean,
        baseline_value=base,
        problems=found.looked_at,
        left_out=without,
        min_improvement=None if gate.min_improvement is None else float(gate.min_improvement),
        correction=name_correction(family),
        sequential=True,
        population=gate.population,
        decided_after=found.decided_after,
        of_problems=len(values.floors),
        not_judged=missing,
        decision_of_judged=judged,
    )
    return check_expected_range(gate, figures, [totals])


def _bases(gate: Gate, values: Values) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
    """Return the baseline's values; unknown values are taken as half way between their bounds."""
    middle = (values.floors + values.ceilings) / 2
    return middle + 0.5 if gate.falls else 0.5 - middle


def _decision_of_judged(gate: Gate, seen: SequentialGains, confidence: float) -> GateDecision:
    judged = seen.select_judged()
    if not len(judged.floors):
        return GateDecision.INCONCLUSIVE
    return DECISIONS[decide_mean(judged, gate.min_gain, gate.population, confidence).answer]


def _message(gate: Gate, decision: GateDecision, found: Finding, values: Values, confidence: float) -> str:
    bound, total = bound_text(gate), len(values.floors)
    low, high = gains(gate, found.low, found.high)
    worse = "above" if gate.falls else "below"
    says = {
        GateDecision.PASS: f"not {worse} {bound}, whenever one looks",
        GateDecision.FAIL: f"{worse} {bound}, whenever one looks",
        GateDecision.INCONCLUSIVE: _open(gate, found, values, confidence),
    }[decision]
    mean = "" if not found.looked_at else f"{-found.mean if gate.falls else found.mean:+.4f} "
    return (
        f"{gate.label} {gate.metric}: {mean}[{low:+.4f}, {high:+.4f}] over the first {found.looked_at:,} of {total:,} "
        f"problems; {says}"
    )


def _open(gate: Gate, found: Finding, values: Values, confidence: float) -> str:
    """Describe why a sequential gate has not decided, and what would decide it."""
    bound = bound_text(gate)
    if found.looked_at < len(values.floors):
        return f"the interval still holds {bound}: more problems of the run decide"
    if gate.population == "benchmark":
        unknown = int((values.lows < values.highs).sum())
        return f"{unknown} of them were not judged, and these decide: judge them again"
    needed = estimate_needed_problems(values, gate.min_gain, (1 - confidence) / 2)
    so_many = "no number of such problems decides" if needed is None else f"about {needed:,} such problems would decide"
    return f"the interval holds {bound}: {so_many}, or population: benchmark"


def estimate_needed_problems(values: Values, min_mean: float, error: float) -> int | None:
    """Return after how many problems like these a gate would decide; None where they lie at its bound.

    The capital against the bound grows at a steady rate for each stake; the rate of the best stake is used.
    """
    seen = (values.lows + values.highs) / 2
    if not len(seen):
        return None
    change = seen if seen.mean() >= min_mean else -seen
    fair = min_mean if seen.mean() >= min_mean else -min_mean
    width = values.bounds.high - values.bounds.low
    grown = max(float(np.log1p(np.maximum(stake / width * (change - fair), -0.9)).mean()) for stake in STAKES)
    return math.ceil(math.log(len(STAKES) / error) / grown) if grown > 1e-9 else None
