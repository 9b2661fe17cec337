"""The gate: may this run pass beside its baseline? Evaluation.md section 9. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from evalrun_aggregator.comparing.differences import Difference, k_of, paired_differences
from evalrun_aggregator.comparing.mcnemar import mcnemar_exact
from evalrun_aggregator.comparing.pairing import PairedDataset, pair
from evalrun_aggregator.problem_totals import DatasetTotals
from evalrun_aggregator.results import JsonObject
from evalrun_operator.api.v1alpha1 import Gate

ROUNDING: Final = 1e-12
"""Sums of fractions such as 0.1 are off by some 1e-16: a bound that is -maxRegression on paper must count as such."""


class Decision(StrEnum):
    """What a gate says."""

    PASS = "PASS"  # noqa: S105 - a word, not a password
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


REASONS: Final[Mapping[Decision, str]] = {
    Decision.PASS: "NoRegression",
    Decision.FAIL: "Regression",
    Decision.INCONCLUSIVE: "Inconclusive",
}
"""The reason of the condition GatePassed."""


class UnusableGateError(Exception):
    """The runs cannot answer what the gate asks; the message says why, in one line."""


@dataclass(frozen=True, slots=True)
class GateDecision:
    """What a gate decided, and by which figures."""

    decision: Decision
    reason: str
    """Of the condition GatePassed, e.g. `Regression`."""
    message: str
    """One line for people."""
    dataset: str
    metric: str
    baseline: str
    max_regression: float
    confidence: float
    difference: float | None = None
    """Candidate minus baseline; None, like what follows, where nothing could be compared."""
    low: float | None = None
    high: float | None = None
    candidate_value: float | None = None
    baseline_value: float | None = None
    problems: int = 0
    """Compared: judged in both runs, with a value of the metric in both."""
    left_out: int = 0
    """In either run, but not compared."""
    mcnemar_p: float | None = None
    """McNemar's exact test, at n = 1 only; it decides nothing."""

    def as_json(self) -> JsonObject:
        """Give the `gate` of summary.json."""
        content: JsonObject = asdict(self)
        return content | {"decision": self.decision.value}


def decide(low: float, high: float, max_regression: float) -> Decision:
    """Decide by the interval of candidate minus baseline.

    PASS: low >= -max_regression; FAIL: high < -max_regression; else INCONCLUSIVE.
    """
    least = -max_regression - ROUNDING
    if low >= least:
        return Decision.PASS
    return Decision.FAIL if high < least else Decision.INCONCLUSIVE


def decide_gate(
    gate: Gate, baseline: Mapping[str, DatasetTotals], candidate: Mapping[str, DatasetTotals]
) -> GateDecision:
    """Compare a run with its baseline as the gate asks.

    Args:
        gate: what is asked.
        baseline: the totals of the earlier run, by dataset.
        candidate: of the run that is to pass.

    Raises:
        UnusableGateError: a run lacks the dataset, or results that can be forged would feed the gate.
    """
    paired = pair(_dataset(baseline, gate, "baseline"), _dataset(candidate, gate, "candidate"))
    found = paired_differences(paired, [gate.metric], confidence=gate.confidence_value).get(gate.metric)
    unpaired = paired.only_in_baseline + paired.only_in_candidate + paired.not_judged
    if found is None:
        needs = f" with {k_of(gate.metric)} judged samples" if gate.metric.startswith("pass_at_") else ""
        message = f"{gate.dataset} {gate.metric}: there is no problem{needs} in both runs to compare"
        return undecided(gate, message, left_out=unpaired + len(paired.problem_ids))
    decision = decide(found.low, found.high, gate.max_regression_value)
    return GateDecision(
        decision=decision,
        reason=REASONS[decision],
        message=_message(gate, decision, found),
        dataset=gate.dataset,
        metric=gate.metric,
        baseline=gate.baseline,
        max_regression=gate.max_regression_value,
        confidence=gate.confidence_value,
        difference=found.difference,
        low=found.low,
        high=found.high,
        candidate_value=found.candidate,
        baseline_value=found.baseline,
        problems=found.problems,
        left_out=unpaired + found.left_out,
        mcnemar_p=_mcnemar_of(gate.metric, paired),
    )


def undecided(gate: Gate, message: str, reason: str = "Inconclusive", *, left_out: int = 0) -> GateDecision:
    """Give the decision where nothing could be compared."""
    return GateDecision(
        decision=Decision.INCONCLUSIVE,
        reason=reason,
        message=message,
        dataset=gate.dataset,
        metric=gate.metric,
        baseline=gate.baseline,
        max_regression=gate.max_regression_value,
        confidence=gate.confidence_value,
        left_out=left_out,
    )


def _dataset(run: Mapping[str, DatasetTotals], gate: Gate, role: str) -> DatasetTotals:
    totals = run.get(gate.dataset)
    if totals is None:
        known = f"it has {', '.join(sorted(run))}" if run else "it has no results at all"
        raise UnusableGateError(f"the {role} has no results of dataset {gate.dataset}: {known}")
    forgeable = totals.flags["forgeable"]
    if forgeable:
        raise UnusableGateError(
            f"{forgeable} results of {gate.dataset} in the {role} can be forged (judgeMode: Submit) and feed no gate"
        )
    return totals


def _mcnemar_of(metric: str, paired: PairedDataset) -> float | None:
    if metric not in {"accepted_at_1", "pass_at_1"} or not paired.single_samples:
        return None
    ours, theirs = paired.baseline.solved, paired.candidate.solved
    return mcnemar_exact(int((ours & ~theirs).sum()), int((~ours & theirs).sum()))


def _message(gate: Gate, decision: Decision, found: Difference) -> str:
    bound = f"{-gate.max_regression_value:+.4g}" if gate.max_regression_value else "0"
    says = {
        Decision.PASS: f"the lower bound is not below {bound}",
        Decision.FAIL: f"the upper bound is below {bound}",
        Decision.INCONCLUSIVE: f"the interval holds {bound}: more problems or samples would be needed",
    }[decision]
    return (
        f"{gate.dataset} {gate.metric}: {found.difference:+.4f} [{found.low:+.4f}, {found.high:+.4f}] over "
        f"{found.problems} problems; {says}"
    )
