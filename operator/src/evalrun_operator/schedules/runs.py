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
    """Of the checkpoint."""
    step: int
    digest: str
    start: str
    """The start that made it, as text: runs of one start are not in each other's way."""
    created: datetime
    by_hand: bool = False
    """A start by hand made it: no later start of the clock replaces it."""
    generated: bool = False
    """Every answer is in its ledger."""
    suspended: bool = False
    """It holds no GPU on request."""
    waits_for_replicas: bool = False
    """It would generate now, and its schedule keeps the replicas."""
    ends_early: bool = False
    """It was stopped, or its deadline has passed: it generates no more, though its outputs may still be written."""
    deleting: bool = False
    complete: bool = False
    succeeded: bool = False
    gate: Answer | None = None
    """The gate's condition; None without a gate."""
    raced_against: str | None = None
    """The baseline of its gates that keep what passes: a race's."""
    stopped_early: bool = False
    output_url: str | None = None
    gpus: int = 0
    started: datetime | None = None
    released: datetime | None = None
    """Time at which the GPUs were released."""
    completed: datetime | None = None
    datasets: tuple[DatasetStatus, ...] = ()
    keeps_replicas: bool = False
    """Its replicas are its schedule's, which knows what of their GPU seconds this run pays."""
    output_tokens: int = 0
    generating_seconds: int = 0
    """In which at least one answer was being drawn."""
    gone: bool = False
    """It has been deleted, and what is remembered of it is not written yet."""

    def gpu_hours(self, now: datetime) -> Decimal:
        """Return GPUs times hours from the run's start until they were let go, or until now."""
        if self.started is None:
            return Decimal(0)
        seconds = max(0.0, ((self.released or now) - self.started).total_seconds())
        return Decimal(self.gpus) * Decimal(round(seconds)) / 3600


def find_schedule(manifest: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return name and uid of the EvalSchedule that controls a run; None if none does."""
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
    """Return whether an EvalRun is the one that a schedule would make: its spec, and what the schedule reads of it.

    An equal run evaluates the same, whoever made it.

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
    """Return a run as its schedule sees it; None if it does not say which checkpoint it evaluates.

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
