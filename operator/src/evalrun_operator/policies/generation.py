"""Next step of a run's generation: a cluster, an attempt, a wait, or an end.

There are never two attempts at once, and never two clusters: objects that are being deleted are awaited. A failed
attempt's Job or RayJob stays, as the record of its failure. An attempt whose cluster was lost is deleted, and the
status' reason AttemptFailed is the record. The next attempt uses the warm cluster, if there is one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from evalrun_api import names
from evalrun_api.v1alpha1 import Reason
from evalrun_operator.observation.records import Attempt, KeptReplicas, Observed, ObservedCluster, ObservedObject, Pod
from evalrun_operator.policies.condition_text import RunText
from evalrun_operator.policies.start import NO_KUBERAY, RAY_KINDS
from evalrun_operator.policies.stuck_pods import find_abandoned_pods, stuck_pods
from evalrun_runtime.exits import EndCause

JOB_KINDS = ("Job", "RayJob")
LEDGER_PATIENCE = timedelta(seconds=90)
"""Minimum seconds for which a generator waits for its ledger (60), plus the time to see and report its end."""
STUCK_SECONDS = 60.0
"""Seconds for which a deleted attempt is awaited before its RayCluster is deleted. A RayJob's finalizer asks Ray to
stop the job: without KubeRay's operator the RayJob stays, and so would its GPUs."""


@dataclass(frozen=True)
class NewAttempt:
    """An attempt to start."""

    number: int
    cluster: str = ""
    """Empty in simple mode."""
    head_uid: str = ""


@dataclass(frozen=True, kw_only=True)
class GenerationStep:
    """The next step of the generation, with its status texts."""

    attempts: int
    cluster_ready: RunText
    generated: RunText
    cluster: int | None = None
    """Number of the RayCluster that is kept or created."""
    start: NewAttempt | None = None
    delete: tuple[ObservedObject, ...] = ()
    due: datetime | None = None
    """Time of the next reconciliation."""
    exhausted: str = ""
    """Reason why no further attempt is made; empty while an attempt may follow."""


@dataclass(frozen=True)
class Circumstances:
    """The facts that the decision depends on."""

    run: str
    on_ray: bool
    """Whether the run has a RayCluster of its own."""
    observed: Observed
    attempts: int
    """Number of attempts in the status."""
    failed: bool
    """Whether the status records that the last attempt failed."""
    backoff_limit: int
    waiting_for: str
    """Reason why the run cannot start its generation; empty if it can."""
    now: datetime
    backoff: Callable[[int], timedelta]

    @property
    def kept(self) -> KeptReplicas | None:
        """The replicas of the run's schedule, if the run uses them."""
        return self.observed.kept


NO_CLUSTER = RunText("True", Reason.NO_CLUSTER_NEEDED, "Simple mode: the endpoints serve already.")


def live_attempts(observed: Observed) -> list[ObservedObject]:
    """Return the attempts that have not ended, including those that are being deleted."""
    return [seen for seen in observed.find_by_kind(*JOB_KINDS) if seen.owned and _outcome(seen) == "running"]


def newest_attempt(observed: Observed) -> int:
    """Return the number of the newest attempt that has an object, or 0 without any."""
    return max((seen.attempt for seen in observed.find_by_kind(*JOB_KINDS) if seen.owned), default=0)


def gpu_holders(observed: Observed) -> list[ObservedObject]:
    """Return the RayClusters and the pods that hold GPUs, including those that are being deleted."""
    pods = [seen for seen, pod in observed.pods(names.RAY) if not pod.ended]
    return [*observed.find_by_kind("RayCluster"), *pods]


def release(observed: Observed, now: datetime, *, jobs_first: bool) -> tuple[ObservedObject, ...]:
    """Return the objects to delete so that no GPU is held and no attempt runs.

    Args:
        observed: the run's objects.
        now: the time.
        jobs_first: keep the RayClusters until the attempts are gone, so that they end in order (suspend).
    """
    jobs = live_attempts(observed)
    waited = [seen for seen in jobs if not seen.deleting or _seconds_since(seen.deleted_at, now) < STUCK_SECONDS]
    clusters = [] if jobs_first and waited else observed.find_by_kind("RayCluster")
    return tuple(seen for seen in (*jobs, *clusters) if not seen.deleting)


def next_generation(given: Circumstances) -> GenerationStep:
    """Decide the next step of the generation, for a run that is neither suspended nor fully generated."""
    observed = given.observed
    jobs = [seen for seen in observed.find_by_kind(*JOB_KINDS) if seen.owned]
    clusters = [seen for seen in observed.find_by_kind("RayCluster") if not seen.deleting]
    number = max([given.attempts, 1, *(seen.attempt for seen in (*jobs, *clusters))])
    current = next((seen for seen in jobs if seen.attempt == number), None)
    cluster = clusters[-1] if clusters else None
    stale = [seen for seen in live_attempts(observed) if seen is not current and not seen.deleting]
    stale += [seen for seen in clusters if seen is not cluster]
    lost = _lost(given, current, cluster)
    interrupted = cluster is not None and isinstance(cluster.detail, ObservedCluster) and cluster.detail.suspended
    if cluster is not None and _is_taken_away(given, number, current, cluster):
        stale += [seen for seen in (current, cluster) if seen is not None and not seen.deleting]
        message = f"The head of {cluster.ref.name} was taken away, e.g. to drain its node: no attempt is counted."
        said = RunText("False", Reason.INTERRUPTED, message)
        gone = RunText("False", Reason.CLUSTER_PENDING, message)
        return GenerationStep(attempts=given.attempts, cluster_ready=gone, generated=said, delete=tuple(stale))
    if current is not None and not current.deleting and (why := _explain_blameless_end(given, number, current)):
        said = RunText("False", Reason.INTERRUPTED, f"{why}: no attempt is counted. {given.waiting_for}".strip())
        return GenerationStep(
            attempts=given.attempts,
            cluster_ready=_cluster_said(given, cluster),
            generated=said,
            cluster=None if cluster is None else cluster.attempt,
            delete=(*stale, current),
        )
    failure = _failure(given, number, current, lost)
    if failure is None and current is not None:
        if interrupted and not current.deleting and _outcome(current) == "running":
            # Kueue withdrew the quota, which is not the attempt's fault.
            stale.append(current)
        return _continue_attempt(given, number, current, cluster, tuple(stale))
    if failure is None:
        return _start_attempt(given, number, cluster, tuple(stale))
    if lost:
        stale += [seen for seen in (current, cluster) if seen is not None and not seen.deleting]
        cluster = None
    return _handle_failure(given, number, current, cluster, tuple(stale), failure)


def _explain_blameless_end(given: Circumstances, number: int, current: ObservedObject) -> str:
    """Return why an attempt is over through no fault of its own; empty if it is not over, or if it counts."""
    attempt = current.detail
    if not isinstance(attempt, Attempt) or (given.failed and given.attempts == number):
        return ""
    pods = [(seen, pod) for seen, pod in given.observed.pods(names.GENERATOR) if _belongs_to(seen, current)]
    if attempt.outcome == "running" and _left_behind(given, attempt) and not _has_crashed(given, attempt):
        return f"RayCluster {attempt.cluster}, which the schedule kept, is no longer there for attempt {number}"
    if attempt.outcome == "running" and (lost := {seen.uid for seen in find_abandoned_pods(given.observed, given.now)}):
        nodes = [pod.node for seen, pod in pods if seen.uid in lost]
        return f"Node {nodes[0]} of attempt {number} is lost" if nodes else ""
    if attempt.outcome != "failed" or not _ledger_was_away(given.observed, attempt):
        return ""
    causes = [pod.last_words.cause for _, pod in pods if pod.last_words is not None]
    if current.ref.kind == "Job" and EndCause.LEDGER_UNREACHABLE not in causes:
        # A RayJob leaves no record of its cause.
        return ""
    return f"The ledger could not be reached while attempt {number} ended"


def _left_behind(given: Circumstances, attempt: Attempt) -> bool:
    """Return whether an attempt uses kept replicas although the turn of its run is over."""
    return given.kept is not None and attempt.cluster not in ("", given.kept.cluster)


def _has_crashed(given: Circumstances, attempt: Attempt) -> bool:
    """Return whether the head of an attempt's kept replicas ended during the turn: the attempt counts as failed."""
    return _left_behind(given, attempt) and given.kept is not None and attempt.cluster == given.kept.crashed


def _ledger_was_away(observed: Observed, attempt: Attempt) -> bool:
    """Return whether the aggregator is away, or was within `LEDGER_PATIENCE` before the end of an attempt."""
    if observed.ledger is None or attempt.finished_at is None:
        return observed.ledger is None
    ready = [pod.ready_since for _, pod in observed.pods(names.AGGREGATOR) if pod.ready_since is not None]
    return any(since >= attempt.finished_at - LEDGER_PATIENCE for since in ready)


def _belongs_to(pod: ObservedObject, job: ObservedObject) -> bool:
    return pod.controller is not None and pod.controller.uid == job.uid


def _failure(given: Circumstances, number: int, current: ObservedObject | None, lost: str) -> str | None:
    """Return why attempt `number` is over without having done the work; None if it is not over."""
    if lost:
        return lost
    if current is not None and isinstance(current.detail, Attempt) and not current.deleting:
        # An attempt that is being ended fails because of that. Whether it counts depends on why it is ended.
        attempt = current.detail
        if attempt.outcome == "failed":
            return f"{attempt.message} {_last_words(given, current)}".strip() or "the generator failed"
        ledger = given.observed.ledger
        if attempt.outcome == "succeeded" and ledger is not None and ledger.some_missing:
            return f"the generator ended, but {ledger.pending} answers are missing"
    if (current is None or current.deleting) and given.failed and given.attempts == number:
        return "its cluster was lost"
    return None


def _handle_failure(
    given: Circumstances,
    number: int,
    current: ObservedObject | None,
    cluster: ObservedObject | None,
    delete: tuple[ObservedObject, ...],
    failure: str,
) -> GenerationStep:
    said = RunText("False", Reason.ATTEMPT_FAILED, f"Attempt {number} failed: {failure}"[:2000])
    kept = None if cluster is None else cluster.attempt
    ready = _cluster_said(given, cluster)
    if given.on_ray and cluster is None:
        ready = RunText("False", Reason.CLUSTER_FAILED, f"{failure[:1000]}.")
    if number > given.backoff_limit:
        return GenerationStep(
            attempts=number,
            cluster_ready=ready,
            generated=said,
            cluster=kept,
            delete=delete,
            exhausted=f"attempt {number} failed: {failure}",
        )
    ended = current.detail.finished_at if current is not None and isinstance(current.detail, Attempt) else None
    due = None if ended is None else ended + given.backoff(number)
    recorded = given.failed and given.attempts == number
    leaving = [seen for seen, pod in given.observed.pods(names.GENERATOR) if not pod.ended]
    if not recorded or delete or leaving or (due is not None and given.now < due):
        return GenerationStep(
            attempts=number, cluster_ready=ready, generated=said, cluster=kept, delete=delete, due=due
        )
    return _start_attempt(given, number + 1, cluster, delete)


def _continue_attempt(
    given: Circumstances,
    number: int,
    current: ObservedObject,
    cluster: ObservedObject | None,
    delete: tuple[ObservedObject, ...],
) -> GenerationStep:
    troubles = given.observed.troubles(names.GENERATOR)
    if isinstance(current.detail, Attempt) and current.detail.suspended and not current.deleting:
        said = RunText("False", Reason.WAITING_FOR_QUOTA, f"Attempt {number} is held back: see Admitted.")
        return GenerationStep(
            attempts=number, cluster_ready=_cluster_said(given, cluster), generated=said, delete=delete
        )
    # The ledger does not report yet that it has all completions.
    ended = _outcome(current) == "succeeded"
    state = "is being ended" if current.deleting else "has ended" if ended else "runs"
    message = f"Attempt {number} {state}. {stuck_pods(given.observed, given.now, names.GENERATOR)}".strip()
    said = RunText("False", Reason.GENERATING, f"{message} {troubles}".strip())
    return GenerationStep(
        attempts=number,
        cluster_ready=_cluster_said(given, cluster),
        generated=said,
        cluster=None if cluster is None else cluster.attempt,
        delete=delete,
    )


def _start_attempt(
    given: Circumstances, number: int, cluster: ObservedObject | None, delete: tuple[ObservedObject, ...]
) -> GenerationStep:
    """Start attempt `number` as soon as nothing stands in its way."""
    observed = given.observed
    ready = _cluster_said(given, cluster)
    kept = None if cluster is None else cluster.attempt
    leaving = [*live_attempts(observed), *(seen for seen, pod in observed.pods(names.GENERATOR) if not pod.ended)]
    # Without its ledger the attempt would end again.
    if given.waiting_for and (cluster is None or observed.ledger is None):
        said = RunText("False", Reason.WAITING_FOR_SERVICES, given.waiting_for)
        return GenerationStep(attempts=given.attempts, cluster_ready=ready, generated=said, cluster=kept, delete=delete)
    waiting = RunText("False", Reason.WAITING_FOR_CLUSTER, "The RayCluster is not up yet.")
    if given.on_ray and cluster is None:
        gone = not gpu_holders(observed) and not leaving
        served = not RAY_KINDS & observed.missing_kinds
        made = number if gone and served and not delete else None
        return GenerationStep(attempts=number, cluster_ready=ready, generated=waiting, cluster=made, delete=delete)
    if given.kept is not None and not given.kept.cluster:
        said = RunText("False", Reason.WAITING_FOR_CLUSTER, given.kept.message)
        return GenerationStep(attempts=number, cluster_ready=ready, generated=said, delete=delete)
    name, head = "" if given.kept is None else given.kept.cluster, ""
    if cluster is not None:
        heads = find_live_heads(observed, cluster)
        usable = isinstance(cluster.detail, ObservedCluster) and cluster.detail.usable
        if not usable or len(heads) != 1:
            return GenerationStep(attempts=number, cluster_ready=ready, generated=waiting, cluster=kept, delete=delete)
        name, head = cluster.ref.name, head_life(heads[0])
    said = RunText("False", Reason.GENERATING, f"Attempt {number} starts.")
    if leaving or delete:
        stuck = stuck_pods(observed, given.now, names.GENERATOR)
        message = f"An earlier attempt is being ended. {stuck}".strip()
        said = RunText("False", Reason.GENERATING, message)
        return GenerationStep(attempts=given.attempts, cluster_ready=ready, generated=said, cluster=kept, delete=delete)
    start = NewAttempt(number, name, head)
    return GenerationStep(attempts=number, cluster_ready=ready, generated=said, cluster=kept, start=start)


def _lost(given: Circumstances, current: ObservedObject | None, cluster: ObservedObject | None) -> str:
    """Return how a running attempt lost its cluster; empty if it did not.

    KubeRay's `state: ready` never goes back. The cluster is lost if it is gone, or if its head is another pod, which
    knows nothing of the actors and jobs of the pod before.
    """
    if current is None or not isinstance(current.detail, Attempt):
        return ""
    attempt = current.detail
    if attempt.outcome != "running" or current.deleting:
        return ""
    if _has_crashed(given, attempt):
        return f"the head of RayCluster {attempt.cluster}, which the schedule kept, was replaced or has restarted"
    if current.ref.kind != "RayJob":
        return ""
    if cluster is None or cluster.ref.name != attempt.cluster:
        return f"RayCluster {attempt.cluster} is gone"
    heads = find_live_heads(given.observed, cluster)
    if len(heads) != 1 or not isinstance(cluster.detail, ObservedCluster) or cluster.detail.suspended:
        return ""
    uid, _, restarts = attempt.head_uid.partition("/")
    if heads[0].uid != uid:
        return f"the head of RayCluster {attempt.cluster} was replaced"
    if restarts and head_life(heads[0]) != attempt.head_uid:
        pod = heads[0].detail
        why = pod.trouble if isinstance(pod, Pod) else ""
        return f"the head of RayCluster {attempt.cluster} restarted in place. {why}".rstrip(". ")
    return ""


def head_life(head: ObservedObject) -> str:
    """Return an id that changes whenever a head is replaced by another pod, or restarts its container.

    In both cases the new head knows nothing of the actors and jobs of the head before.
    """
    restarts = head.detail.restarts if isinstance(head.detail, Pod) else 0
    return f"{head.uid}/{restarts}"


def _is_taken_away(given: Circumstances, number: int, current: ObservedObject | None, cluster: ObservedObject) -> bool:
    """Return whether the cluster's head ended, or is ending, for a reason that is not the run's.

    As with a Job's pods, the condition DisruptionTarget shows that; a pod that was evicted for exceeding its own limits
    has no such condition.
    """
    if given.failed and given.attempts == number:
        # The attempt failed first, and its failure is recorded.
        return False
    if current is not None and _outcome(current) == "succeeded":
        return False
    return any(
        pod.disrupted and pod.cluster == cluster.ref.name and pod.node_type == "head"
        for _, pod in given.observed.pods(names.RAY)
    )


def find_live_heads(observed: Observed, cluster: ObservedObject) -> list[ObservedObject]:
    """Return the head pods of a RayCluster that have not ended and are not being deleted."""
    return [
        seen
        for seen, pod in observed.pods(names.RAY)
        if pod.cluster == cluster.ref.name and pod.node_type == "head" and not seen.deleting and not pod.ended
    ]


def _cluster_said(given: Circumstances, cluster: ObservedObject | None) -> RunText:
    if given.kept is not None and not given.kept.cluster:
        return RunText("False", Reason.CLUSTER_PENDING, given.kept.message)
    if given.kept is not None:
        return RunText("True", Reason.CLUSTER_PROVISIONED, f"It has its turn on RayCluster {given.kept.cluster}.")
    if not given.on_ray:
        return NO_CLUSTER
    if given.observed.missing_kinds & RAY_KINDS:
        return RunText("False", Reason.CLUSTER_PENDING, f"{NO_KUBERAY}.")
    if cluster is None:
        if given.waiting_for:
            return RunText("False", Reason.WAITING_FOR_SERVICES, given.waiting_for)
        message = f"The RayCluster is being made. {stuck_pods(given.observed, given.now, names.RAY)}".strip()
        return RunText("False", Reason.CLUSTER_PENDING, message)
    detail = cluster.detail
    if not isinstance(detail, ObservedCluster):
        return RunText("False", Reason.CLUSTER_PENDING, f"{cluster.ref.name}: no status yet.")
    why = "suspended, e.g. by Kueue for quota" if detail.suspended else detail.message
    troubles = f"{given.observed.troubles(names.RAY)} {stuck_pods(given.observed, given.now, names.RAY)}".strip()
    message = f"{cluster.ref.name}: {why}. {troubles}".strip()[:2000]
    if detail.usable:
        return RunText("True", Reason.CLUSTER_PROVISIONED, message)
    reason = Reason.CLUSTER_FAILED if detail.failing else Reason.CLUSTER_PENDING
    return RunText("False", reason, message)


def _last_words(given: Circumstances, job: ObservedObject) -> str:
    said = [
        pod.trouble
        for seen, pod in given.observed.pods(names.GENERATOR)
        if seen.ref.name.startswith(f"{job.ref.name}-") and pod.trouble
    ]
    return said[-1] if said else ""


def _outcome(seen: ObservedObject) -> str:
    return seen.detail.outcome if isinstance(seen.detail, Attempt) else ""


def _seconds_since(moment: datetime | None, now: datetime) -> float:
    return 0.0 if moment is None else (now - moment).total_seconds()
