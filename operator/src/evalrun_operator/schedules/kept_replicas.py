"""Decides on the replicas that a schedule keeps: start, give a run its turn, take it back, release. Pure.

Each step is written into `status.replicas` first and acted on in the next reconciliation, so that an operator that is
killed in between continues where it was. There is never a second RayCluster beside a RayCluster that holds GPUs or is
being deleted.

The status alone decides whose turn it is, so no two runs have it at once. A generator whose turn was taken away may
live on for a moment. The replicas' supervisor and the engine's server, both inside Ray, make sure that it generates no
more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from evalrun_api import names
from evalrun_api.v1alpha1 import Keep, KeptCosts, KeptReplicas, ScheduleReason
from evalrun_cluster.objects import Object, StatusEvent
from evalrun_operator.observation.records import Observed, ObservedCluster, ObservedObject
from evalrun_operator.policies.condition_text import ScheduleText
from evalrun_operator.policies.generation import find_live_heads, gpu_holders, head_life
from evalrun_operator.policies.start import NO_KUBERAY, RAY_KINDS
from evalrun_operator.policies.stuck_pods import find_abandoned_pods, stuck_pods
from evalrun_operator.resources.changes import is_as_made
from evalrun_operator.schedules.kept_costs import Part, add_gpu_seconds, add_run
from evalrun_operator.schedules.runs import ScheduledRun

LOOK_SECONDS = 5.0
"""Seconds between two checks of existing replicas, in case a watch missed something."""
START_PATIENCE = 60.0
"""Minimum seconds that starting replicas wait for a run that does not wait for them at the moment, for example because
its ledger did not reply once."""
SEEN_SECONDS = 30.0
"""Seconds after which a run that waits for starting replicas is recorded again."""
MAX_REASON = 256


@dataclass(frozen=True)
class ReplicaSituation:
    """The facts that the decision depends on."""

    schedule: str
    uid: str
    keep: Keep | None
    """None: the schedule keeps no replicas, or no longer keeps any."""
    suspended: bool
    runs: Sequence[ScheduledRun]
    observed: Observed
    """The schedule's RayClusters and their pods."""
    wanted: Object | None
    """The RayCluster that would be created now."""
    image: str
    gpus: int
    now: datetime
    refusal: str = ""
    """Why the schedule is refused. No replicas are started for it, and existing replicas stay until their time is over.
    """


@dataclass
class ReplicaStep:
    """The next step of the replicas."""

    status: KeptReplicas
    text: ScheduleText
    make: bool = False
    """Whether the RayCluster that the status names is to be created."""
    delete: tuple[ObservedObject, ...] = ()
    abandon: tuple[ObservedObject, ...] = ()
    events: list[StatusEvent] = field(default_factory=list)
    delay: float | None = None


def replica_step(given: ReplicaSituation, before: KeptReplicas | None) -> ReplicaStep:
    """Return the next step of a schedule's replicas."""
    state = before or KeptReplicas()
    clusters = given.observed.find_by_kind("RayCluster")
    cluster = next((one for one in clusters if one.ref.name == state.cluster and not one.deleting), None)
    if state.cluster is None:
        step = _request_cluster(given, state)
    elif state.leaving is not None:
        step = _finish_leaving(given, state)
    # A RayCluster of the same name and another uid was created by somebody else: the replicas of the status are gone.
    elif state.cluster_uid is not None and (cluster is None or cluster.uid != state.cluster_uid):
        step = _leave(given, state, f"RayCluster {state.cluster} was deleted")
    elif cluster is None and given.refusal:
        step = _leave(given, state, "the schedule is refused, see its condition Accepted")
    elif cluster is None and (given.keep is None or next_run(given.runs) is None):
        step = _leave(given, state, "no run waits for it any more")
    elif cluster is None:
        text = f"RayCluster {state.cluster} is made"
        step = ReplicaStep(state, ScheduleText("False", ScheduleReason.REPLICAS_STARTING, text), make=True)
    else:
        step = _follow_cluster(given, state, cluster)
    # Only the RayCluster of the status may hold GPUs. Others are left over from a step that was cut off, or not ours.
    strays = [one for one in clusters if one.ref.name != state.cluster and not one.deleting]
    step.delete = (*step.delete, *strays)
    step.abandon = tuple(find_abandoned_pods(given.observed, given.now))
    if clusters or step.status.cluster is not None:
        step.delay = LOOK_SECONDS if step.delay is None else min(step.delay, LOOK_SECONDS)
    return step


def next_run(runs: Sequence[ScheduledRun]) -> ScheduledRun | None:
    """Return the run that has its turn next: that of the lowest step, then the oldest; None if none waits."""
    waiting = [run for run in runs if run.waits_for_replicas and not is_done(run)]
    return min(waiting, key=lambda run: (run.step, run.created, run.uid), default=None)


def is_done(run: ScheduledRun | None) -> bool:
    """Return whether a run no longer needs its turn: it is generated, ended, suspended, or being deleted."""
    if run is None or run.gone or run.deleting:
        return True
    return run.complete or run.ends_early or run.generated or run.suspended


def reason_to_leave(given: ReplicaSituation, state: KeptReplicas, cluster: ObservedObject) -> str:
    """Return why replicas on which no run has its turn are released; empty if they stay."""
    keep, waits = given.keep, next_run(given.runs) is not None
    if keep is None or given.wanted is None:
        return "spec.replicas was removed"
    if not is_as_made(cluster.applied, given.wanted):
        return "the template, or the operator's settings, have changed"
    if state.served >= keep.max_checkpoints:
        return f"{state.served} runs had their turn (maxCheckpoints: {keep.max_checkpoints})"
    if state.head is not None and (lost := _lost(given, state, cluster)):
        return lost
    if state.head is not None and not (isinstance(cluster.detail, ObservedCluster) and cluster.detail.usable):
        return "a pod was lost or preempted"
    if given.suspended and not waits:
        return "the schedule is suspended"
    if not waits and given.now >= _idle_until(given, state, keep):
        return f"no run waited for {keep.idle_seconds} s (idleSeconds)"
    return ""


def _request_cluster(given: ReplicaSituation, state: KeptReplicas) -> ReplicaStep:
    if gpu_holders(given.observed):
        stuck = stuck_pods(given.observed, given.now, names.RAY)
        text = f"earlier replicas are on their way out. {stuck}".strip()
        return ReplicaStep(state, ScheduleText("False", ScheduleReason.REPLICAS_LEAVING, text))
    if given.keep is None:
        return ReplicaStep(state, ScheduleText("Unknown", ScheduleReason.NOT_KEPT, "each run starts its own"))
    if given.refusal:
        return ReplicaStep(state, ScheduleText("Unknown", ScheduleReason.NONE_NEEDED, given.refusal))
    run = next_run(given.runs)
    if run is None:
        return ReplicaStep(state, ScheduleText("Unknown", ScheduleReason.NONE_NEEDED, "no run waits for replicas"))
    if RAY_KINDS & given.observed.missing_kinds:
        return ReplicaStep(state, ScheduleText("False", ScheduleReason.REPLICAS_STARTING, NO_KUBERAY))
    number = state.number + 1
    name = names.kept_cluster(given.schedule, given.uid, number)
    fresh = {
        "number": number, "cluster": name, "image": given.image, "since": given.now, "served": 0,
        "costs": KeptCosts(cluster=name),
    }  # fmt: skip
    text = f"RayCluster {name} is made for {run.name}"
    step = ReplicaStep(
        state.model_copy(update={**_NO_CLUSTER, **fresh}),
        ScheduleText("False", ScheduleReason.REPLICAS_STARTING, text),
        delay=0.0,
    )
    step.events.append(StatusEvent(warning=False, reason="ReplicasStarted", message=text))
    return step


def _follow_cluster(given: ReplicaSituation, state: KeptReplicas, cluster: ObservedObject) -> ReplicaStep:
    # The RayCluster was created by a reconciliation that was cut off.
    if state.cluster_uid is None:
        # The next write finds the RayCluster instead of creating it, and records its state.
        if given.wanted is not None and not given.refusal:
            text = f"RayCluster {state.cluster} is made"
            starting = ScheduleText("False", ScheduleReason.REPLICAS_STARTING, text)
            return ReplicaStep(state, starting, make=True, delay=0.0)
        state = state.model_copy(update={"cluster_uid": cluster.uid})
    seen = _record_head(given, state, cluster)
    step = _assign_cluster(given, seen, cluster)
    if seen.crashes > state.crashes:
        text = f"the head of RayCluster {cluster.ref.name} crashed, or has restarted ({seen.crashes} heads so far)"
        step.events.insert(0, StatusEvent(warning=True, reason="ReplicasHeadCrashed", message=text))
    return step


def _assign_cluster(given: ReplicaSituation, state: KeptReplicas, cluster: ObservedObject) -> ReplicaStep:
    if state.holder_uid is not None:
        return _follow_turn(given, state, cluster)
    reason = reason_to_leave(given, state, cluster)
    if reason:
        return _leave(given, state, reason)
    heads = find_live_heads(given.observed, cluster)
    detail = cluster.detail
    if not isinstance(detail, ObservedCluster) or not detail.usable or len(heads) != 1:
        why = "no status yet" if not isinstance(detail, ObservedCluster) else detail.message
        troubles = f"{given.observed.troubles(names.RAY)} {stuck_pods(given.observed, given.now, names.RAY)}".strip()
        text = f"{cluster.ref.name}: {why}. {troubles}".strip()
        return ReplicaStep(_record_wait(given, state), ScheduleText("False", ScheduleReason.REPLICAS_STARTING, text))
    run = next_run(given.runs)
    if run is None or given.keep is None:
        idle_until = _idle_until(given, state, given.keep or Keep())
        text = f"{cluster.ref.name} serves nobody and goes at {idle_until:%Y-%m-%dT%H:%M:%SZ} unless a run waits"
        wait = max(0.0, (idle_until - given.now).total_seconds())
        return ReplicaStep(state, ScheduleText("True", ScheduleReason.REPLICAS_IDLE, text), delay=wait)
    # The seconds until now belong to no turn, so they are counted before the turn begins.
    state = _add_elapsed_seconds(given, state)
    given_to = {
        "holder": run.name, "holder_uid": run.uid, "served": state.served + 1, "head": head_life(heads[0]),
        "costs": None if state.costs is None else add_run(state.costs, run),
    }  # fmt: skip
    return ReplicaStep(state.model_copy(update=given_to), _report_use(cluster, run.name))


def _follow_turn(given: ReplicaSituation, state: KeptReplicas, cluster: ObservedObject) -> ReplicaStep:
    lost = _lost(given, state, cluster)
    if lost:
        crashed = state.crashed if _explain_taken_head(given, cluster) else cluster.ref.name
        return _leave(given, state.model_copy(update={"crashed": crashed}), lost, warning=True)
    run = next((one for one in given.runs if one.uid == state.holder_uid), None)
    if not is_done(run):
        return ReplicaStep(state, _report_use(cluster, state.holder or ""))
    if run is not None and run.complete and not (run.generated or run.succeeded or run.ends_early):
        return _leave(given, state, f"{run.name} failed on it: the next run gets new replicas")
    taken_back = _add_elapsed_seconds(given, state).model_copy(update={"holder": None, "holder_uid": None})
    text = ScheduleText("True", ScheduleReason.REPLICAS_IDLE, f"{cluster.ref.name}: {state.holder} has had its turn")
    return ReplicaStep(taken_back, text, delay=0.0)


def _leave(given: ReplicaSituation, state: KeptReplicas, reason: str, *, warning: bool = False) -> ReplicaStep:
    left = {"leaving": reason[:MAX_REASON], "holder": None, "holder_uid": None}
    text = f"RayCluster {state.cluster} is released: {reason}"
    step = ReplicaStep(
        _add_elapsed_seconds(given, state).model_copy(update=left),
        ScheduleText("False", ScheduleReason.REPLICAS_LEAVING, text),
        delay=0.0,
    )
    step.events.append(StatusEvent(warning=warning, reason="ReplicasReleased", message=text))
    return step


def _finish_leaving(given: ReplicaSituation, state: KeptReplicas) -> ReplicaStep:
    clusters = [one for one in given.observed.find_by_kind("RayCluster") if not one.deleting]
    if not gpu_holders(given.observed):
        text = f"{state.leaving}. No GPU is held."
        costs = None if state.costs is None else state.costs.model_copy(update={"settled": True})
        gone = state.model_copy(update={**_NO_CLUSTER, "costs": costs})
        return ReplicaStep(gone, ScheduleText("Unknown", ScheduleReason.NONE_NEEDED, text), delay=0.0)
    stuck = stuck_pods(given.observed, given.now, names.RAY)
    text = f"RayCluster {state.cluster} is released: {state.leaving}. {stuck}".strip()
    own = tuple(one for one in clusters if one.ref.name == state.cluster)
    return ReplicaStep(state, ScheduleText("False", ScheduleReason.REPLICAS_LEAVING, text), delete=own)


def _lost(given: ReplicaSituation, state: KeptReplicas, cluster: ObservedObject) -> str:
    """Return how a RayCluster lost the head that runs had their turn on; empty if it did not lose it."""
    away = _explain_taken_head(given, cluster)
    if away:
        return away
    heads = find_live_heads(given.observed, cluster)
    if len(heads) == 1 and state.head is not None and head_life(heads[0]) != state.head:
        return "its head was replaced, or has restarted"
    return ""


def _explain_taken_head(given: ReplicaSituation, cluster: ObservedObject) -> str:
    """Return how a RayCluster lost its head through no fault of the run that had its turn; empty if it did not."""
    if isinstance(cluster.detail, ObservedCluster) and cluster.detail.suspended:
        return "it was suspended, e.g. to take its quota away"
    if any(
        pod.disrupted and pod.cluster == cluster.ref.name and pod.node_type == "head"
        for _, pod in given.observed.pods(names.RAY)
    ):
        return "its head was taken away, e.g. to drain its node"
    return ""


def _record_head(given: ReplicaSituation, state: KeptReplicas, cluster: ObservedObject) -> KeptReplicas:
    """Return the state with the head that runs now.

    A head that replaces an earlier head counts as a crash, unless the earlier head was taken away. Before the first
    turn no work is lost with a head, and KubeRay replaces it: only the count shows that heads keep crashing.
    """
    heads = find_live_heads(given.observed, cluster)
    if len(heads) != 1 or head_life(heads[0]) == state.seen_head:
        return state
    crashed = state.seen_head is not None and not _explain_taken_head(given, cluster)
    return state.model_copy(update={"seen_head": head_life(heads[0]), "crashes": state.crashes + crashed})


def _idle_until(given: ReplicaSituation, state: KeptReplicas, keep: Keep) -> datetime:
    seconds = float(keep.idle_seconds)
    if state.head is None and any(not is_done(run) for run in given.runs):
        seconds = max(seconds, START_PATIENCE)
    return (state.since or given.now) + timedelta(seconds=seconds)


def _record_wait(given: ReplicaSituation, state: KeptReplicas) -> KeptReplicas:
    """Return the state of starting replicas with a newer time of the last waiting run, from which idleness counts."""
    if state.head is not None or next_run(given.runs) is None:
        return state
    old = state.since is None or (given.now - state.since).total_seconds() >= SEEN_SECONDS
    return _add_elapsed_seconds(given, state) if old else state


def _add_elapsed_seconds(given: ReplicaSituation, state: KeptReplicas) -> KeptReplicas:
    """Return the state with the GPU seconds of the period that ends now, by what the replicas did meanwhile."""
    seconds = max(0.0, (given.now - (state.since or given.now)).total_seconds())
    part: Part = "idle" if state.head is not None else "start"
    if state.holder_uid is not None:
        part = "use"
    held, what = round(seconds * given.gpus), f"{part}_gpu_seconds"
    costs = state.costs
    if costs is not None:
        costs = add_gpu_seconds(costs, part, held, state.holder_uid, given.runs, given.gpus)
    return state.model_copy(update={"since": given.now, what: int(getattr(state, what)) + held, "costs": costs})


def _report_use(cluster: ObservedObject, run: str) -> ScheduleText:
    return ScheduleText("True", ScheduleReason.REPLICAS_IN_USE, f"{run} has its turn on {cluster.ref.name}")


_NO_CLUSTER = {
    "cluster": None, "cluster_uid": None, "image": None, "auth": None, "head": None, "seen_head": None, "leaving": None,
    "holder": None, "holder_uid": None, "since": None,
}  # fmt: skip
