"""Messages about failed writes: the refusal itself, its meaning for the run, and the remedy. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from evalrun_api.v1alpha1 import ConditionType, EvalRunStatus, Reason, find_condition
from evalrun_operator.policies.condition_text import RunText
from evalrun_operator.policies.kube_apiserver_texts import find_remedy

LASTING_FAILURES = 3
"""Failed reconciliations in a row after which writes that may succeed later are reported."""
DISPENSABLE = frozenset({"PodDisruptionBudget", "HorizontalPodAutoscaler", "ScaledObject", "NetworkPolicy"})
"""Kinds without which a run continues: no verdict depends on them."""
NAME_TAKEN_REMEDY = "Delete or rename that object, or give the run another name."


@dataclass(frozen=True)
class WriteFailure:
    """A write that failed."""

    kind: str
    reason: Reason
    """Refused, NameTaken, or WriteFailed if the write may succeed later."""
    text: str
    """The operation, the object, and the API server's message."""

    @property
    def lasts(self) -> bool:
        """Whether the write fails until somebody changes something."""
        return self.reason is not Reason.WRITE_FAILED

    @property
    def is_dispensable(self) -> bool:
        """Whether the run continues without the object."""
        return self.kind in DISPENSABLE


def report_writes(failures: Sequence[WriteFailure], passes: int) -> RunText | None:
    """Return the text of the condition Applied; None if it stays as it is.

    Args:
        failures: failed writes of this reconciliation.
        passes: failed reconciliations in a row, this one included.
    """
    if not failures:
        return RunText("True", Reason.ALL_APPLIED)
    if passes < LASTING_FAILURES and not any(failure.lasts for failure in failures):
        return None
    first = _order_failures(failures)[0]
    return RunText("False", first.reason, f"{_describe(failures)} It is tried again by itself.")


def explain_lasting_refusal(status: EvalRunStatus, failures: Sequence[WriteFailure] | None) -> str:
    """Return the lasting refusal without which the run cannot continue; empty if there is none.

    Args:
        status: the run's status after the last reconciliation.
        failures: failed writes of that reconciliation; None if another operator made it, before a restart or an
            upgrade. Its condition does not show whether the run continues, so the earlier reason of a stall counts
            until the next writes.
    """
    applied = find_condition(status, ConditionType.APPLIED)
    if applied is None or applied.reason not in {Reason.REFUSED, Reason.NAME_TAKEN}:
        return ""
    if failures is None:
        stalled = find_condition(status, ConditionType.STALLED)
        return applied.message.rstrip(".") if stalled is not None and stalled.status == "True" else ""
    told = _order_failures(failures)
    if not told or told[0].is_dispensable or not told[0].lasts:
        return ""
    return _describe(failures).rstrip(".")


def _order_failures(failures: Sequence[WriteFailure]) -> list[WriteFailure]:
    """Return the failures to report, the most important first: lasting failures if there are any, or else all."""
    lasting = [failure for failure in failures if failure.lasts]
    return sorted(lasting or failures, key=lambda failure: (failure.is_dispensable, failure.text))


def _describe(failures: Sequence[WriteFailure]) -> str:
    told = _order_failures(failures)
    text = told[0].text.rstrip(".")[:2000]
    goes_on = " The run goes on without it." if told[0].is_dispensable else ""
    remedy = NAME_TAKEN_REMEDY if told[0].reason is Reason.NAME_TAKEN else find_remedy(text)
    more = f" {len(told) - 1} more writes failed." if len(told) > 1 else ""
    return f"{text[:1].upper()}{text[1:]}.{goes_on} {remedy}{more}"
