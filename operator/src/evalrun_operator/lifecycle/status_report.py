"""Turns decisions into the status: conditions, phase, metrics and events. Pure.

Every reconciliation writes every condition, in the order of their types; the transition time changes only with the
status. The reasons are documented beside the types.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from evalrun_api import names
from evalrun_api.v1alpha1 import (
    Condition,
    ConditionType,
    EvalRun,
    EvalRunStatus,
    Reason,
    find_condition,
)
from evalrun_cluster.objects import StatusEvent
from evalrun_operator.ledger_status import GateState, LedgerStatus
from evalrun_operator.lifecycle.figures import make_figures
from evalrun_operator.lifecycle.phase import choose_reason, derive_phase
from evalrun_operator.policies.condition_text import Answer, RunText, to_condition
from evalrun_operator.policies.generation import NO_CLUSTER, GenerationStep

WARNINGS = frozenset(
    {
        Reason.INVALID_SPEC, Reason.ATTEMPT_FAILED, Reason.CLUSTER_FAILED, Reason.NOT_JUDGED, Reason.REGRESSION,
        Reason.INCONCLUSIVE, Reason.BASELINE_NOT_FOUND, Reason.IMPLAUSIBLE, Reason.BACKOFF_LIMIT_EXCEEDED,
        Reason.DEADLINE_EXCEEDED, Reason.CANNOT_START, Reason.REFUSED, Reason.NAME_TAKEN, Reason.WRITE_FAILED,
        Reason.INTERRUPTED, Reason.INADMISSIBLE, Reason.STOPPED,
    }
)  # fmt: skip
NEWS = WARNINGS | {
    Reason.CLUSTER_PROVISIONED, Reason.CLUSTER_RELEASED, Reason.GENERATING, Reason.ALL_GENERATED, Reason.ALL_JUDGED,
    Reason.SUSPEND_REQUESTED, Reason.NO_REGRESSION, Reason.FINISHED, Reason.TOO_MANY_ACTIVE_RUNS,
    Reason.WAITING_FOR_QUOTA,
}  # fmt: skip
"""Reasons that cause an event when a condition takes them on."""


@dataclass(frozen=True)
class End:
    """An end state."""

    reason: Reason
    message: str
    succeeded: bool = False


@dataclass(frozen=True)
class Report:
    """Findings and decisions of a reconciliation that the status reports."""

    started: bool = True
    settings: Mapping[str, str] | None = None
    """Settings that the run keeps from now on; None: nothing new."""
    baseline_url: str | None = None
    """Address of the baseline that the gate names; None if nothing is new."""
    queued: RunText | None = None
    """Text about the queue that the run waits in; None if the run waits in no queue."""
    stalled: str = ""
    """Reason why the run cannot start; empty if it can."""
    refused: str = ""
    """Reason why the spec is refused; empty if it is accepted."""
    waiting_for_baseline: str = ""
    """Reason why the run waits for its baseline; empty if it does not wait."""
    scaling: RunText | None = None
    """Whether the judge's autoscalers work; None if it has none."""
    closing: str = ""
    """Reason why the run ends before everything is decided; the results so far are being written."""
    closing_reason: Reason = Reason.DEADLINE_EXCEEDED
    """The same as a condition's reason."""
    ledger: LedgerStatus | None = None
    waiting_for: str = ""
    awaited_capacity: str = ""
    """Text about completions that wait while the judge is scaled to zero; empty if none wait."""
    generated: bool = False
    generation: GenerationStep | None = None
    attempts: int = 0
    """The newest attempt seen, once no further attempt starts. An operator that was killed after it created a Job never
    wrote that attempt into the status."""
    suspended: RunText | None = None
    resumed: bool = False
    end: End | None = None


def report_status(run: EvalRun, before: EvalRunStatus, now: datetime, report: Report) -> EvalRunStatus:
    """Return the status that follows `before`."""
    said = _report_conditions(run, before, report)
    conditions = [
        to_condition(kind, text, find_condition(before, kind), run.metadata.generation, now)
        for kind, text in said.items()
    ]
    ended = report.end is not None or bool(report.refused)
    generated = said[ConditionType.GENERATED].status == "True"
    start = before.start_time or (now if report.started and not report.refused else None)
    generation = report.generation
    changes: dict[str, object] = {
        "observed_generation": run.metadata.generation,
        "conditions": conditions,
        "phase": derive_phase({condition.type: condition for condition in conditions}, start is not None),
        "start_time": start,
        "generation_completed_time": (before.generation_completed_time or now) if generated else None,
        "completion_time": (before.completion_time or now) if ended else None,
        "baseline_url": report.baseline_url or before.baseline_url,
        "settings": before.settings if report.settings is None else report.settings,
        "attempts": max(before.attempts, report.attempts, 0 if generation is None else generation.attempts),
        **make_figures(run, before, report.ledger),
    }
    changes["reason"] = choose_reason({condition.type: condition for condition in conditions})
    if generation is not None:
        number = generation.cluster
        changes["ray_cluster_name"] = None if number is None else _cluster_name(run, number)
    elif report.suspended is not None or generated or ended:
        changes["ray_cluster_name"] = None
    return before.model_copy(update=changes)


def replace_applied_condition(
    before: EvalRunStatus, status: EvalRunStatus, text: RunText, generation: int | None, now: datetime
) -> EvalRunStatus:
    """Return the status with its condition Applied replaced. A status without other conditions stays as it is.

    Args:
        before: the status that the API server has.
        status: the status that was decided before anything was written.
        text: text of the condition.
        generation: generation of the spec that was acted on.
        now: the time.
    """
    was = find_condition(before, ConditionType.APPLIED)
    applied = to_condition(ConditionType.APPLIED, text, was, generation, now)
    if was is not None and (was.status, was.reason, was.message) == (applied.status, applied.reason, applied.message):
        applied = was
    others = [condition for condition in status.conditions if condition.type != ConditionType.APPLIED]
    if not others:
        return status
    return status.model_copy(update={"conditions": [*others[:1], applied, *others[1:]]})


def derive_events(before: EvalRunStatus, after: EvalRunStatus) -> tuple[StatusEvent, ...]:
    """Return an event per condition whose reason has changed and whose text is not empty."""
    known = {condition.type: condition.reason for condition in before.conditions}
    events: dict[str, StatusEvent] = {}
    for condition in after.conditions:
        reason = condition.reason
        if reason in NEWS and condition.message and known.get(condition.type) != reason:
            events.setdefault(reason, StatusEvent(reason in WARNINGS, reason, condition.message))
    return tuple(events.values())


def _report_conditions(run: EvalRun, before: EvalRunStatus, report: Report) -> dict[ConditionType, RunText]:
    refused, end = report.refused, report.end
    invalid = refused or (end.message if end is not None and end.reason is Reason.INVALID_SPEC else "")
    accepted = RunText("False", Reason.INVALID_SPEC, invalid) if invalid else _report_accepted(before, report)
    cluster, generated = _report_generation(run, before, report)
    suspended = report.suspended
    if report.waiting_for_baseline:
        accepted = RunText("Unknown", Reason.WAITING_FOR_BASELINE, report.waiting_for_baseline)
    said: dict[ConditionType, RunText] = {
        ConditionType.ACCEPTED: accepted,
        ConditionType.APPLIED: _report_applied(before),
        ConditionType.ADMITTED: _report_admitted(before, report),
        ConditionType.STALLED: (
            RunText("True", Reason.CANNOT_START, report.stalled)
            if report.stalled and end is None
            else RunText("False", Reason.PROGRESSING)
        ),
        ConditionType.CLUSTER_READY: cluster,
        ConditionType.GENERATED: generated,
        ConditionType.JUDGED: _report_judged(before, report),
        ConditionType.DEGRADED: _report_degraded(before, report),
        ConditionType.SUSPENDED: RunText("False", Reason.NOT_SUSPENDED) if suspended is None else suspended,
    }
    if report.scaling is not None:
        said[ConditionType.SCALING_ACTIVE] = report.scaling
    if run.spec.gates:
        said[ConditionType.GATE_PASSED] = _report_gate(before, report)
    if run.spec.attest is not None:
        said[ConditionType.ATTESTED] = _report_attested(before, report)
    if refused:
        said[ConditionType.SUCCEEDED] = RunText("False", Reason.INVALID_SPEC, refused)
        said[ConditionType.COMPLETE] = RunText("True", Reason.INVALID_SPEC, refused)
    elif end is not None:
        said[ConditionType.SUCCEEDED] = RunText("True" if end.succeeded else "False", end.reason, end.message)
        said[ConditionType.COMPLETE] = RunText("True", end.reason, end.message)
    else:
        said[ConditionType.SUCCEEDED] = RunText("Unknown", Reason.RUNNING)
        said[ConditionType.COMPLETE] = RunText("False", Reason.RUNNING)
    return said


def _report_admitted(before: EvalRunStatus, report: Report) -> RunText:
    if report.queued is not None:
        return report.queued
    if report.refused or not report.started:
        return RunText("False", Reason.NOT_STARTED)
    return RunText("True", Reason.RUN_ADMITTED)


def _report_applied(before: EvalRunStatus) -> RunText:
    """Carry over the text about the writes of the last reconciliation, because those of this one are still to come."""
    was = find_condition(before, ConditionType.APPLIED)
    return RunText("True", Reason.ALL_APPLIED) if was is None else _repeat_text(was)


def _report_accepted(before: EvalRunStatus, report: Report) -> RunText:
    """Return the text of the condition Accepted, with the ledger's warnings about idle GPUs: only a change of the spec
    remedies these."""
    if report.ledger is not None and report.ledger.warnings:
        return RunText("True", Reason.SPEC_ACCEPTED, " ".join(f"{warning}." for warning in report.ledger.warnings))
    was = find_condition(before, ConditionType.ACCEPTED)
    said = "" if was is None or was.reason != Reason.SPEC_ACCEPTED else was.message
    return RunText("True", Reason.SPEC_ACCEPTED, said)


def _report_generation(run: EvalRun, before: EvalRunStatus, report: Report) -> tuple[RunText, RunText]:
    """Return the texts of the conditions ClusterReady and Generated."""
    on_ray = run.spec.rollout is not None
    released = RunText("False", Reason.CLUSTER_RELEASED, "Its GPUs are free.") if on_ray else NO_CLUSTER
    was = find_condition(before, ConditionType.GENERATED)
    if report.generated:
        return released, RunText("True", Reason.ALL_GENERATED, "Every completion is in the ledger.")
    if report.closing:
        return released, RunText("False", report.closing_reason, report.closing)
    if report.suspended is not None or report.resumed:
        freeing = RunText("False", Reason.SUSPEND_REQUESTED, "Freed on request.") if on_ray else NO_CLUSTER
        if was is not None and was.reason == Reason.ATTEMPT_FAILED:
            # The failure still counts.
            return freeing, RunText("False", Reason.ATTEMPT_FAILED, was.message)
        return freeing, RunText("False", Reason.SUSPEND_REQUESTED, "Set suspend: false to go on.")
    if report.generation is not None:
        cluster, generated = report.generation.cluster_ready, report.generation.generated
        if report.ledger is not None and report.ledger.paused and generated.reason is Reason.GENERATING:
            generated = replace(generated, message=f"Paused: evalrun ctl er/{run.metadata.name} resume goes on.")
        return released if report.end is not None else cluster, generated
    waiting = RunText("False", Reason.WAITING_FOR_SERVICES, "Aggregator and judge come first.")
    if report.end is not None and was is not None:
        return released, _repeat_text(was)
    return waiting if on_ray else NO_CLUSTER, waiting


def _report_judged(before: EvalRunStatus, report: Report) -> RunText:
    ledger = report.ledger
    if report.closing:
        return RunText("False", report.closing_reason, report.closing)
    if ledger is None:
        was = find_condition(before, ConditionType.JUDGED)
        if was is not None and (was.status == "True" or not report.waiting_for):
            return _repeat_text(was)
        return RunText("False", Reason.WAITING_FOR_SERVICES, report.waiting_for or "Aggregator and judge come first.")
    if ledger.total > 0 and ledger.pending == 0 and ledger.judged + ledger.not_judged >= ledger.total:
        if ledger.not_judged:
            return _report_not_judged(ledger)
        return RunText("True", Reason.ALL_JUDGED, f"All {ledger.total} answers have a verdict.")
    if waits := report.waiting_for or report.awaited_capacity:
        return RunText("False", Reason.WAITING_FOR_SERVICES, waits)
    if ledger.total == ledger.pending:
        return RunText("False", Reason.WAITING_FOR_COMPLETIONS, "There is nothing to judge yet.")
    message = f"{ledger.judged} of {ledger.total} answers have a verdict. {ledger.message}".strip()
    return RunText("False", Reason.JUDGING, message)


def _report_degraded(before: EvalRunStatus, report: Report) -> RunText:
    ledger = report.ledger
    if ledger is not None and ledger.ended:
        if ledger.ended_early:
            message = f"{ledger.total - ledger.judged} of {ledger.total} answers have no verdict: the run ended early."
            return RunText("True", Reason.NOT_JUDGED, message)
        if ledger.not_judged:
            return _report_not_judged(ledger)
        return RunText("False", Reason.ALL_JUDGED)
    was = find_condition(before, ConditionType.DEGRADED)
    if report.end is not None and was is not None:
        return _repeat_text(was)
    return RunText("False", Reason.RUNNING)


def _report_not_judged(ledger: LedgerStatus) -> RunText:
    message = f"{ledger.not_judged} of {ledger.total} answers could not be judged."
    return RunText("True", Reason.NOT_JUDGED, message)


def _report_gate(before: EvalRunStatus, report: Report) -> RunText:
    """Return the text of the condition GatePassed: the aggregator's decision, pending until the run has ended."""
    ledger = report.ledger
    if ledger is None or not ledger.ended:
        was = find_condition(before, ConditionType.GATE_PASSED)
        if was is not None:
            return _repeat_text(was)
        return RunText("Unknown", Reason.GATE_PENDING, "Decided when every verdict is in.")
    answers: dict[GateState, tuple[Answer, Reason]] = {
        GateState.PENDING: ("Unknown", Reason.GATE_PENDING),
        GateState.PASSED: ("True", Reason.NO_REGRESSION),
        GateState.FAILED: ("False", Reason.REGRESSION),
        GateState.INCONCLUSIVE: ("Unknown", Reason.INCONCLUSIVE),
        GateState.NO_BASELINE: ("Unknown", Reason.BASELINE_NOT_FOUND),
        GateState.IMPLAUSIBLE: ("Unknown", Reason.IMPLAUSIBLE),
    }
    return RunText(*answers[ledger.gate], ledger.gate_message)


def _report_attested(before: EvalRunStatus, report: Report) -> RunText:
    """Return the text of the condition Attested. It names the key that signed the results of an ended run."""
    ledger = report.ledger
    if ledger is None or not ledger.ended:
        was = find_condition(before, ConditionType.ATTESTED)
        if was is not None:
            return _repeat_text(was)
        return RunText("Unknown", Reason.RUNNING, "Results are signed when they are written.")
    if ledger.attested_by:
        return RunText("True", Reason.SIGNED, f"Signed by the key {ledger.attested_by}.")
    return RunText("False", Reason.NOT_SIGNED, "The aggregator had no key: sign the results with evalrun attest.")


def _repeat_text(was: Condition) -> RunText:
    """Return the unchanged text of a condition."""
    return RunText(was.status, Reason(was.reason), was.message)


def _cluster_name(run: EvalRun, number: int) -> str:
    return names.ray_cluster(run.metadata.name, run.metadata.uid or "", number)
