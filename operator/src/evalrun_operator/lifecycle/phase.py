"""Derives phase and reason, the two columns of `kubectl get er`, from the conditions. Pure."""

from evalrun_api.v1alpha1 import Condition, ConditionType, Phase, Reason


def derive_phase(conditions: dict[str, Condition], started: bool) -> Phase:
    """Derive the phase from the conditions."""

    def holds(kind: ConditionType) -> bool:
        return kind in conditions and conditions[kind].status == "True"

    if holds(ConditionType.COMPLETE):
        if not holds(ConditionType.SUCCEEDED):
            return "Failed"
        return "Degraded" if holds(ConditionType.DEGRADED) else "Succeeded"
    if holds(ConditionType.SUSPENDED):
        return "Suspended"
    generated = conditions[ConditionType.GENERATED].reason
    if holds(ConditionType.GENERATED) or generated in {Reason.DEADLINE_EXCEEDED, Reason.STOPPED}:
        return "Judging"
    if generated in {Reason.GENERATING, Reason.ATTEMPT_FAILED, Reason.INTERRUPTED}:
        return "Generating"
    return "Preparing" if started else "Pending"


def choose_reason(conditions: dict[str, Condition]) -> str:
    """Return the reason that explains the phase best: the obstacle of the run, or else its current step."""
    if conditions[ConditionType.COMPLETE].status == "True":
        if conditions[ConditionType.DEGRADED].status == "True":
            return conditions[ConditionType.DEGRADED].reason
        return conditions[ConditionType.SUCCEEDED].reason
    held_back = (
        (ConditionType.SUSPENDED, "True"), (ConditionType.STALLED, "True"), (ConditionType.ADMITTED, "False"),
    )  # fmt: skip
    for kind, status in held_back:
        if conditions[kind].status == status:
            return conditions[kind].reason
    generated = conditions[ConditionType.GENERATED]
    return conditions[ConditionType.JUDGED].reason if generated.status == "True" else generated.reason
