"""Advances a run: services, cluster, generation, judging. Pure."""

from datetime import timedelta

from evalrun_api.v1alpha1 import ConditionType, EvalRunStatus, Reason, find_condition
from evalrun_operator.lifecycle.decision import IDLE_SECONDS, Decision, decision
from evalrun_operator.lifecycle.desired import generation_objects, services
from evalrun_operator.lifecycle.run_end import finish
from evalrun_operator.lifecycle.scaling_words import explain_capacity_wait, report_scaling
from evalrun_operator.lifecycle.situation import ReconcileContext, explain_unready_parts, find_cut_off_aggregator
from evalrun_operator.lifecycle.start_obstacles import explain_stall
from evalrun_operator.lifecycle.status_report import End, Report, report_status
from evalrun_operator.lifecycle.suspension import explain_kueue_hold, explain_turn_wait
from evalrun_operator.policies.generation import Circumstances, GenerationStep, newest_attempt, next_generation, release
from evalrun_runtime.backoff import backoff_seconds


def advance(context: ReconcileContext) -> Decision:
    """Advance the run: services, cluster, generation, judging."""
    waits = explain_unready_parts(context)
    if context.generated:
        deletions = release(context.observed, context.now, jobs_first=False)
        # A generator that has all completions ends by itself, so its Job stays.
        jobs = {seen.ref for seen in context.observed.find_by_kind("Job")}
        kept = jobs | {seen.ref for seen in context.observed.find_by_kind("RayJob")}
        stalled = explain_stall(context, waits)
        report = Report(
            ledger=context.observed.ledger,
            waiting_for=waits,
            awaited_capacity=explain_capacity_wait(context),
            generated=True,
            attempts=newest_attempt(context.observed),
            stalled=stalled,
            scaling=report_scaling(context),
        )
        status = report_status(context.run, context.before, context.now, report)
        deletions = tuple(seen for seen in deletions if seen.ref not in jobs)
        gone = [*deletions, *find_cut_off_aggregator(context)]
        return decision(context, status, services(context), kept, gone, context.settings.poll_seconds)
    generation = next_generation(_circumstances(context, waits))
    if generation.exhausted:
        return finish(context, End(Reason.BACKOFF_LIMIT_EXCEEDED, _explain_exhaustion(context, generation)), generation)
    report = Report(
        ledger=context.observed.ledger,
        waiting_for=waits,
        awaited_capacity=explain_capacity_wait(context),
        generation=generation,
        queued=explain_kueue_hold(context) or explain_turn_wait(context),
        stalled=explain_stall(context, waits),
        scaling=report_scaling(context),
    )
    status = report_status(context.run, context.before, context.now, report)
    desired, kept = generation_objects(context, generation)
    return decision(
        context,
        status,
        [*services(context), *desired],
        kept,
        [*generation.delete, *find_cut_off_aggregator(context)],
        _next_look(context, generation, status),
    )


def _circumstances(context: ReconcileContext, waits: str) -> Circumstances:
    generated = find_condition(context.before, ConditionType.GENERATED)
    settings = context.settings
    return Circumstances(
        run=context.plan.run.name,
        on_ray=context.run.spec.rollout is not None and context.observed.kept is None,
        observed=context.observed,
        attempts=context.before.attempts,
        failed=generated is not None and generated.reason == Reason.ATTEMPT_FAILED,
        backoff_limit=context.run.spec.backoff_limit,
        waiting_for=waits,
        now=context.now,
        backoff=lambda failures: timedelta(
            seconds=backoff_seconds(failures, settings.backoff_seconds, settings.max_backoff_seconds)
        ),
    )


def _next_look(context: ReconcileContext, generation: GenerationStep, status: EvalRunStatus) -> float:
    if _steps(status) != _steps(context.before):
        # Some steps are only written into the status now, and the next reconciliation acts on them.
        return 0.0
    wait = context.settings.poll_seconds if context.observed.ledger is not None else IDLE_SECONDS / 4
    if generation.due is not None:
        wait = min(wait, max(0.1, (generation.due - context.now).total_seconds()))
    return wait


def _steps(status: EvalRunStatus) -> tuple[object, ...]:
    """Return the fields of a status on which the next reconciliation depends."""
    return status.attempts, *((condition.type, condition.reason) for condition in status.conditions)


def _explain_exhaustion(context: ReconcileContext, generation: GenerationStep) -> str:
    limit = context.run.spec.backoff_limit
    return f"More than backoffLimit ({limit}) attempts failed; the last: {generation.exhausted}"
