"""Derives the actions of a reconciliation from the difference between desired and observed objects. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from evalrun_api import names
from evalrun_api.v1alpha1 import EvalRunStatus
from evalrun_cluster.kinds import KINDS
from evalrun_cluster.objects import Object, StatusEvent
from evalrun_operator.lifecycle.situation import ReconcileContext
from evalrun_operator.lifecycle.status_report import derive_events
from evalrun_operator.observation.records import ObjectKey, Observed, ObservedObject, Policy
from evalrun_operator.policies.stuck_pods import find_abandoned_pods
from evalrun_operator.resources.changes import is_as_made, is_outdated, spec_digest

IDLE_SECONDS = 60.0
"""Seconds between two reconciliations of a waiting run, in case a watch missed something."""


@dataclass(frozen=True)
class Decision:
    """Actions of a reconciliation. Deletions come first, the status last."""

    status: EvalRunStatus
    apply: tuple[Object, ...] = ()
    delete: tuple[ObservedObject, ...] = ()
    abandon: tuple[ObservedObject, ...] = ()
    """Pods of lost nodes, whose end is not awaited."""
    events: tuple[StatusEvent, ...] = ()
    requeue_after: float | None = None
    """Seconds after which the run is reconciled again in any case; None: only when something happens."""
    end_early: str = ""
    """Reason why the ledger is to end the run with its present results; empty if the run continues or has ended."""
    expired: bool = False
    """Whether the EvalRun's time to live is over: it is deleted with everything that it owns."""


def decision(
    context: ReconcileContext,
    status: EvalRunStatus,
    desired: Iterable[Object] = (),
    kept: Iterable[ObjectKey] = (),
    delete: Iterable[ObservedObject] = (),
    requeue_after: float | None = None,
) -> Decision:
    """Convert the difference between desired and observed objects into actions.

    Only the operator's objects are touched.
    """
    observed, wanted = context.observed, list(desired)
    refs = {ObjectKey(item["kind"], item["metadata"]["name"]) for item in wanted} | set(kept)
    started = context.before.start_time is not None
    surplus = [
        seen
        for seen in observed.objects.values()
        if started
        and seen.owned
        and not seen.deleting
        and KINDS[seen.ref.kind].made
        and seen.ref not in refs
        # Programs may run until a sandbox's pod is gone, so its NetworkPolicy stays until then. The same holds for
        # every part.
        and not (seen.ref.kind == "NetworkPolicy" and observed.pods(_component(context, seen.ref)))
    ]
    return Decision(
        status,
        tuple(item for item in wanted if _to_apply(observed, item)),
        tuple(dict.fromkeys([*delete, *surplus])),
        tuple(find_abandoned_pods(observed, context.now)),
        derive_events(context.before, status),
        requeue_after,
    )


def _component(context: ReconcileContext, ref: ObjectKey) -> str:
    return ref.name.removeprefix(names.component(context.plan.run.name, ""))


def _to_apply(observed: Observed, item: Object) -> bool:
    """Return whether an object is missing or differs. An object that is being deleted is awaited instead."""
    seen = observed.objects.get(ObjectKey(item["kind"], item["metadata"]["name"]))
    if seen is None:
        return True
    if seen.deleting:
        return False
    if names.QUEUE_LABEL in item["metadata"]["labels"]:
        # When Kueue admits an object, it writes the tolerations and node labels of its flavors into the object. A
        # RayCluster's groups are a single value for server-side apply: applying them again removes those labels, and
        # Kueue then ends the object.
        return False
    if isinstance(seen.detail, Policy) and seen.detail.spec != spec_digest(item["spec"]):
        # Somebody has edited the NetworkPolicy: the sandboxes would be open until the next resync.
        return True
    return is_outdated(seen.applied, item) or (observed.resync and is_as_made(seen.applied, item))
