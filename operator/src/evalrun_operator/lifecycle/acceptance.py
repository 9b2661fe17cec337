"""The first step: accepts or refuses the spec, or waits for its baseline run or a queue position. Pure."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from evalrun_api.api_model import Resources
from evalrun_api.quantities import above_limits
from evalrun_api.v1alpha1 import ConditionType, EvalRun, EvalRunSpec, EvalRunStatus, Phase, Reason
from evalrun_operator.lifecycle.decision import IDLE_SECONDS, Decision, decision
from evalrun_operator.lifecycle.frozen import freeze_settings
from evalrun_operator.lifecycle.run_end import keep_ended_run
from evalrun_operator.lifecycle.situation import ReconcileContext, holds
from evalrun_operator.lifecycle.status_report import Report, derive_events, report_status
from evalrun_operator.policies.admission import QueuePosition
from evalrun_operator.policies.allow_lists import find_refusal
from evalrun_operator.policies.condition_text import RunText
from evalrun_operator.settings import OperatorSettings

BASELINE_SECONDS = 5.0
"""Seconds between two checks whether the baseline has ended: the end of another run does not wake this run."""
BASELINE_COMES_SECONDS = 60.0
"""Seconds after the run's creation within which its baseline may be created: both may come from the same file."""
ENDED: frozenset[Phase | str] = frozenset({"Succeeded", "Degraded", "Failed"})


def accept(context: ReconcileContext) -> Decision:
    """Accept the spec, or refuse it.

    `startTime` makes the spec immutable, so it is written before all else. A refusal lasts until the spec changes,
    because clients that waited for the condition Complete have stopped waiting.
    """
    if (
        holds(context.before, ConditionType.COMPLETE)
        and context.before.observed_generation == context.run.metadata.generation
    ):
        return keep_ended_run(context)
    baseline = context.observed.baseline
    problem = (
        explain_unsupported_spec(context.run, context.settings)
        or _find_refusal(context)
        or _explain_missing_baseline(context)
    )
    if problem:
        return refuse(context.run, problem, context.now)
    waits = _explain_baseline_wait(context)
    if waits:
        status = report_status(
            context.run, context.before, context.now, Report(started=False, waiting_for_baseline=waits)
        )
        return decision(context, status, requeue_after=BASELINE_SECONDS)
    if context.run.spec.suspend:
        said = RunText("True", Reason.SUSPEND_REQUESTED, "Nothing was made yet. Set suspend: false to start.")
        return decision(
            context, report_status(context.run, context.before, context.now, Report(started=False, suspended=said))
        )
    waits_for_place = explain_queue_wait(context.observed.place, context.settings.max_active_runs)
    if waits_for_place is not None:
        status = report_status(context.run, context.before, context.now, Report(started=False, queued=waits_for_place))
        return decision(context, status, requeue_after=IDLE_SECONDS)
    report = Report(
        started=True,
        baseline_url=None if baseline is None else baseline.output_url,
        settings=freeze_settings(context.settings),
    )
    status = report_status(context.run, context.before, context.now, report)
    return decision(context, status, requeue_after=0.0)


def _find_refusal(context: ReconcileContext) -> str:
    """Return what the chart's allow-lists refuse; empty if they accept the spec, or if the API server enforces them."""
    return find_refusal(context.run.spec.to_wire(), context.plan.run.namespace, context.settings.allowed)


def explain_queue_wait(place: QueuePosition, max_active: int) -> RunText | None:
    """Return the condition of a run that waits in the queue, or None once the run is admitted."""
    if place.position == 0:
        return None
    message = (
        f"Number {place.position} in the queue: {place.active} runs are active, and the operator allows {max_active} "
        "(operator.maxActiveRuns). It starts when those before it have ended; nothing needs to be done."
    )
    return RunText("False", Reason.TOO_MANY_ACTIVE_RUNS, message)


def _explain_missing_baseline(context: ReconcileContext) -> str:
    """Return why the EvalRun that the gates name can never be their baseline; empty if it can, or if none is named."""
    named, baseline = context.run.spec.baseline_run, context.observed.baseline
    if named is None:
        return ""
    if named == context.plan.run.name:
        return "spec.gates: a run cannot be its own baseline: write the name of an earlier one"
    name = f"EvalRun {named}"
    if baseline is None or not baseline.phase:
        if context.now - context.plan.run.created < timedelta(seconds=BASELINE_COMES_SECONDS):
            return ""
        return f"spec.gates: there is no {name} in this namespace: write another, or the URL of its outputs"
    if baseline.phase in ENDED and not baseline.output_url:
        state = f"{name} ended without outputs ({baseline.phase})"
        return f"spec.gates: {state}: write another, or the URL of other outputs"
    return ""


def _explain_baseline_wait(context: ReconcileContext) -> str:
    """Return the baseline that the run still waits for; empty if it waits for none."""
    named, baseline = context.run.spec.baseline_run, context.observed.baseline
    if named is None or (baseline is not None and baseline.output_url):
        return ""
    if baseline is None or not baseline.phase:
        return f"There is no EvalRun {named} yet; within {BASELINE_COMES_SECONDS:.0f} s of this one it may come."
    return f"EvalRun {named} has no outputs yet ({baseline.phase}): this run starts when it has ended."


def refuse(run: EvalRun, problem: str, now: datetime) -> Decision:
    """End a run whose spec is invalid. The run has not started, so its spec can still be corrected."""
    before = run.status or EvalRunStatus.model_validate({})
    status = report_status(run, before, now, Report(refused=problem))
    ttl = run.spec.ttl_seconds_after_finished
    return Decision(status, events=derive_events(before, status), requeue_after=None if ttl is None else float(ttl))


def explain_unsupported_spec(run: EvalRun, settings: OperatorSettings) -> str:
    """Return the error of a spec that only the operator can detect, with the remedy; empty if the spec is supported."""
    spec = run.spec
    if spec.endpoints is not None:
        if len({endpoint.model for endpoint in spec.endpoints}) > 1:
            return "spec.endpoints: the endpoints name different models: a run evaluates one, write the same model"
        keys = {(ref.name, ref.key) if (ref := endpoint.api_key_secret_ref) else None for endpoint in spec.endpoints}
        if len(keys) > 1:
            return "spec.endpoints: the endpoints name different keys: write the same apiKeySecretRef for each"
    judge = spec.own_judge
    for path, resources in resources_by_path(spec):
        for name in above_limits(resources):
            return f"{path}: requests more {name} than its limit: raise limits.{name}, or lower requests.{name}"
    if judge is None:
        return ""
    for path, least in (("gateway", judge.gateway.min_replicas), ("sandbox", judge.sandbox.min_replicas)):
        if least == 0 and settings.autoscaling != "keda":
            return f"spec.judge.{path}.minReplicas: 0 needs KEDA, which this operator is not set up for: write 1"
        if least == 0 and not spec.exports.prometheus:
            return f"spec.judge.{path}.minReplicas: 0 needs exports.prometheus: true, which KEDA goes by: write 1"
    if judge.sandbox.backend != "SandboxFusion" and any(dataset.judge_mode == "Submit" for dataset in spec.datasets):
        return "spec.judge.sandbox.backend: judgeMode: Submit needs backend: SandboxFusion, which owns the tests"
    return ""


def resources_by_path(spec: EvalRunSpec) -> Iterator[tuple[str, Resources]]:
    """Yield the resources that a spec names, with the path of the field."""
    judge, rollout, generator = spec.own_judge, spec.rollout, spec.generator
    named = {
        "spec.aggregator.resources": spec.aggregator.resources,
        "spec.generator.resources": None if generator is None else generator.resources,
        "spec.judge.gateway.resources": None if judge is None else judge.gateway.resources,
        "spec.judge.sandbox.resources": None if judge is None else judge.sandbox.resources,
        "spec.rollout.headResources": None if rollout is None else rollout.head_resources,
    }
    yield from ((path, resources) for path, resources in named.items() if resources is not None)
