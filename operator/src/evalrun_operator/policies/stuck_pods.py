"""Finds pods that are stuck in Terminating: the node does not answer, or a finalizer blocks the deletion. Pure."""

from datetime import datetime, timedelta

from evalrun_api import names
from evalrun_operator.observation.records import Observed, ObservedObject, Pod

STUCK_AFTER = timedelta(seconds=60)
"""Time past a pod's deletionTimestamp, which already includes its grace period."""

UNCONFIRMED_AFTER = timedelta(seconds=5)
"""The same for a pod that was deleted because its node is lost."""


def find_abandoned_pods(observed: Observed, now: datetime) -> list[ObservedObject]:
    """Return the pods of generators and of Ray whose node is lost, so that nobody confirms their end.

    They may continue there, cut off from the network: the ledger refuses a generator once a later one has asked for
    work. An aggregator's pod is not among them, because two processes would write one ledger.
    """
    return [
        seen
        for component in (names.GENERATOR, names.RAY)
        for seen, pod in observed.pods(component)
        if pod.tainted and not pod.ended and seen.deleted_at is not None and now - seen.deleted_at >= UNCONFIRMED_AFTER
    ]


def stuck_pods(observed: Observed, now: datetime, *components: str) -> str:
    """Describe the pods of some components that hang in Terminating, and the remedy; empty if no pod hangs.

    Until such a pod is gone, its StatefulSet creates no other pod of that name, and its GPUs count as held.
    """
    found = []
    for seen in observed.find_by_kind("Pod"):
        since, pod = seen.deleted_at, seen.detail
        if not isinstance(pod, Pod) or since is None or now - since < STUCK_AFTER or seen.component not in components:
            continue
        what = f"Pod {seen.ref.name} on node {pod.node or 'none'} hangs in Terminating since {since:%Y-%m-%dT%H:%M:%SZ}"
        if pod.finalizers:
            cure = f"finalizers hold it ({', '.join(pod.finalizers)}). See to what set them, or remove them from it."
        else:
            cure = (
                f"its node does not confirm its end. If the node is off for good: kubectl delete node {pod.node}. "
                f"Else restart its kubelet, or: kubectl delete pod {seen.ref.name} --force."
            )
        found.append(f"{what}: {cure}")
    return " ".join(found[:3])
