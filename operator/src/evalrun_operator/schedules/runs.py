"""Facts about a run that a schedule needs, read once from each observed EvalRun. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from evalrun_api import names
from evalrun_api.v1alpha1 import (
    SCHEDULE_KIND,
    ConditionType,
    DatasetStatus,
    EvalRun,
    EvalRunStatus,
    Reason,
    find_condition,
)

Answer = Literal["True", "False", "Unknown"]
EARLY_ENDS = frozenset({Reason.STOPPED, Reason.DEADLINE_EXCEEDED})


@dataclass(frozen=True)
class ScheduledRun:
    """A run that a schedule made."""

    name: str
    uid: str
    url: str
    """URL of the checkpoint."""
    step: int
    digest: str
    start: str
    """The start that created the run, as text: runs of the same start do not block each other."""
    created: datetime
    by_hand: bool = False
    """Whether a start by hand created the run: no later start of the clock replaces it."""
    generated: bool = False
    """Whether every completion is in the run's ledger."""
    suspended: bool = False
    """Whether the run is suspended, so that it holds no GPU."""
    waits_for_replicas: bool = False
    """Whether the run would generate now, on replicas that its schedule keeps."""
    ends_early: bool = False
    """Whether the run was stopped or passed its deadline. It generates no more, though its outputs may still be
    written."""
    deleting: bool = False
    complete: bool = False
    succeeded: bool = False
    gate: Answer | None = None
    """Status of the gate's condition; None without a gate."""
    raced_against: str | None = None
    """Baseline of the gate that a race added (`keepPassing`)."""
    stopped_early: bool = False
    output_url: str | None = None
    gpus: int = 0
    started: datetime | None = None
    released: datetime | None = None
    """Time at which the GPUs were released."""
    completed: datetime | None = None
    datasets: tuple[DatasetStatus, ...] = ()
    keeps_replicas: bool = False
    """Whether the run uses its schedule's replicas. The schedule knows which part of their GPU seconds the run pays."""
    output_tokens: int = 0
    generating_seconds: int = 0
    """Seconds in which at least one completion was being generated."""
    gone: bool = False
    """Whether the run was deleted while the schedule has not recorded its result yet."""

    def gpu_hours(self, now: datetime) -> Decimal:
        """Return GPUs times hours from the run's start until the GPUs were released, or until now."""
        if self.started is None:
            return Decimal(0)
        seconds = max(0.0, ((self.released or now) - self.started).total_seconds())
        return Decimal(self.gpus) * Decimal(round(seconds)) / 3600


def find_schedule(manifest: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return name and uid of the EvalSchedule that controls a run; None if no schedule does."""
    owners = manifest["metadata"].get("ownerReferences") or ()
    return next(
        (
            (str(one["name"]), str(one["uid"]))
            for one in owners
            if one.get("controller") and one["kind"] == SCHEDULE_KIND
        ),
        None,
    )


def is_same_run(made: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
    """Return whether an EvalRun equals the run that a schedule would create: spec and annotations.

    An equal run evaluates the same, whoever created it.

    Raises:
        pydantic.ValidationError: the EvalRun is of another version.
    """
    ours, theirs = EvalRun.from_wire(dict(made)), EvalRun.from_wire(dict(there))
    notes = (
        names.CHECKPOINT_DIGEST_ANNOTATION, names.CHECKPOINT_URL_ANNOTATION, names.SCHEDULED_AT_ANNOTATION,
        names.TRIGGER_ANNOTATION,
    )  # fmt: skip
    told = [[run.metadata.annotations.get(note) for note in notes] for run in (ours, theirs)]
    return ours.spec == theirs.spec and told[0] == told[1]


def parse_scheduled_run(manifest: Mapping[str, Any]) -> ScheduledRun | None:
    """Return a run as its schedule sees it; None if the EvalRun does not name its checkpoint.

    Raises:
        pydantic.ValidationError: the EvalRun is of another version.
    """
    run = EvalRun.from_wire(dict(manifest))
    notes, created = run.metadata.annotations, run.metadata.creation_timestamp
    digest = notes.get(names.CHECKPOINT_DIGEST_ANNOTATION)
    lineage = run.spec.lineage
    if digest is None or created is None or lineage is None or lineage.step is None:
        return None
    status, rollout = run.status or EvalRunStatus(), run.spec.rollout
    complete = _answer(status, ConditionType.COMPLETE) == "True"
    return ScheduledRun(
        name=run.metadata.name,
        uid=run.metadata.uid or "",
        url=notes.get(names.CHECKPOINT_URL_ANNOTATION, run.spec.model.path),
        step=lineage.step,
        digest=digest,
        start=notes.get(names.SCHEDULED_AT_ANNOTATION, ""),
        created=created,
        by_hand=names.TRIGGER_ANNOTATION in notes,
        generated=status.generation_completed_time is not None,
        suspended=_answer(status, ConditionType.SUSPENDED) == "True",
        waits_for_replicas=not complete and _reason(status, ConditionType.ADMITTED) == Reason.WAITING_FOR_REPLICAS,
        ends_early=any(
            _reason(status, kind) in EARLY_ENDS for kind in (ConditionType.GENERATED, ConditionType.COMPLETE)
        ),
        deleting=run.metadata.deletion_timestamp is not None,
        complete=complete,
        succeeded=_answer(status, ConditionType.SUCCEEDED) == "True",
        gate=_answer(status, ConditionType.GATE_PASSED),
        raced_against=next((gate.baseline for gate in run.spec.gates if gate.keep_passing), None),
        stopped_early=bool(status.stopped_early),
        output_url=status.output_url,
        gpus=0 if rollout is None else rollout.initial_replicas * rollout.gpus_per_replica,
        started=status.start_time,
        released=status.generation_completed_time or (status.completion_time if complete else None),
        completed=status.completion_time,
        datasets=tuple(status.datasets),
        keeps_replicas=names.KEPT_ANNOTATION in notes,
        output_tokens=status.output_tokens or 0,
        generating_seconds=status.generating_seconds or 0,
    )


def _answer(status: EvalRunStatus, kind: ConditionType) -> Answer | None:
    condition = find_condition(status, kind)
    return None if condition is None else condition.status


def _reason(status: EvalRunStatus, kind: ConditionType) -> str:
    condition = find_condition(status, kind)
    return "" if condition is None else condition.reason
