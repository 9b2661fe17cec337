"""Number of workers for a run's pending work, and the pods that are removed when the number falls."""

from collections.abc import Sequence
from dataclasses import dataclass

from evalrun_api.replica_count import count_wanted_replicas
from evalrun_api.v1alpha1 import Rollout


@dataclass(frozen=True, slots=True)
class Workers:
    """Worker group of a RayCluster."""

    count: int
    leaving: tuple[str, ...] = ()
    """Pods that KubeRay is told to delete. If more pods exist than `count` and none is named, it deletes any."""
    begun: bool = True
    """Whether all pods have run at once: before that, KubeRay submits no attempt to the cluster."""


@dataclass(frozen=True, slots=True)
class WorkerPod:
    """An existing worker pod, which may be being deleted."""

    name: str
    host: str
    """Address of the pod; empty before it has an address."""
    deleting: bool = False


def plan_workers(
    rollout: Rollout,
    pending: int | None,
    group: Workers | None,
    pods: Sequence[WorkerPod],
    busy: Sequence[str] | None,
) -> Workers:
    """Return the worker group with as many workers as the wanted replicas need, without removing a busy worker.

    The generator ends a surplus replica that is idle, and its pod is then named for KubeRay. The name stays until the
    pod is gone: otherwise KubeRay counts that pod among the others and would delete one of them instead. A cluster
    begins with the workers of minReplicas, and gets the others once they run: KubeRay submits no attempt to a cluster
    before all its pods have run at once.

    Args:
        rollout: the rollout of the spec.
        pending: number of completions still to be generated; None if unknown.
        group: the group that is requested now; None if it does not exist yet.
        pods: pods of the group.
        busy: hosts of the replicas that hold GPUs, empty for an unknown host; None: nothing is known.
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
    # Pods without a node come first.
    idle.sort(key=lambda pod: (pod.host != "", pod.name))
    named = [pod.name for pod in idle[: max(0, group.count - target)]]
    return Workers(max(target, group.count - len(named)), tuple(sorted({*leaving, *named})))


def _has_known_pods(rollout: Rollout, busy: Sequence[str] | None) -> bool:
    """Return whether the pod of each replica is known. A replica that spans pods names only its first pod."""
    return busy is not None and "" not in busy and rollout.gpus_per_replica <= rollout.gpus_per_node
