"""Messages about failed writes: the refusal itself, its meaning for the run, and the remedy. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from evalrun_api.v1alpha1 import ConditionType, EvalRunStatus, Reason, condition_of

LASTING_FAILURES = 3
"""Passes in a row after which writes that may succeed later are worth a word."""
DISPENSABLE = frozenset({"PodDisruptionBudget", "HorizontalPodAutoscaler", "ScaledObject", "NetworkPolicy"})
"""Kinds without which a run goes on: no verdict depends on them."""
GOES_ON = " The run goes on without it."
TRIED_AGAIN = " It is tried again by itself."
NAMESPACE_GONE = "because it is being terminated"

REMEDIES = (
    ("exceeded quota", "Raise the ResourceQuota, or free what it counts."),
    ("violates PodSecurity", "Let the namespace enforce a lower Pod Security level, or change what the run asks for."),
    ("cannot", "Give the operator's account the right that is named: the chart's rbac.create does."),
    ("denied the request", "Meet the admission policy that is named, or have it changed."),
    ("webhook", "See to the admission webhook that is named: while it does not answer, nothing can be made."),
    ("is there already", "Delete or rename that object, or give the run another name."),
)
"""By a part of the API server's words, what to do; the first that is found counts."""
OTHERWISE = "Change what the message names."


@dataclass(frozen=True)
class WriteFailure:
    """A write that failed."""

    kind: str
    reason: Reason
    """Refused, NameTaken, or WriteFailed where it may succeed later."""
    text: str
    """The operation, the object, and the API server's words."""


def applied_words(failures: Sequence[WriteFailure], passes: int) -> tuple[str, Reason, str] | None:
    """Return status, reason and message of the condition Applied; None if it stays as it is.

    Args:
        failures: of this pass.
        passes: failed passes in a row, with this one.
    """
    told = [failure for failure in failures if NAMESPACE_GONE not in failure.text]
    if not told:
        return "True", Reason.ALL_APPLIED, ""
    lasting = [failure for failure in told if failure.reason is not Reason.WRITE_FAILED]
    if not lasting and passes < LASTING_FAILURES:
        return None
    named = sorted(lasting or told, key=lambda failure: (failure.kind in DISPENSABLE, failure.text))
    more = f" {len(named) - 1} more writes failed." if len(named) > 1 else ""
    return "False", named[0].reason, f"{_sentence(named[0])}{more}{TRIED_AGAIN}"


def holding_refusal(status: EvalRunStatus) -> str:
    """Return what the condition Applied says of a lasting refusal without which the run cannot go on; empty if none."""
    applied = condition_of(status, ConditionType.APPLIED)
    if applied is None or applied.reason not in {Reason.REFUSED, Reason.NAME_TAKEN} or GOES_ON in applied.message:
        return ""
    return applied.message.removesuffix(TRIED_AGAIN).rstrip(".")


def _sentence(failure: WriteFailure) -> str:
    text = failure.text.rstrip(".")[:2000]
    goes_on = GOES_ON if failure.kind in DISPENSABLE else ""
    remedy = next((remedy for part, remedy in REMEDIES if part in text), OTHERWISE)
    return f"{text[:1].upper()}{text[1:]}.{goes_on} {remedy}"
