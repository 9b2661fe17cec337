"""The observed state of a schedule, and the decision of a reconciliation."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from evalrun_api.checkpoint_listing import ReadyCheckpoint
from evalrun_api.v1alpha1 import EvalScheduleStatus, PendingMerge
from evalrun_cluster.objects import StatusEvent
from evalrun_operator.schedules.job_state import ListingJob
from evalrun_operator.schedules.kept_replicas import ReplicaSituation, ReplicaStep
from evalrun_operator.schedules.runs import ScheduledRun


@dataclass(frozen=True)
class ObservedSchedule:
    """The known state of a schedule's objects."""

    runs: Sequence[ScheduledRun] = ()
    job: ListingJob | None = None
    """The Job that `status.start.job` names."""
    merge_job: ListingJob | None = None
    """The Job of the pending merge."""
    replicas: ReplicaSituation | None = None
    """The replicas that are kept, or are to be kept; None if there is nothing to decide."""
    refusal: str = ""
    """Reason why the chart's allow-lists refuse the schedule; empty if they accept it."""


@dataclass(frozen=True)
class ScheduleDecision:
    """Actions of a reconciliation, in order: deletions, creations, the status, events."""

    status: EvalScheduleStatus
    make_job: str | None = None
    delete_job: ListingJob | None = None
    delete_runs: tuple[ScheduledRun, ...] = ()
    make_merge: PendingMerge | None = None
    delete_merge_job: ListingJob | None = None
    merged: tuple[PendingMerge, ...] = ()
    """Merges whose models are in the cache and whose runs start now."""
    start: tuple[ReadyCheckpoint, ...] = ()
    start_time: datetime | None = None
    trigger: str | None = None
    """Value of the annotation that requested a start by hand."""
    parent: str | None = None
    replicas: ReplicaStep | None = None
    events: tuple[StatusEvent, ...] = ()
    requeue_after: float | None = None
