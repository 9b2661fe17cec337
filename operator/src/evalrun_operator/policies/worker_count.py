"""Number of workers for a run's pending work, and the pods that are removed when it falls."""

from collections.abc import Sequence
from dataclasses import dataclass

from evalrun_api.replica_count import count_wanted_replicas
from evalrun_api.v1alpha1 import Rollout


@dataclass(frozen=True, slots=True)
class Workers:
    """A RayCluster's worker group."""

    count: int
    leaving: tuple[str, ...] = ()
    """Pods that KubeRay is told to delete. Where more are there than `count` and none is named, it takes any."""
    begun: bool = True
    """All its pods have run at once: before, KubeRay submits no attempt to the cluster."""


@dataclass(frozen=True, slots=True)
class WorkerPod:
    """A worker pod that is there, on its way out or not."""

    name: str
    host: str
    """Its address; empty before it has one."""
    deleting: bool = False


def plan_workers(
    rollout: Rollout,
    pending: int | None,
    group: Workers | None,
    pods: Sequence[WorkerPod],
    busy: Sequence[str] | None,
) -> Workers:
    """Return the worker group with as many workers as the wanted replicas need, without removing a busy worker.

    The generator ends a replica that is idle and too many; the pod in which it was is then named for KubeRay. A name
    stays until its pod is gone: before, KubeRay counts that pod among the others and would take one of those for it.

    A cluster begins with the workers of minReplicas, and gets the others once they run: KubeRay submits no attempt to a
    cluster before all its pods have run at once.

    Args:
        rollout: the spec's.
        pending: answers still to be drawn; None where that is not known.
        group: as it is requested now; None if it does not exist yet.
        pods: of the group.
        busy: hosts of the replicas that hold GPUs, an empty one where it is not known yet; None: nothing is known.
    """
    target = rollout.worker_pods(count_wanted_replicas(rollout, pending))
    first = target if rollout.min_replicas is None else min(target, rollout.worker_pods(rollout.min_replicas))
    if group is None:
        return Workers(first)
    leaving = {pod.name for pod in pods} & set(group.leaving)
    if not group.begun:
        return Workers(min(first, group.count), tuple(sorted(leaving)))
    if pending is None or (target < group.count and not _has_known_pods(rollout, busy)):
        return Workers(group.count, tuple(sorted(leaving)))
    staying = [pod for pod in pods if pod.name not in leaving and not pod.deleting]
    idle = [pod for pod in staying if pod.host not in (busy or ())]
    idle.sort(key=lambda pod: (pod.host != "", pod.name))  # first those that have no node yet
    named = [pod.name for pod in idle[: max(0, group.count - target)]]
    return Workers(max(target, group.count - len(named)), tuple(sorted({*leaving, *named})))


def _has_known_pods(rollout: Rollout, busy: Sequence[str] | None) -> bool:
    """Return whether the pod of each replica is known. A replica that spans pods names only its first pod."""
    return busy is not None and "" not in busy and rollout.gpus_per_replica <= rollout.gpus_per_node
