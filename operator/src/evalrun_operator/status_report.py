"""From what was decided to what is said: conditions, phase, figures, events. Pure.

Every condition is written in every pass, in the order of their types; the time of a transition changes only with the
status. The reasons are documented beside the types.
"""

from dataclasses import dataclass
from datetime import datetime

from evalrun_operator import names
from evalrun_operator.api.v1alpha1 import (
    Condition,
    ConditionType,
    DatasetStatus,
    EvalRun,
    EvalRunStatus,
    FigureInterval,
    Phase,
    Reason,
)
from evalrun_operator.ledger_status import DatasetCounts, GateDecision, LedgerStatus
from evalrun_operator.policies.generation import NO_CLUSTER, Generation, Said

PRIMARY_DATASET = "humaneval"
"""The dataset whose accepted@1 stands in the column, where the run has it."""
WARNINGS = frozenset(
    {
        Reason.INVALID_SPEC, Reason.ATTEMPT_FAILED, Reason.CLUSTER_FAILED, Reason.NOT_JUDGED, Reason.REGRESSION,
        Reason.INCONCLUSIVE, Reason.BASELINE_NOT_FOUND, Reason.BACKOFF_LIMIT_EXCEEDED, Reason.DEADLINE_EXCEEDED,
    }
)  # fmt: skip
NEWS = WARNINGS | {
    Reason.CLUSTER_PROVISIONED, Reason.CLUSTER_RELEASED, Reason.GENERATING, Reason.ALL_GENERATED, Reason.ALL_JUDGED,
    Reason.SUSPEND_REQUESTED, Reason.NO_REGRESSION, Reason.FINISHED,
}  # fmt: skip
"""Reasons that are worth an event when a condition takes them on."""


@dataclass(frozen=True)
class StatusEvent:
    """An event of the run, as `kubectl describe` lists it."""

    warning: bool
    reason: str
    message: str


@dataclass(frozen=True)
class Report:
    """What a pass found and decided, as far as the status tells it."""

    started: bool = True
    baseline_url: str | None = None
    """Where the baseline was found that the gate names; None: nothing new."""
    refused: str = ""
    """Why the spec cannot be run."""
    ledger: LedgerStatus | None = None
    waiting_for: str = ""
    generated: bool = False
    generation: Generation | None = None
    suspended: Said | None = None
    resumed: bool = False
    end: tuple[Reason, str, bool] | None = None
    """Reason, message, and whether the run succeeded."""


def condition_of(status: EvalRunStatus, kind: ConditionType) -> Condition | None:
    """Give a condition of a status."""
    return next((condition for condition in status.conditions if condition.type == kind), None)


def report_status(run: EvalRun, before: EvalRunStatus, now: datetime, report: Report) -> EvalRunStatus:
    """Give the status that follows `before`."""
    said = _said(run, before, report)
    conditions = [
        _condition(before, kind, status, reason, message, run.metadata.generation, now)
        for kind, (status, reason, message) in said.items()
    ]
    ended = report.end is not None or bool(report.refused)
    generated = said[ConditionType.GENERATED][0] == "True"
    start = before.start_time or (None if report.refused else now)
    generation = report.generation
    changes: dict[str, object] = {
        "observed_generation": run.metadata.generation,
        "conditions": conditions,
        "phase": phase_of({condition.type: condition for condition in conditions}, start is not None),
        "start_time": start,
        "generation_completed_time": (before.generation_completed_time or now) if generated else None,
        "completion_time": (before.completion_time or now) if ended else None,
        "baseline_url": report.baseline_url or before.baseline_url,
        **_figures(run, before, report.ledger),
    }
    if generation is not None:
        changes["attempts"] = max(before.attempts, generation.attempts)
        number = generation.cluster
        changes["ray_cluster_name"] = None if number is None else _cluster_name(run, number)
    elif report.suspended is not None or generated or ended:
        changes["ray_cluster_name"] = None
    return before.model_copy(update=changes)


def phase_of(conditions: dict[str, Condition], started: bool) -> Phase:
    """Derive the one word from the conditions."""

    def holds(kind: ConditionType) -> bool:
        return kind in conditions and conditions[kind].status == "True"

    if holds(ConditionType.COMPLETE):
        if not holds(ConditionType.SUCCEEDED):
            return "Failed"
        return "Degraded" if holds(ConditionType.DEGRADED) else "Succeeded"
    if holds(ConditionType.SUSPENDED):
        return "Suspended"
    if holds(ConditionType.GENERATED):
        return "Judging"
    generated = conditions[ConditionType.GENERATED].reason
    if generated in {Reason.GENERATING, Reason.ATTEMPT_FAILED}:
        return "Generating"
    return "Preparing" if started else "Pending"


def events_of(before: EvalRunStatus, after: EvalRunStatus) -> tuple[StatusEvent, ...]:
    """Give what is new in a status: one event a reason that a condition has taken on and says something about."""
    known = {condition.type: condition.reason for condition in before.conditions}
    events: dict[str, StatusEvent] = {}
    for condition in after.conditions:
        reason = condition.reason
        if reason in NEWS and condition.message and known.get(condition.type) != reason:
            events.setdefault(reason, StatusEvent(reason in WARNINGS, reason, condition.message))
    return tuple(events.values())


Words = tuple[str, Reason, str]
"""Status, reason and message."""


def _said(run: EvalRun, before: EvalRunStatus, report: Report) -> dict[ConditionType, Words]:
    refused, end = report.refused, report.end
    invalid = refused or (end[1] if end is not None and end[0] is Reason.INVALID_SPEC else "")
    accepted = ("False", Reason.INVALID_SPEC, invalid) if invalid else _accepted(before, report)
    cluster, generated = _generation_words(run, before, report)
    suspended = report.suspended
    said: dict[ConditionType, Words] = {
        ConditionType.ACCEPTED: accepted,
        ConditionType.CLUSTER_READY: cluster,
        ConditionType.GENERATED: generated,
        ConditionType.JUDGED: _judged(before, report),
        ConditionType.DEGRADED: _degraded(before, report),
        ConditionType.SUSPENDED: ("False", Reason.NOT_SUSPENDED, "") if suspended is None else _words(suspended),
    }
    if run.spec.gate is not None:
        said[ConditionType.GATE_PASSED] = _gate(before, report)
    if refused:
        said[ConditionType.SUCCEEDED] = ("False", Reason.INVALID_SPEC, refused)
        said[ConditionType.COMPLETE] = ("True", Reason.INVALID_SPEC, refused)
    elif end is not None:
        reason, message, succeeded = end
        said[ConditionType.SUCCEEDED] = ("True" if succeeded else "False", reason, message)
        said[ConditionType.COMPLETE] = ("True", reason, message)
    else:
        said[ConditionType.SUCCEEDED] = ("Unknown", Reason.RUNNING, "")
        said[ConditionType.COMPLETE] = ("False", Reason.RUNNING, "")
    return said


def _accepted(before: EvalRunStatus, report: Report) -> Words:
    """Accept the spec; where it leaves GPUs idle, say so there: it is the spec that must change."""
    if report.ledger is not None and report.ledger.warnings:
        return "True", Reason.SPEC_ACCEPTED, " ".join(f"{warning}." for warning in report.ledger.warnings)
    was = condition_of(before, ConditionType.ACCEPTED)
    said = "" if was is None or was.reason != Reason.SPEC_ACCEPTED else was.message
    return "True", Reason.SPEC_ACCEPTED, said


def _generation_words(run: EvalRun, before: EvalRunStatus, report: Report) -> tuple[Words, Words]:
    """Say what ClusterReady and Generated are."""
    on_ray = run.spec.rollout is not None
    no_cluster = _words(NO_CLUSTER)
    released: Words = ("False", Reason.CLUSTER_RELEASED, "Its GPUs are free.") if on_ray else no_cluster
    was = condition_of(before, ConditionType.GENERATED)
    if report.generated:
        return released, ("True", Reason.ALL_GENERATED, "Every completion is in the ledger.")
    if report.suspended is not None or report.resumed:
        freeing: Words = ("False", Reason.SUSPEND_REQUESTED, "Freed on request.") if on_ray else no_cluster
        if was is not None and was.reason == Reason.ATTEMPT_FAILED:
            return freeing, ("False", Reason.ATTEMPT_FAILED, was.message)  # so that the failure still counts
        return freeing, ("False", Reason.SUSPEND_REQUESTED, "Set suspend: false to go on.")
    if report.generation is not None:
        cluster = released if report.end is not None else _words(report.generation.cluster_ready)
        return cluster, _words(report.generation.generated)
    waiting: Words = ("False", Reason.WAITING_FOR_SERVICES, "Aggregator and judge come first.")
    if report.end is not None and was is not None:
        return released, (was.status, Reason(was.reason), was.message)
    return waiting if on_ray else no_cluster, waiting


def _judged(before: EvalRunStatus, report: Report) -> Words:
    ledger = report.ledger
    if ledger is None:
        was = condition_of(before, ConditionType.JUDGED)
        if was is not None and (was.status == "True" or not report.waiting_for):
            return was.status, Reason(was.reason), was.message
        return "False", Reason.WAITING_FOR_SERVICES, report.waiting_for or "Aggregator and judge come first."
    if ledger.total > 0 and ledger.pending == 0 and ledger.judged + ledger.not_judged >= ledger.total:
        if ledger.not_judged:
            return "True", Reason.NOT_JUDGED, f"{ledger.not_judged} of {ledger.total} answers could not be judged."
        return "True", Reason.ALL_JUDGED, f"All {ledger.total} answers have a verdict."
    if report.waiting_for:
        return "False", Reason.WAITING_FOR_SERVICES, report.waiting_for
    if ledger.total == ledger.pending:
        return "False", Reason.WAITING_FOR_COMPLETIONS, "There is nothing to judge yet."
    message = f"{ledger.judged} of {ledger.total} answers have a verdict. {ledger.message}".strip()
    return "False", Reason.JUDGING, message


def _degraded(before: EvalRunStatus, report: Report) -> Words:
    ledger = report.ledger
    if ledger is not None and ledger.ended:
        if ledger.not_judged:
            return "True", Reason.NOT_JUDGED, f"{ledger.not_judged} of {ledger.total} answers could not be judged."
        return "False", Reason.ALL_JUDGED, ""
    was = condition_of(before, ConditionType.DEGRADED)
    if report.end is not None and was is not None:
        return was.status, Reason(was.reason), was.message
    return "False", Reason.RUNNING, ""


def _gate(before: EvalRunStatus, report: Report) -> Words:
    """Copy the aggregator's decision; only an ended run has one."""
    ledger = report.ledger
    if ledger is None or not ledger.ended:
        was = condition_of(before, ConditionType.GATE_PASSED)
        if was is not None:
            return was.status, Reason(was.reason), was.message
        return "Unknown", Reason.GATE_PENDING, "Decided when every verdict is in."
    status, reason = {
        GateDecision.PENDING: ("Unknown", Reason.GATE_PENDING),
        GateDecision.PASSED: ("True", Reason.NO_REGRESSION),
        GateDecision.FAILED: ("False", Reason.REGRESSION),
        GateDecision.INCONCLUSIVE: ("Unknown", Reason.INCONCLUSIVE),
        GateDecision.NO_BASELINE: ("Unknown", Reason.BASELINE_NOT_FOUND),
    }[ledger.gate]
    return status, reason, ledger.gate_message


def _words(said: Said) -> Words:
    return "True" if said.status else "False", said.reason, said.message


def _condition(
    before: EvalRunStatus,
    kind: ConditionType,
    status: str,
    reason: Reason,
    message: str,
    generation: int | None,
    now: datetime,
) -> Condition:
    was = condition_of(before, kind)
    since = was.last_transition_time if was is not None and was.status == status else now
    return Condition.model_validate(
        {
            "type": str(kind), "status": status, "reason": str(reason), "message": message[:4096],
            "observed_generation": generation, "last_transition_time": since,
        }
    )  # fmt: skip


def _figures(run: EvalRun, before: EvalRunStatus, ledger: LedgerStatus | None) -> dict[str, object]:
    if ledger is None or ledger.total == 0:
        return {}
    claim = names.ledger_claim(run.metadata.name, run.metadata.uid or "")
    datasets = [_dataset(counts) for counts in ledger.datasets]
    primary = next((item for item in datasets if item.name == PRIMARY_DATASET), datasets[0])
    figures: dict[str, object] = {
        "datasets": datasets,
        "progress": f"{ledger.judged}/{ledger.total}",
        "not_judged": str(ledger.not_judged),
        "accepted_at_1": primary.accepted_at_1 or before.accepted_at_1,
        "output_url": names.claim_url(ledger.output_url, claim) or before.output_url,
        "wandb_url": ledger.wandb_url or before.wandb_url,
    }
    if ledger.elapsed_seconds > 0:
        figures["tokens_per_second"] = f"{ledger.output_tokens / ledger.elapsed_seconds:.1f}"
        figures["problems_per_second"] = f"{ledger.judged / ledger.elapsed_seconds:.2f}"
    if ledger.gpu_seconds > 0 and ledger.accepted > 0:
        figures["gpu_seconds_per_solved"] = f"{ledger.gpu_seconds / ledger.accepted:.2f}"
    return figures


def _dataset(counts: DatasetCounts) -> DatasetStatus:
    figure = counts.accepted_at_1
    return DatasetStatus.model_validate(
        {
            "name": counts.name,
            "total": counts.total,
            "generated": counts.generated,
            "judged": counts.judged,
            "not_judged": counts.not_judged,
            "accepted_at_1": None if figure is None else f"{figure.value:.4f}",
            "interval": None if figure is None else FigureInterval(low=f"{figure.low:.4f}", high=f"{figure.high:.4f}"),
        }
    )


def _cluster_name(run: EvalRun, number: int) -> str:
    return names.ray_cluster(run.metadata.name, number)
