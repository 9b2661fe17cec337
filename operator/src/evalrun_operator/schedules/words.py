"""Writes a schedule's conditions, and the texts that `kubectl get` prints. Pure."""

from collections.abc import Mapping
from datetime import datetime

from evalrun_api.v1alpha1 import EvalSchedule, EvalScheduleStatus, schedule_condition
from evalrun_api.v1alpha1 import ScheduleCondition as Kind
from evalrun_api.v1alpha1 import ScheduleReason as Why
from evalrun_operator.policies.condition_text import ScheduleText, to_condition
from evalrun_operator.schedules.cron import Cron

NOT_YET = ScheduleText("Unknown", Why.NOT_YET, "nothing has been due so far")


def update_conditions(
    before: EvalScheduleStatus,
    status: EvalScheduleStatus,
    says: Mapping[Kind, ScheduleText],
    schedule: EvalSchedule,
    now: datetime,
) -> EvalScheduleStatus:
    """Return the status with updated conditions. A condition without a new text keeps its text."""
    generation = schedule.metadata.generation
    conditions = []
    for kind in Kind:
        old = schedule_condition(status, kind) or schedule_condition(before, kind)
        new = says.get(kind)
        if new is None and old is not None:
            conditions.append(old)
            continue
        written = schedule_condition(before, kind)
        conditions.append(to_condition(kind, new or NOT_YET, written, generation, now))
    started = next(one for one in conditions if one.type == Kind.STARTED)
    accepted = next(one for one in conditions if one.type == Kind.ACCEPTED)
    reason = accepted.reason if accepted.status == "False" else started.reason
    return status.model_copy(update={"conditions": conditions, "reason": reason, "observed_generation": generation})


def gate_words(status: EvalScheduleStatus) -> ScheduleText:
    """Return the gate decision of the newest checkpoint with results."""
    latest = status.latest_result
    if latest is None:
        return ScheduleText("Unknown", Why.NOT_YET, "no checkpoint has results yet")
    where = f"{latest.run} (step {latest.step})"
    if latest.gate is None:
        return ScheduleText("Unknown", Why.NO_GATE, f"{where} has no gate")
    words = {"True": Why.PASSED, "False": Why.FAILED, "Unknown": Why.INCONCLUSIVE}
    return ScheduleText(latest.gate, words[latest.gate], f"of {where}: see its condition GatePassed")


def shown_columns(status: EvalScheduleStatus, cron: Cron) -> EvalScheduleStatus:
    """Return the status with the texts that `kubectl get` prints."""
    last, good, following = status.last_checkpoint, status.last_good, status.next_schedule_time
    gate = schedule_condition(status, Kind.GATE_PASSED)
    return status.model_copy(
        update={
            "checkpoint": None if last is None else f"step {last.step}",
            "good": None if good is None else f"step {good.step}",
            "best_step": None if status.best is None else f"step {status.best.step}",
            "gate": None if gate is None or gate.reason == Why.NOT_YET else gate.reason,
            "next": None if following is None else cron.render_moment(following)[:64],
        }
    )
