"""Handles refused Jobs and runs of a schedule and failed listings: status texts and retries."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from evalrun_api.v1alpha1 import EvalSchedule, EvalScheduleStatus, OpenStart, schedule_condition
from evalrun_api.v1alpha1 import ScheduleCondition as Kind
from evalrun_api.v1alpha1 import ScheduleReason as Why
from evalrun_cluster.objects import StatusEvent
from evalrun_operator.policies.condition_text import ScheduleText
from evalrun_operator.schedules.decision import ScheduleDecision
from evalrun_operator.schedules.merge_step import REFUSED_SECONDS, keep_refused_merges
from evalrun_operator.schedules.words import update_conditions
from evalrun_runtime.backoff import backoff_seconds

FIRST_LOOK_SECONDS, MAX_LOOK_SECONDS = 60.0, 3600.0
"""Wait before a start lists incomplete checkpoints again. The wait doubles with each listing."""
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 30.0, 600.0
"""Wait before a failed listing is tried again."""


def drop_refused_listing(
    decision: ScheduleDecision, message: str, schedule: EvalSchedule, now: datetime
) -> ScheduleDecision:
    """Return the decision without the Job that lists, which could not be created and is tried again.

    Args:
        decision: the decision with the Job.
        message: the API server's message.
        schedule: the schedule that was read.
        now: the time.
    """
    failed = fail_listing(decision.status.start or OpenStart(time=now), message, now)
    status = decision.status.model_copy(update={"start": failed.start})
    status = update_conditions(schedule.status or EvalScheduleStatus(), status, failed.says, schedule, now)
    return replace(decision, status=status, events=(*decision.events, *failed.events))


def drop_refused_merge(
    decision: ScheduleDecision, message: str, schedule: EvalSchedule, now: datetime
) -> ScheduleDecision:
    """Return the decision without the Job that merges, which could not be created and is tried again.

    Args:
        decision: the decision with the Job.
        message: the API server's message.
        schedule: the schedule that was read.
        now: the time.
    """
    again = now + timedelta(seconds=REFUSED_SECONDS)
    merges = [
        one.model_copy(update={"next_time": again})
        if decision.make_merge is not None and one.digest == decision.make_merge.digest
        else one
        for one in decision.status.merges
    ]
    before = schedule.status or EvalScheduleStatus()
    known = schedule_condition(before, Kind.MERGED)
    told = known is not None and known.reason == Why.MERGE_FAILED
    events = () if told else (StatusEvent(True, str(Why.MERGE_FAILED), message),)  # noqa: FBT003 - a warning
    says = {Kind.MERGED: ScheduleText("False", Why.MERGE_FAILED, message)}
    status = update_conditions(before, decision.status.model_copy(update={"merges": merges}), says, schedule, now)
    return replace(decision, status=status, events=(*decision.events, *events))


def drop_refused_replicas(
    decision: ScheduleDecision, message: str, schedule: EvalSchedule, now: datetime
) -> ScheduleDecision:
    """Return the decision with a report that the kept RayCluster could not be created and is tried again.

    Args:
        decision: the decision that creates the RayCluster.
        message: the API server's message.
        schedule: the schedule that was read.
        now: the time.
    """
    before = schedule.status or EvalScheduleStatus()
    known = schedule_condition(before, Kind.REPLICAS_READY)
    told = known is not None and known.message == message
    events = () if told else (StatusEvent(True, str(Why.REFUSED), message),)  # noqa: FBT003 - a warning
    says = {Kind.REPLICAS_READY: ScheduleText("False", Why.REPLICAS_STARTING, message)}
    status = update_conditions(before, decision.status, says, schedule, now)
    delay = min(FIRST_RETRY_SECONDS, decision.requeue_after or FIRST_RETRY_SECONDS)
    return replace(decision, status=status, events=(*decision.events, *events), requeue_after=delay)


def drop_refused_merged_runs(
    decision: ScheduleDecision, failures: dict[str, str], schedule: EvalSchedule, now: datetime
) -> ScheduleDecision:
    """Return the decision without the runs of merged checkpoints that could not be created and are tried again.

    Args:
        decision: the decision with the runs.
        failures: the API server's messages, by the checkpoint's digest.
        schedule: the schedule that was read.
        now: the time.
    """
    message = "; ".join(sorted(set(failures.values())))
    left = [one for one in decision.merged if one.digest in failures]
    status = decision.status.model_copy(update={"merges": keep_refused_merges(decision.status.merges, left, now)})
    says = {Kind.STARTED: ScheduleText("False", Why.REFUSED, message)}
    status = update_conditions(schedule.status or EvalScheduleStatus(), status, says, schedule, now)
    told = (*decision.events, StatusEvent(True, str(Why.REFUSED), message))  # noqa: FBT003 - a warning
    return replace(decision, status=status, events=told, requeue_after=FIRST_LOOK_SECONDS)


def drop_refused_runs(
    decision: ScheduleDecision, failures: dict[str, str], schedule: EvalSchedule, now: datetime
) -> ScheduleDecision:
    """Return the decision without the runs that could not be created. They are not recorded, and are tried again.

    Args:
        decision: the decision with the runs.
        failures: the API server's messages, by the checkpoint's digest.
        schedule: the schedule that was read.
        now: the time.
    """
    # A checkpoint that stayed recorded would never get its run.
    status = decision.status
    evaluated = status.evaluated
    kept = [one for one in evaluated.digests if one.digest not in failures]
    message = "; ".join(sorted(set(failures.values())))
    again = now + timedelta(seconds=FIRST_LOOK_SECONDS)
    start = OpenStart(time=decision.start_time or now, trigger=decision.trigger, listed=True, next_look_time=again)
    before = schedule.status or EvalScheduleStatus()
    last = status.last_checkpoint
    status = status.model_copy(
        update={
            "evaluated": evaluated.model_copy(update={"digests": kept}),
            "last_checkpoint": before.last_checkpoint if last is not None and last.digest in failures else last,
            "start": start,
        }
    )
    says = {Kind.STARTED: ScheduleText("False", Why.REFUSED, message)}
    told = [event for event in decision.events if event.reason != str(Why.RUNS_STARTED)]
    told.append(StatusEvent(True, str(Why.REFUSED), message))  # noqa: FBT003 - a warning
    status = update_conditions(before, status, says, schedule, now)
    delay = FIRST_LOOK_SECONDS if decision.requeue_after is None else min(FIRST_LOOK_SECONDS, decision.requeue_after)
    return replace(decision, status=status, events=tuple(told), requeue_after=delay)


@dataclass(frozen=True)
class FailedListing:
    """Result of a failed listing."""

    start: OpenStart
    says: dict[Kind, ScheduleText]
    events: tuple[StatusEvent, ...]
    delay: float


def fail_listing(start: OpenStart, trouble: str, now: datetime) -> FailedListing:
    """Return a start that lists again later, with its status text. `trouble` is the cause."""
    failures = start.failures + 1
    delay = backoff_seconds(failures, FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS)
    text = f"the checkpoints cannot be listed ({failures} times in a row): {trouble[:800]}"
    again = {"job": None, "failures": failures, "next_look_time": now + timedelta(seconds=delay)}
    says = {
        Kind.DISCOVERED: ScheduleText("False", Why.LISTING_FAILED, text),
        Kind.STARTED: ScheduleText("False", Why.LISTING_FAILED, "see condition Discovered; it is tried again"),
    }
    events = (StatusEvent(True, str(Why.LISTING_FAILED), text),) if failures == 1 else ()  # noqa: FBT003 - a warning
    return FailedListing(start.model_copy(update=again), says, events, delay)
