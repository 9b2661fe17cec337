"""The one decision: what a run needs now, from its spec, its status, what was observed, and the time. Pure.

It reads as the lifecycle: accepted -> aggregator and judge ready -> cluster ready -> generating -> cluster released as
soon as every completion is in the ledger -> judging -> finished: judge scaled away, the aggregator stays until the TTL.
It looks at the state, never at which event came, and may be asked at any time and any number of times.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from evalrun_operator import names
from evalrun_operator.api.v1alpha1 import ConditionType, EvalRun, EvalRunStatus, Reason
from evalrun_operator.desired import generation_objects, services
from evalrun_operator.kinds import KINDS
from evalrun_operator.observed import Observed, Ref, Seen
from evalrun_operator.policies.backoff import backoff
from evalrun_operator.policies.deadline import deadline
from evalrun_operator.policies.generation import (
    Circumstances,
    Generation,
    Said,
    gpu_holders,
    live_attempts,
    next_generation,
    release,
)
from evalrun_operator.resources import Object, RunPlan
from evalrun_operator.settings import OperatorSettings
from evalrun_operator.situation import (
    Pass,
    aggregator_restarts,
    holds,
    identity_of,
    ledger_failed,
    names_a_run,
    waiting_for,
)
from evalrun_operator.status_report import Report, StatusEvent, condition_of, events_of, report_status

BAD_INPUT = 2
"""Exit code of our services for what the user gave and can mend."""
IDLE_SECONDS = 60.0
"""How often a run that waits is looked at, should a watch have missed something."""


@dataclass(frozen=True)
class Decision:
    """What one pass does. Deletions come first, the status last."""

    status: EvalRunStatus
    apply: tuple[Object, ...] = ()
    delete: tuple[Seen, ...] = ()
    events: tuple[StatusEvent, ...] = ()
    requeue_after: float | None = None
    """Seconds after which to look again, whatever happens; None: only when something happens."""


@dataclass(frozen=True)
class End:
    """An end state."""

    reason: Reason
    message: str
    succeeded: bool = False


def decide(run: EvalRun, observed: Observed, settings: OperatorSettings, now: datetime, fresh_token: str) -> Decision:
    """Decide what a run needs now.

    Args:
        run: the EvalRun with its status, as the API server has it.
        observed: what was seen of its objects.
        settings: the operator's settings.
        now: the time, with its zone.
        fresh_token: a new random token, used where the run has none yet.
    """
    before = run.status or EvalRunStatus.model_validate({})
    if run.metadata.deletion_timestamp is not None:
        return Decision(before)  # everything is owned: the garbage collector frees it
    plan = RunPlan(identity_of(run), run.spec, settings, observed.token or fresh_token, before.baseline_url)
    this = Pass(run, before, plan, observed, now)
    if before.start_time is None:
        return _accept(this)
    if holds(before, ConditionType.COMPLETE):
        return _after_end(this)
    end = _early_end(this)
    if end is not None:
        return _finish(this, end)
    if run.spec.suspend and not this.generated:
        return _suspend(this)
    if holds(before, ConditionType.SUSPENDED):
        return _resume(this)
    return _advance(this)


def _accept(this: Pass) -> Decision:
    """Take the spec up, or refuse it. `startTime` closes the spec to changes, so it is written before all else."""
    problem = unsupported(this.run, this.settings)
    if problem:
        return refuse(this.run, problem, this.now)
    baseline = this.observed.baseline
    problem = _without_baseline(this)
    if problem:  # what it waits for may come without a change of the spec
        return replace(refuse(this.run, problem, this.now), requeue_after=IDLE_SECONDS)
    report = Report(started=True, baseline_url=None if baseline is None else baseline.output_url)
    status = report_status(this.run, this.before, this.now, report)
    return _decision(this, status, requeue_after=0.0)


def _without_baseline(this: Pass) -> str:
    """Say why the EvalRun that the gate names cannot be its baseline; empty where it can, or none is named."""
    gate, baseline = this.run.spec.gate, this.observed.baseline
    if gate is None or not names_a_run(gate):
        return ""
    if gate.baseline == this.plan.run.name:
        return "spec.gate.baseline: a run cannot be its own baseline: write the name of an earlier one"
    name = f"EvalRun {gate.baseline}"
    if baseline is None or not baseline.phase:
        return f"spec.gate.baseline: there is no {name} in this namespace: write another, or the URL of its outputs"
    if not baseline.output_url:
        state = f"{name} has no outputs ({baseline.phase})"
        return f"spec.gate.baseline: {state}: wait until it has succeeded, or write the URL of other outputs"
    return ""


def refuse(run: EvalRun, problem: str, now: datetime) -> Decision:
    """End a run whose spec cannot be run. As it has not started, its spec can be mended."""
    before = run.status or EvalRunStatus.model_validate({})
    status = report_status(run, before, now, Report(refused=problem))
    return Decision(status, events=events_of(before, status))


def unsupported(run: EvalRun, settings: OperatorSettings) -> str:
    """Say what only the operator can see to be wrong with a spec, and what to write instead; empty where nothing is."""
    spec = run.spec
    if spec.endpoints is not None:
        if len({endpoint.model for endpoint in spec.endpoints}) > 1:
            return "spec.endpoints: the endpoints name different models: a run evaluates one, write the same model"
        keys = {(ref.name, ref.key) if (ref := endpoint.api_key_secret_ref) else None for endpoint in spec.endpoints}
        if len(keys) > 1:
            return "spec.endpoints: the endpoints name different keys: write the same apiKeySecretRef for each"
    judge = spec.own_judge
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


def _early_end(this: Pass) -> End | None:
    """Say whether the run ends now, with its results or for a reason that no attempt mends."""
    spec, observed, ledger = this.run.spec, this.observed, this.observed.ledger
    if ledger is not None and ledger.ended:
        if ledger.judged == 0 and ledger.not_judged > 0:
            return End(Reason.NOT_JUDGED, "The judge could not tell about a single answer: see its pods and logs.")
        return End(Reason.FINISHED, f"The outputs are at {this.output_url}.", succeeded=True)
    suspended = condition_of(this.before, ConditionType.SUSPENDED)
    waits = spec.suspend or holds(this.before, ConditionType.SUSPENDED)  # the latter: it is being resumed just now
    limit = deadline(
        this.before.start_time or this.now,
        None if suspended is None else suspended.last_transition_time,
        None if waits else spec.active_deadline_seconds,
    )
    if limit is not None and this.now >= limit:
        return End(Reason.DEADLINE_EXCEEDED, f"activeDeadlineSeconds ({spec.active_deadline_seconds}) have passed.")
    for _, pod in observed.pods(names.AGGREGATOR):
        if pod.exit_code == BAD_INPUT and pod.restarts >= spec.backoff_limit:
            return End(Reason.INVALID_SPEC, f"The aggregator refuses the spec: {pod.trouble}")
    for _, pod in observed.pods(names.RAY):
        if pod.exit_code == BAD_INPUT and pod.failed == names.CHECKPOINT:  # a worker would fetch it anew for ever
            return End(Reason.INVALID_SPEC, f"The model cannot be fetched: {pod.trouble}")
    if ledger is not None and ledger_failed(this) and aggregator_restarts(this) >= spec.backoff_limit:
        return End(Reason.BACKOFF_LIMIT_EXCEEDED, f"The ledger cannot go on: {ledger.message}")
    return None


def _suspend(this: Pass) -> Decision:
    """Free the GPUs: the attempt first, then the cluster. Ledger and judge stay, and judge what there is."""
    deletions = release(this.observed, this.now, jobs_first=True)
    pods = [seen for seen, pod in this.observed.pods(names.GENERATOR) if not pod.ended]
    freed = not gpu_holders(this.observed) and not live_attempts(this.observed) and not pods
    report = Report(
        suspended=Said(
            freed,
            Reason.SUSPEND_REQUESTED if freed else Reason.SUSPENDING,
            "No GPU is held; the ledger is kept. Set suspend: false to go on."
            if freed
            else "The attempt and its cluster are being ended.",
        ),
        ledger=this.observed.ledger,
        waiting_for=waiting_for(this),
    )
    status = report_status(this.run, this.before, this.now, report)
    kept = {seen.ref for seen in this.observed.of_kind("RayCluster", "RayJob", "Job")}
    wait = IDLE_SECONDS if freed else this.settings.poll_seconds
    return _decision(this, status, services(this), kept, deletions, wait)


def _resume(this: Pass) -> Decision:
    """Say that the run is not suspended any more, before any GPU is asked for; the deadline starts anew from here."""
    report = Report(ledger=this.observed.ledger, waiting_for=waiting_for(this), resumed=True)
    status = report_status(this.run, this.before, this.now, report)
    kept = {seen.ref for seen in this.observed.of_kind("RayCluster", "RayJob", "Job")}
    return _decision(this, status, services(this), kept, requeue_after=0.0)


def _advance(this: Pass) -> Decision:
    """Bring the run forward: services, cluster, generation, judging."""
    waits = waiting_for(this)
    if this.generated:
        deletions = release(this.observed, this.now, jobs_first=False)
        jobs = {seen.ref for seen in this.observed.of_kind("Job")}  # a generator that has all, ends by itself
        kept = jobs | {seen.ref for seen in this.observed.of_kind("RayJob")}
        report = Report(ledger=this.observed.ledger, waiting_for=waits, generated=True)
        status = report_status(this.run, this.before, this.now, report)
        deletions = tuple(seen for seen in deletions if seen.ref not in jobs)
        return _decision(this, status, services(this), kept, deletions, this.settings.poll_seconds)
    generation = next_generation(_circumstances(this, waits))
    if generation.exhausted:
        return _finish(this, End(Reason.BACKOFF_LIMIT_EXCEEDED, _exhausted(this, generation)), generation)
    report = Report(ledger=this.observed.ledger, waiting_for=waits, generation=generation)
    status = report_status(this.run, this.before, this.now, report)
    desired, kept = generation_objects(this, generation)
    return _decision(
        this, status, [*services(this), *desired], kept, generation.delete, _next_look(this, generation, status)
    )


def _finish(this: Pass, end: End, generation: Generation | None = None) -> Decision:
    """End the run: GPUs and judge go, the aggregator stays for questions."""
    report = Report(
        ledger=this.observed.ledger,
        generated=this.generated,
        generation=generation,
        end=(end.reason, end.message, end.succeeded),
    )
    status = report_status(this.run, this.before, this.now, report)
    return _ended(this, status)


def _after_end(this: Pass) -> Decision:
    """Keep an ended run as it is, until its TTL and beyond."""
    return _ended(this, this.before)


def _ended(this: Pass, status: EvalRunStatus) -> Decision:
    completed = status.completion_time or this.now
    left = completed + timedelta(seconds=this.run.spec.ttl_seconds_after_finished) - this.now
    deletions = release(this.observed, this.now, jobs_first=False)
    kept = {seen.ref for seen in this.observed.of_kind("PersistentVolumeClaim")}
    if left <= timedelta():
        return _decision(this, status, [], kept, deletions, None)
    kept |= {seen.ref for seen in this.observed.of_kind("Job", "RayJob")}
    wait = max(1.0, min(left.total_seconds(), this.settings.resync_seconds))
    return _decision(this, status, services(this, ended=True), kept, deletions, wait)


def _decision(
    this: Pass,
    status: EvalRunStatus,
    desired: Iterable[Object] = (),
    kept: Iterable[Ref] = (),
    delete: Iterable[Seen] = (),
    requeue_after: float | None = None,
) -> Decision:
    """Act on the difference between what is desired and what is there. Nothing is touched that is not our own work."""
    observed, wanted = this.observed, list(desired)
    refs = {Ref(item["kind"], item["metadata"]["name"]) for item in wanted} | set(kept)
    started = this.before.start_time is not None
    surplus = [
        seen
        for seen in observed.objects.values()
        if started and seen.owned and not seen.deleting and KINDS[seen.ref.kind].made and seen.ref not in refs
    ]
    return Decision(
        status,
        tuple(item for item in wanted if _to_apply(observed, item)),
        tuple(dict.fromkeys([*delete, *surplus])),
        events_of(this.before, status),
        requeue_after,
    )


def _to_apply(observed: Observed, item: Object) -> bool:
    """Say whether an object is missing or differs; one on its way out is waited for."""
    if item["kind"] == "Secret":
        return observed.token is None
    seen = observed.objects.get(Ref(item["kind"], item["metadata"]["name"]))
    if seen is None:
        return True
    if seen.deleting:
        return False
    if names.QUEUE_LABEL in item["metadata"]["labels"]:
        # Kueue wrote the tolerations and node labels of its flavors into it when it let it in. The groups are one value
        # for server-side apply: to apply them anew takes those away, and Kueue ends what is not as it let it in.
        return False
    return observed.resync or seen.applied != item["metadata"]["annotations"][names.APPLIED_ANNOTATION]


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
        backoff=lambda failures: backoff(failures, settings.backoff_seconds, settings.longest_backoff_seconds),
    )


def _next_look(this: Pass, generation: Generation, status: EvalRunStatus) -> float:
    if _steps(status) != _steps(this.before):
        return 0.0  # some steps are written down first and taken in the next pass
    wait = this.settings.poll_seconds if this.observed.ledger is not None else IDLE_SECONDS / 4
    if generation.due is not None:
        wait = min(wait, max(0.1, (generation.due - this.now).total_seconds()))
    return wait


def _steps(status: EvalRunStatus) -> tuple[object, ...]:
    """Give what of a status the next pass decides by."""
    return status.attempts, *((condition.type, condition.reason) for condition in status.conditions)


def _exhausted(this: Pass, generation: Generation) -> str:
    limit = this.run.spec.backoff_limit
    return f"More than backoffLimit ({limit}) attempts failed; the last: {generation.exhausted}"
