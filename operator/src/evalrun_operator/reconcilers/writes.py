"""Performs the writes of a decision: deletions first, then creations and changes."""

from collections.abc import Awaitable
from functools import partial

from evalrun_cluster.client import Cluster
from evalrun_cluster.errors import ClusterError
from evalrun_cluster.kinds import SECRET
from evalrun_cluster.objects import Object, RunIdentity
from evalrun_operator.lifecycle.decision import Decision
from evalrun_operator.observation.records import ObjectKey, Observed
from evalrun_operator.resources.changes import is_as_made, make_patch


async def write(
    cluster: Cluster, identity: RunIdentity, decision: Decision, observed: Observed
) -> list[tuple[str, ClusterError]]:
    """Perform a decision's writes, deletions first. Return the kinds of the failed writes, with their errors.

    A failed write prevents no other write, with one exception: without the Secret nothing else is written, because the
    next reconciliation draws another token, with which every pod would start again.
    """
    writes = [
        (seen.ref.kind, partial(cluster.delete, seen.ref.kind, seen.ref.name, identity.namespace, seen.uid))
        for seen in decision.delete
    ]
    writes += [
        (
            seen.ref.kind,
            partial(cluster.delete, seen.ref.kind, seen.ref.name, identity.namespace, seen.uid, abandon=True),
        )
        for seen in decision.abandon
    ]
    items = sorted(decision.apply, key=lambda item: item["kind"] != SECRET.kind)
    writes += [(item["kind"], partial(_bring_about, cluster, item, observed)) for item in items]
    errors: list[tuple[str, ClusterError]] = []
    for kind, write in writes:
        error = await _catch_failure(write())
        if error is not None:
            errors.append((kind, error))
        if error is not None and kind == SECRET.kind:
            break
    return errors


async def _bring_about(cluster: Cluster, item: Object, observed: Observed) -> None:
    """Create an object, or change its outdated fields. Raises ClusterError."""
    kind, name, namespace = item["kind"], item["metadata"]["name"], item["metadata"]["namespace"]
    seen = observed.objects.get(ObjectKey(kind, name))
    if seen is None:
        await cluster.create(item)
        return
    await cluster.change(kind, name, namespace, seen.uid, make_patch(item))
    if observed.resync and is_as_made(seen.applied, item):
        await cluster.apply(item, seen.uid)


def makes_something(decision: Decision, observed: Observed) -> bool:
    """Return whether a decision creates missing objects or applies existing objects again."""
    new = {ObjectKey(item["kind"], item["metadata"]["name"]) for item in decision.apply} - observed.objects.keys()
    return bool(new) or (observed.resync and bool(decision.apply))


async def _catch_failure(write: Awaitable[None]) -> ClusterError | None:
    try:
        await write
    except ClusterError as error:
        return error
    return None
