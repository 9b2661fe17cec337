"""The words of a schedule's status: conditions, and the texts that `kubectl get` prints. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from evalrun_api.v1alpha1 import Condition, EvalSchedule, EvalScheduleStatus, schedule_condition
from evalrun_api.v1alpha1 import ScheduleCondition as Kind
from evalrun_api.v1alpha1 import ScheduleReason as Why
from evalrun_operator.schedules.cron import Cron


@dataclass(frozen=True)
class ScheduleConditionText:
    """Status, reason and message of a condition."""

    status: Literal["True", "False", "Unknown"]
    reason: Why
    message: str


NOT_YET = ScheduleConditionText("Unknown", Why.NOT_YET, "nothing has been due so far")


def said(
    before: EvalScheduleStatus,
    status: EvalScheduleStatus,
    says: Mapping[Kind, ScheduleConditionText],
    schedule: EvalSchedule,
    now: datetime,
) -> EvalScheduleStatus:
    """Return the status with its conditions: of what nothing is said, what was said before."""
    generation = schedule.metadata.generation
    conditions = []
    for kind in Kind:
        old = schedule_condition(status, kind) or schedule_condition(before, kind)
        new = says.get(kind)
        if new is None and old is not None:
            conditions.append(old)
            continue
        word = new or NOT_YET
        written = schedule_condition(before, kind)
        changed = written is None or written.status != word.status
        conditions.append(
            Condition(
                type=kind,
                status=word.status,
                reason=word.reason,
                message=word.message[:4096],
                observed_generation=generation,
                last_transition_time=now if changed or written is None else written.last_transition_time,
            )
        )
    started = next(one for one in conditions if one.type == Kind.STARTED)
    accepted = next(one for one in conditions if one.type == Kind.ACCEPTED)
    reason = accepted.reason if accepted.status == "False" else started.reason
    return status.model_copy(update={"conditions": conditions, "reason": reason, "observed_generation": generation})


def gate_words(status: EvalScheduleStatus) -> ScheduleConditionText:
    """Return what the gate of the newest checkpoint with results says."""
    latest = status.latest_result
    if latest is None:
        return ScheduleConditionText("Unknown", Why.NOT_YET, "no checkpoint has results yet")
    where = f"{latest.run} (step {latest.step})"
    if latest.gate is None:
        return ScheduleConditionText("Unknown", Why.NO_GATE, f"{where} has no gate")
    words = {"True": Why.PASSED, "False": Why.FAILED, "Unknown": Why.INCONCLUSIVE}
    return ScheduleConditionText(latest.gate, words[latest.gate], f"of {where}: see its condition GatePassed")


def shown_columns(status: EvalScheduleStatus, cron: Cron) -> EvalScheduleStatus:
    """Return the status with the texts that `kubectl get` prints."""
    last, good, following = status.last_checkpoint, status.last_good, status.next_schedule_time
    gate = schedule_condition(status, Kind.GATE_PASSED)
    return status.model_copy(
        update={
            "checkpoint": None if last is None else f"step {last.step}",
            "good": None if good is None else f"step {good.step}",
            "gate": None if gate is None or gate.reason == Why.NOT_YET else gate.reason,
            "next": None if following is None else cron.shown(following)[:64],
        }
    )
