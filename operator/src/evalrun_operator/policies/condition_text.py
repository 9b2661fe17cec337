"""The text of a condition of an EvalRun or an EvalSchedule, and its conversion to a condition. Pure."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Generic, Literal, TypeVar

from evalrun_api.v1alpha1 import Condition, Reason, ScheduleReason

ReasonT = TypeVar("ReasonT", bound=StrEnum)

Answer = Literal["True", "False", "Unknown"]
MAX_MESSAGE = 4096


@dataclass(frozen=True)
class ConditionText(Generic[ReasonT]):
    """Status, reason and message of a condition."""

    status: Answer
    reason: ReasonT
    message: str = ""


RunText = ConditionText[Reason]
ScheduleText = ConditionText[ScheduleReason]


def to_condition(
    kind: StrEnum, text: ConditionText[ReasonT], was: Condition | None, generation: int | None, now: datetime
) -> Condition:
    """Return the condition with a text.

    Args:
        kind: type of the condition.
        text: text of the condition.
        was: the condition before; its transition time stays while the status does.
        generation: generation of the spec that the text describes.
        now: the time.
    """
    changed = was is None or was.status != text.status
    return Condition(
        type=str(kind),
        status=text.status,
        reason=str(text.reason),
        message=text.message[:MAX_MESSAGE],
        observed_generation=generation,
        last_transition_time=now if changed or was is None else was.last_transition_time,
    )
