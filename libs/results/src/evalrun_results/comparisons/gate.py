"""Decides whether a run passes a gate against its baseline; see docs/comparing.md. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np

from evalrun_api.v1alpha1 import Gate
from evalrun_registry.metric import Measured
from evalrun_registry.metrics import find_metric
from evalrun_results.comparisons.differences import Difference, Missing
from evalrun_results.comparisons.gate_values import GateDataset, UnusableGateError, make_gate_datasets
from evalrun_results.comparisons.mcnemar import mcnemar_exact
from evalrun_results.comparisons.mean_bounds import mean_interval
from evalrun_results.comparisons.plausibility import likely_causes
from evalrun_results.comparisons.power import least_problems, margin_to_pass, power_note, problems_to_pass
from evalrun_results.comparisons.readings import PairedReadings
from evalrun_results.metrics.intervals import MIN_PROBLEMS, Floats
from evalrun_results.metrics.problem_totals import DatasetTotals
from evalrun_results.samples import JsonObject

ROUNDING: Final = 1e-12
"""Sums of fractions such as 0.1 are off by some 1e-16: a bound that is -maxRegression on paper must count as such."""
SINGLE_ANSWER: Final = frozenset({"accepted_at_1", "pass_at_1"})
"""Names of the metric that is about one answer: McNemar's test is for it, and its spread falls with more samples."""
CORRECTION: Final = "Bonferroni"
"""Correction for several gates: each is decided at 1 - (1 - confidence) / their number."""


class GateDecision(StrEnum):
    """The decision of a gate."""

    PASS = "PASS"  # noqa: S105 - a word, not a password
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


REASONS: Final[Mapping[GateDecision, str]] = {
    GateDecision.PASS: "NoRegression",
    GateDecision.FAIL: "Regression",
    GateDecision.INCONCLUSIVE: "Inconclusive",
}
"""The reason of the condition GatePassed."""
IMPLAUSIBLE: Final = "Implausible"
"""The reason if the run's own metric is outside of the gate's expectedRange."""


@dataclass(frozen=True, slots=True)
class GateResult:
    """A gate's decision with its figures."""

    decision: GateDecision
    reason: str
    """Reason of the condition GatePassed, e.g. `Regression`."""
    message: str
    """A line for people."""
    dataset: str
    metric: str
    baseline: str
    """Or the anchor."""
    max_regression: float
    confidence: float
    """Confidence of the interval, after the correction for several gates."""
    difference: float | None = None
    """Candidate minus baseline; None, like what follows, where nothing could be compared."""
    low: float | None = None
    high: float | None = None
    candidate_value: float | None = None
    baseline_value: float | None = None
    problems: int = 0
    """Compared: judged in both runs, with a value of the metric in both."""
    left_out: int = 0
    """Problems in either run that were not compared."""
    mcnemar_p: float | None = None
    """McNemar's exact test, at n = 1 only; it decides nothing."""
    min_improvement: float | None = None
    correction: str | None = None
    """Correction for several gates; None for a single gate."""
    sequential: bool = False
    """Whether the interval holds however often the gate was checked; otherwise it holds for a single check."""
    population: str | None = None
    """Population of a sequential gate: benchmark or similar."""
    decided_after: int | None = None
    """Problems after which a sequential gate decided; None if it did not."""
    of_problems: int | None = None
    """That a sequential gate could have drawn."""
    not_judged: int = 0
    """Missing completions of either run among the compared problems: each counts in the least favourable way."""
    decision_of_judged: GateDecision | None = None
    """The decision without the problems with a missing completion; None if none is missing."""
    warnings: tuple[str, ...] = ()
    """Datasets whose problems or tests are not those of the baseline, and older rules of judging, one line each."""

    def as_json(self) -> JsonObject:
        """Return the `gate` of summary.json."""
        content: JsonObject = asdict(self)
        judged = self.decision_of_judged
        return content | {
            "decision": self.decision.value,
            "decision_of_judged": None if judged is None else judged.value,
        }


def decide(low: float | None, high: float | None, max_regression: float, problems: int) -> GateDecision:
    """Decide by the interval of candidate minus baseline, signed so that larger is better.

    PASS: low >= -max_regression; FAIL: high < -max_regression; else INCONCLUSIVE. Fewer than `MIN_PROBLEMS` decide
    nothing, and neither does a difference without an interval.
    """
    if problems < MIN_PROBLEMS or low is None or high is None:
        return GateDecision.INCONCLUSIVE
    least = -max_regression - ROUNDING
    if low >= least:
        return GateDecision.PASS
    return GateDecision.FAIL if high < least else GateDecision.INCONCLUSIVE


def correct_confidence(gate: Gate, family: int) -> float:
    """Return the confidence of each of `family` gates, by Bonferroni's correction."""
    return 1 - (1 - gate.confidence_value) / family


def decide_gate(
    gate: Gate,
    baseline: Mapping[str, DatasetTotals] | None,
    candidate: Mapping[str, DatasetTotals],
    *,
    family: int = 1,
) -> GateResult:
    """Compare a run with its baseline as the gate specifies, by an interval that is valid for a single look.

    Args:
        gate: which datasets and metric are compared, and with what margin.
        baseline: the totals of the earlier run, by dataset; None with an anchor.
        candidate: of the run that is to pass.
        family: how many gates the run has.

    Raises:
        UnusableGateError: a run lacks the dataset, or results that can be forged would feed the gate.
    """
    parts = make_gate_datasets(gate, baseline, candidate)
    confidence, left_out = correct_confidence(gate, family), sum(part.left_out for part in parts)
    found = _difference(gate, parts, confidence)
    if found is None:
        return make_undecided_result(gate, explain_missing_problems(gate), left_out=left_out, family=family)
    low, high = gains(gate, found.low, found.high)
    decision = decide(low, high, -gate.min_gain, found.problems)
    figures = GateResult(
        decision=decision,
        reason=REASONS[decision],
        message=_message(gate, decision, found, confidence),
        dataset=gate.label,
        metric=gate.metric,
        baseline=gate.compared_with,
        max_regression=gate.max_regression_value,
        confidence=confidence,
        difference=found.difference,
        low=found.low,
        high=found.high,
        candidate_value=found.candidate,
        baseline_value=found.baseline,
        problems=found.problems,
        left_out=left_out,
        not_judged=0 if found.missing is None else found.missing.baseline + found.missing.candidate,
        decision_of_judged=None if found.missing is None else _decide_on_judged(gate, found, found.missing),
        mcnemar_p=_compute_mcnemar(gate.metric, parts),
        min_improvement=_min_improvement(gate),
        correction=name_correction(family),
    )
    return check_expected_range(gate, figures, [candidate[name] for name in gate.dataset_names])


def check_expected_range(gate: Gate, figures: GateResult, candidate: Sequence[DatasetTotals]) -> GateResult:
    """Return the decision, or INCONCLUSIVE if the run's own figure is implausible."""
    expected, value = gate.expected_range, figures.candidate_value
    if expected is None or value is None or expected.holds(value):
        return figures
    message = (
        f"{gate.label} {gate.metric}: {value:.4f} is out of the expected range {expected.low} to {expected.high}: "
        f"{likely_causes(candidate)}"
    )
    return replace(figures, decision=GateDecision.INCONCLUSIVE, reason=IMPLAUSIBLE, message=message)


def gains(gate: Gate, low: float | None, high: float | None) -> tuple[float | None, float | None]:
    """Return the bounds of a gain: mirrored for metrics where lower is better. Its own inverse."""
    if gate.falls:
        return (None if high is None else -high), (None if low is None else -low)
    return low, high


def sample_size(
    gate: Gate, baseline: Mapping[str, DatasetTotals] | None, pilot: Mapping[str, DatasetTotals]
) -> Difference:
    """Return the difference between a pilot and its baseline, from which a gate's needs follow.

    Raises:
        UnusableGateError: as for `decide_gate`; or no problem has a value in both runs.
    """
    found = _difference(gate, make_gate_datasets(gate, baseline, pilot), gate.confidence_value)
    if found is None:
        raise UnusableGateError(f"{gate.label} {gate.metric}: no problem has a value in both runs")
    return found


def make_undecided_result(
    gate: Gate, message: str, reason: str = "Inconclusive", *, left_out: int = 0, family: int = 1
) -> GateResult:
    """Return an INCONCLUSIVE decision without figures."""
    return GateResult(
        decision=GateDecision.INCONCLUSIVE,
        reason=reason,
        message=message,
        dataset=gate.label,
        metric=gate.metric,
        baseline=gate.compared_with,
        max_regression=gate.max_regression_value,
        confidence=correct_confidence(gate, family),
        left_out=left_out,
        min_improvement=_min_improvement(gate),
        correction=name_correction(family),
        sequential=gate.sequential,
        population=gate.population if gate.sequential else None,
    )


def explain_missing_problems(gate: Gate) -> str:
    """Return the message of a gate without problems."""
    named = find_metric(gate.metric)
    needs = f" with {named.number} judged samples" if named and named.metric.measured is Measured.SAMPLES else ""
    return f"{gate.label} {gate.metric}: no problem{needs} in both runs, so nothing to compare"


def overall(decisions: Sequence[GateResult]) -> JsonObject:
    """Return the `gate` of summary.json for all gates together: the worst decision.

    A single gate is the overall decision itself. With several gates the messages of those with the worst decision are
    joined; summary.json lists every gate under `gates`.
    """
    if len(decisions) == 1:
        return decisions[0].as_json()
    ranks = {GateDecision.FAIL: 0, GateDecision.INCONCLUSIVE: 1, GateDecision.PASS: 2}
    worst = min(decisions, key=lambda each: ranks[each.decision])
    says = [each for each in decisions if each.decision is worst.decision]
    passed = sum(each.decision is GateDecision.PASS for each in decisions)
    message = f"{passed} of {len(decisions)} gates pass ({CORRECTION}'s correction); " + "; ".join(
        each.message for each in says
    )
    return {
        "decision": worst.decision.value, "reason": worst.reason, "message": message,
        "baseline": ", ".join(dict.fromkeys(each.baseline for each in decisions)),
        "correction": name_correction(len(decisions)),
    }  # fmt: skip


def name_correction(family: int) -> str | None:
    """Return the name of the multiple-testing correction, or None for a single gate."""
    return f"{CORRECTION} over {family} gates" if family > 1 else None


def bound_text(gate: Gate) -> str:
    """Return the bound of the difference as text, in the metric's own direction."""
    bound = -gate.min_gain if gate.falls else gate.min_gain
    return f"{bound:+.4g}" if bound else "0"


def _difference(gate: Gate, parts: Sequence[GateDataset], confidence: float) -> Difference | None:
    """Return the difference over all parts; None if nothing can be compared."""
    readings = [part.readings for part in parts if part.readings is not None]
    if not any(each.members.any() for each in readings):
        return None
    anchor = gate.anchor_value
    least, greatest = (-1.0, 1.0) if anchor is None else (-anchor, 1.0 - anchor)
    shares = None if gate.weights is None or len(readings) < len(gate.dataset_names) else gate.weights
    lows, highs = zip(*(each.extremes(least, greatest) for each in readings), strict=True)
    low, high = _interval(shares, lows, highs, (least, greatest), confidence)
    changes = [each.changes for each in readings]
    baseline, candidate = (int(sum(each)) for each in zip(*(each.not_judged for each in readings), strict=True))
    missing = None
    if baseline or candidate:
        judged = _interval(shares, changes, changes, (least, greatest), confidence)
        missing = Missing(baseline, candidate, *judged)
    scales = _scales(shares, changes)
    ours, theirs = (
        float(np.concatenate([scale * each for scale, each in zip(scales, values, strict=True)]).mean())
        for values in zip(*((_select_members(each)) for each in readings), strict=True)
    )
    weighted = np.concatenate([scale * change for scale, change in zip(scales, changes, strict=True)])
    note = power_note(weighted, confidence)
    return Difference(gate.metric, len(weighted), 0, ours, theirs, theirs - ours, low, high, note, missing)


def _select_members(readings: PairedReadings) -> tuple[Floats, Floats]:
    return readings.baseline.values[readings.members], readings.candidate.values[readings.members]


def _scales(weights: Sequence[float] | None, values: Sequence[Floats]) -> list[float]:
    """Return the factors of each dataset's values that make the mean over all the weighted mean over datasets.

    So one bound serves both, and the worst possible value is that of the largest factor.
    """
    if weights is None:
        return [1.0] * len(values)
    total = sum(len(each) for each in values)
    return [weight / sum(weights) * total / max(len(each), 1) for weight, each in zip(weights, values, strict=True)]


def _interval(
    weights: Sequence[float] | None,
    lows: Sequence[Floats],
    highs: Sequence[Floats],
    bounds: tuple[float, float],
    confidence: float,
) -> tuple[float, float]:
    scales = _scales(weights, lows)
    worst, best = (
        np.concatenate([scale * each for scale, each in zip(scales, values, strict=True)]) for values in (lows, highs)
    )
    low, high = mean_interval(worst, best, max(scales) * bounds[0], max(scales) * bounds[1], confidence)
    return max(bounds[0], low), min(bounds[1], high)


def _decide_on_judged(gate: Gate, found: Difference, missing: Missing) -> GateDecision:
    low, high = gains(gate, missing.low, missing.high)
    return decide(low, high, -gate.min_gain, found.problems)


def _min_improvement(gate: Gate) -> float | None:
    return None if gate.min_improvement is None else float(gate.min_improvement)


def _compute_mcnemar(metric: str, parts: Sequence[GateDataset]) -> float | None:
    if metric not in SINGLE_ANSWER or len(parts) != 1:
        return None
    paired = parts[0].paired
    if paired is None or not paired.single_samples:
        return None
    ours, theirs = paired.baseline.solved, paired.candidate.solved
    return mcnemar_exact(int((ours & ~theirs).sum()), int((~ours & theirs).sum()))


def _message(gate: Gate, decision: GateDecision, found: Difference, confidence: float) -> str:
    bound = bound_text(gate)
    near, far, below, _ = ("upper", "lower", "above", "below") if gate.falls else ("lower", "upper", "below", "above")
    says = {
        GateDecision.PASS: f"the {near} bound is not {below} {bound}",
        GateDecision.FAIL: f"the {far} bound is {below} {bound}",
        GateDecision.INCONCLUSIVE: f"the interval holds {bound}: {_remedy(gate, found, confidence)}",
    }[decision]
    if found.problems < MIN_PROBLEMS:
        says = f"a gate needs at least {MIN_PROBLEMS} problems to decide"
    interval = "" if found.low is None or found.high is None else f" [{found.low:+.4f}, {found.high:+.4f}]"
    missing = found.missing
    return (
        f"{gate.label} {gate.metric}: {found.difference:+.4f}{interval} over {found.problems} "
        f"problem{'s' if found.problems != 1 else ''}; {says}"
        + (
            ""
            if missing is None
            else describe_missing_completions(
                missing.baseline, missing.candidate, _decide_on_judged(gate, found, missing)
            )
        )
    )


def describe_missing_completions(baseline: int, candidate: int, decision_of_judged: GateDecision) -> str:
    """Describe how many completions are missing, and the decision without their problems."""
    places = {"baseline": baseline, "candidate": candidate}
    where = " and ".join(f"{count:,} in the {side}" for side, count in places.items() if count)
    return f"; answers not judged, counted in the least favourable way: {where}; without them: {decision_of_judged}"


def _remedy(gate: Gate, found: Difference, confidence: float) -> str:
    """Return advice for an undecided gate: with how many problems, or which margin, an equal run would pass.

    If answers were not judged, the advice is to judge them, or the margin with which this run would pass.
    """
    worst = found.high if gate.falls else found.low
    if found.missing is not None and worst is not None:
        allow = "" if gate.min_improvement is not None else f", or allow a maxRegression of about {abs(worst):.3f}"
        return f"judge the answers that are missing{allow}"
    if gate.min_improvement is not None:
        return "only a clearer improvement, or more problems, decides"
    margin = margin_to_pass(found.problems, found.power.variance, confidence)
    allowed = gate.max_regression_value
    needed = problems_to_pass(allowed, found.power.variance, confidence)
    or_so_many = "" if needed is None else f"about {needed:,} problems that differ this much, or "
    least = 0 if allowed <= 0 else least_problems(allowed, confidence)
    at_all = "" if found.problems >= least else f" (with fewer than {least:,} no equal run passes)"
    return f"to decide it needs {or_so_many}a maxRegression of about {margin:.3f}{at_all}"
