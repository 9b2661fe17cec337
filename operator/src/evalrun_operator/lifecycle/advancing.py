"""Brings a run forward: services, cluster, generation, judging. Pure."""

from datetime import timedelta

from evalrun_api.v1alpha1 import ConditionType, EvalRunStatus, Reason, condition_of
from evalrun_operator.lifecycle.decision import IDLE_SECONDS, Decision, decision
from evalrun_operator.lifecycle.desired import generation_objects, services
from evalrun_operator.lifecycle.ending import finish
from evalrun_operator.lifecycle.pausing import held_by_kueue
from evalrun_operator.lifecycle.scaling_words import scaling
from evalrun_operator.lifecycle.situation import Pass, waiting_for
from evalrun_operator.lifecycle.stalling import stalled_words
from evalrun_operator.lifecycle.status_report import End, Report, report_status
from evalrun_operator.policies.generation import Circumstances, Generation, newest_attempt, next_generation, release
from evalrun_runtime.backoff import backoff_seconds


def advance(this: Pass) -> Decision:
    """Bring the run forward: services, cluster, generation, judging."""
    waits = waiting_for(this)
    if this.generated:
        deletions = release(this.observed, this.now, jobs_first=False)
        jobs = {seen.ref for seen in this.observed.of_kind("Job")}  # a generator that has all, ends by itself
        kept = jobs | {seen.ref for seen in this.observed.of_kind("RayJob")}
        stalled = stalled_words(this, waits)
        report = Report(
            ledger=this.observed.ledger,
            waiting_for=waits,
            generated=True,
            attempts=newest_attempt(this.observed),
            stalled=stalled,
            scaling=scaling(this),
        )
        status = report_status(this.run, this.before, this.now, report)
        deletions = tuple(seen for seen in deletions if seen.ref not in jobs)
        return decision(this, status, services(this), kept, deletions, this.settings.poll_seconds)
    generation = next_generation(_circumstances(this, waits))
    if generation.exhausted:
        return finish(this, End(Reason.BACKOFF_LIMIT_EXCEEDED, _exhausted(this, generation)), generation)
    report = Report(
        ledger=this.observed.ledger,
        waiting_for=waits,
        generation=generation,
        queued=held_by_kueue(this),
        stalled=stalled_words(this, waits),
        scaling=scaling(this),
    )
    status = report_status(this.run, this.before, this.now, report)
    desired, kept = generation_objects(this, generation)
    return decision(
        this, status, [*services(this), *desired], kept, generation.delete, _next_look(this, generation, status)
    )


def _circumstances(this: Pass, waits: str) -> Circumstances:
    generated = condition_of(this.before, ConditionType.GENERATED)
    settings = this.settings
    return Circumstances(
        run=this.plan.run.name,
        on_ray=this.run.spec.rollout is not None,
        observed=this.observed,
        attempts=this.before.attempts,
        failed=generated is not None and generated.reason == Reason.ATTEMPT_FAILED,
        backoff_limit=this.run.spec.backoff_limit,
        waiting_for=waits,
        now=this.now,
        backoff=lambda failures: timedelta(
            seconds=backoff_seconds(failures, settings.backoff_seconds, settings.longest_backoff_seconds)
        ),
    )


def _next_look(this: Pass, generation: Generation, status: EvalRunStatus) -> float:
    if _steps(status) != _steps(this.before):
        return 0.0  # some steps are written down first and taken in the next pass
    wait = this.settings.poll_seconds if this.observed.ledger is not None else IDLE_SECONDS / 4
    if generation.due is not None:
        wait = min(wait, max(0.1, (generation.due - this.now).total_seconds()))
    return wait


def _steps(status: EvalRunStatus) -> tuple[object, ...]:
    """Return what of a status the next pass decides by."""
    return status.attempts, *((condition.type, condition.reason) for condition in status.conditions)


def _exhausted(this: Pass, generation: Generation) -> str:
    limit = this.run.spec.backoff_limit
    return f"More than backoffLimit ({limit}) attempts failed; the last: {generation.exhausted}"
