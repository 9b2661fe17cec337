"""Ends a run: with its results, for a reason that no attempt can fix, or because it was deleted. Pure."""

from dataclasses import replace
from datetime import datetime, timedelta

from evalrun_api import names
from evalrun_api.v1alpha1 import ConditionType, EvalRunStatus, Reason, find_condition
from evalrun_operator.ledger_status import RunState
from evalrun_operator.lifecycle.decision import Decision, decision
from evalrun_operator.lifecycle.desired import ledger_objects
from evalrun_operator.lifecycle.situation import (
    ReconcileContext,
    aggregator_restarts,
    explain_unready_parts,
    has_ledger_failed,
    holds,
)
from evalrun_operator.lifecycle.start_obstacles import obstacle_to_start
from evalrun_operator.lifecycle.status_report import End, Report, report_status
from evalrun_operator.policies.deadline import deadline
from evalrun_operator.policies.generation import GenerationStep, newest_attempt, release
from evalrun_operator.policies.start import gives_up_at
from evalrun_runtime.exits import EndCause, ExitCode

WRITE_SECONDS = 1800.0
"""Seconds after its deadline in which a run's outputs may still be written."""
ABSENT_SECONDS = 120.0
"""Seconds after its deadline for which a run waits for a ledger that does not reply or does not react."""
CLOSE_SECONDS = 1.0
"""Seconds between two checks whether the outputs are written."""


def find_early_end(context: ReconcileContext) -> End | None:
    """Return the end if the run ends now, with its results or for a reason that no further attempt can fix."""
    spec, ledger = context.run.spec, context.observed.ledger
    if ledger is not None and ledger.ended:
        if ledger.ended_early:
            said = f"{ledger.ended_early}. What there was by then is at {context.output_url}, marked partial."
            return End(Reason.STOPPED if ledger.stopped_by_user else Reason.DEADLINE_EXCEEDED, said)
        if ledger.judged == 0 and ledger.not_judged > 0:
            return End(Reason.NOT_JUDGED, "The judge could not tell about a single answer: see its pods and logs.")
        return End(Reason.FINISHED, f"The outputs are at {context.output_url}.", succeeded=True)
    if ledger is not None and ledger.stopped_by_user and ledger.state is not RunState.FAILED:
        return End(Reason.STOPPED, f"{ledger.ended_early}.")
    waits, limit = _waits(context), _deadline(context)
    if limit is not None and context.now >= limit:
        return End(Reason.DEADLINE_EXCEEDED, f"activeDeadlineSeconds ({spec.active_deadline_seconds}) have passed.")
    stalled = find_condition(context.before, ConditionType.STALLED)
    if stalled is not None and stalled.status == "True" and not waits:
        gives_up = gives_up_at(stalled.last_transition_time, context.settings.start_deadline_seconds)
        # A new operator makes its own writes first: the recorded refusal may be over.
        if gives_up is not None and context.now >= gives_up and context.observed.write_failures is not None:
            obstacle = obstacle_to_start(context, explain_unready_parts(context))
            if obstacle:
                return End(Reason.CANNOT_START, f"{obstacle}.")
    refused = _find_part_refusal(context)
    if refused is not None:
        return refused
    if ledger is not None and has_ledger_failed(context) and aggregator_restarts(context) >= spec.backoff_limit:
        return End(Reason.BACKOFF_LIMIT_EXCEEDED, f"The ledger cannot go on: {ledger.message}")
    generated = find_condition(context.before, ConditionType.GENERATED)
    if ledger is None and generated is not None and generated.reason == Reason.STOPPED:
        # The ledger knows more, but may be restarting. `may_close` keeps the run open until the ledger replies.
        return End(Reason.STOPPED, "It was stopped.")
    return None


def _find_part_refusal(context: ReconcileContext) -> End | None:
    """Return the end of a run whose input one of its pods refuses."""
    spec, observed = context.run.spec, context.observed
    for _, pod in observed.pods(names.AGGREGATOR):
        if pod.exit_code != ExitCode.BAD_INPUT:
            continue
        # An image from before the termination record leaves plain text. Its run ends below, after as many restarts as
        # for any bad input.
        if pod.last_words is not None and pod.last_words.cause is EndCause.AUDIT_FAILED:
            return End(Reason.AUDIT_FAILED, pod.last_words.text)
        if pod.restarts >= spec.backoff_limit:
            return End(Reason.INVALID_SPEC, f"The aggregator refuses the spec: {pod.trouble}")
    for _, pod in observed.pods(names.RAY):
        # If the run continued, the worker would fetch the model again and again.
        if pod.exit_code == ExitCode.BAD_INPUT and pod.failed == names.CHECKPOINT:
            return End(Reason.INVALID_SPEC, f"The model cannot be fetched: {pod.trouble}")
    return None


def _waits(context: ReconcileContext) -> bool:
    """Return whether the run is suspended, queued, or resuming: no deadline runs meanwhile."""
    admitted = find_condition(context.before, ConditionType.ADMITTED)
    queued = admitted is not None and admitted.status == "False"
    return context.run.spec.suspend or holds(context.before, ConditionType.SUSPENDED) or queued


def _deadline(context: ReconcileContext) -> datetime | None:
    """Return when the run exceeds its deadline; None while no deadline runs."""
    changes = (find_condition(context.before, kind) for kind in (ConditionType.SUSPENDED, ConditionType.ADMITTED))
    return deadline(
        context.before.start_time or context.now,
        [one.last_transition_time for one in changes if one is not None],
        None if _waits(context) else context.run.spec.active_deadline_seconds,
    )


def may_close(context: ReconcileContext, end: End) -> bool:
    """Return whether the ledger should write partial results before the run ends.

    That is so if the run ends because of its deadline, or because it was stopped.
    """
    limit, ledger = _deadline(context), context.observed.ledger
    if end.reason is Reason.STOPPED:
        return ledger is None or not ledger.ended
    if end.reason is not Reason.DEADLINE_EXCEEDED or limit is None:
        return False
    late, known = (context.now - limit).total_seconds(), any(dataset.generated for dataset in context.before.datasets)
    # The ledger may be restarting.
    if ledger is None:
        return known and late < ABSENT_SECONDS
    if ledger.ended or ledger.state is RunState.FAILED or ledger.pending == ledger.total:
        return False
    judged = find_condition(context.before, ConditionType.JUDGED)
    if judged is None or judged.reason != Reason.DEADLINE_EXCEEDED:
        # The ledger has not received the request yet, however late it is: the operator may have been away.
        return True
    # A ledger that does not end the run cannot: its disk is full, or it is older than this operator.
    return late < (WRITE_SECONDS if ledger.ended_early else ABSENT_SECONDS)


def close(context: ReconcileContext, end: End) -> Decision:
    """Free the GPUs and the judge and have the ledger write partial results. The run ends once they are written."""
    report = Report(
        ledger=context.observed.ledger,
        generated=context.generated,
        attempts=newest_attempt(context.observed),
        closing=f"{end.message} What there is by now is being written, marked partial.",
        closing_reason=end.reason,
    )
    status = report_status(context.run, context.before, context.now, report)
    kept = {seen.ref for seen in context.observed.find_by_kind("Job", "RayJob", "RayCluster")}
    deletions = release(context.observed, context.now, jobs_first=False)
    decided = decision(context, status, ledger_objects(context), kept, deletions, CLOSE_SECONDS)
    return replace(decided, end_early=end.message.rstrip("."))


def finish(context: ReconcileContext, end: End, generation: GenerationStep | None = None) -> Decision:
    """End the run: GPUs and judge are released, the aggregator stays to report."""
    report = Report(
        ledger=context.observed.ledger,
        generated=context.generated,
        generation=generation,
        attempts=newest_attempt(context.observed),
        end=end,
    )
    status = report_status(context.run, context.before, context.now, report)
    return _release_ended_run(context, status)


def keep_ended_run(context: ReconcileContext) -> Decision:
    """Keep an ended run unchanged until its TTL."""
    return _release_ended_run(context, context.before)


def _release_ended_run(context: ReconcileContext, status: EvalRunStatus) -> Decision:
    """Remove the judge, and later everything but the volume. An ended run is never written to again."""
    completed, spec = status.completion_time or context.now, context.run.spec
    left = completed + timedelta(seconds=spec.aggregator.keep_seconds_after_finished) - context.now
    deletions = release(context.observed, context.now, jobs_first=False)
    kept = {seen.ref for seen in context.observed.find_by_kind("PersistentVolumeClaim")}
    ttl = spec.ttl_seconds_after_finished
    expires = None if ttl is None else completed + timedelta(seconds=ttl)
    if expires is not None and context.now >= expires and holds(context.before, ConditionType.COMPLETE):
        # The end is written, so everybody who waits for it has seen it.
        return Decision(status, expired=True)
    if left <= timedelta() or _never_ran(status):
        wait = None if expires is None else max(1.0, (expires - context.now).total_seconds())
        return decision(context, status, [], kept, deletions, wait)
    left = left if expires is None else min(left, expires - context.now)
    kept |= {seen.ref for seen in context.observed.find_by_kind("Job", "RayJob")}
    kept |= {seen.ref for seen in context.observed.objects.values() if seen.component == names.AGGREGATOR}
    wait = max(1.0, min(left.total_seconds(), context.settings.resync_seconds))
    return decision(context, status, [], kept, deletions, wait)


def _never_ran(status: EvalRunStatus) -> bool:
    """Return whether a run ended because its parts could not run. Its aggregator would only crash again and again."""
    succeeded = find_condition(status, ConditionType.SUCCEEDED)
    return succeeded is not None and succeeded.reason in {Reason.CANNOT_START, Reason.INVALID_SPEC}


def leave(context: ReconcileContext) -> Decision:
    """Delete the objects of a deleted run. The garbage collector would wait until all foreign finalizers are gone."""
    claims = {seen.ref for seen in context.observed.find_by_kind("PersistentVolumeClaim")}
    return decision(context, context.before, [], claims, release(context.observed, context.now, jobs_first=False))
