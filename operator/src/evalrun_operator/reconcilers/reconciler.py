"""Reconciler of a kind: knows the objects, decides when to reconcile each, and retries after a failure.

EvalRuns and EvalSchedules each have a reconciler. It depends on no framework, and not on what a reconciliation decides.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from pydantic import ValidationError

from evalrun_api.api_model import ApiModel
from evalrun_api.v1alpha1 import EvalRunStatus, EvalScheduleStatus
from evalrun_cluster.client import Cluster
from evalrun_cluster.errors import ClusterError, ConflictError, NamespaceGoneError, RefusedError
from evalrun_cluster.objects import Object, RunIdentity, StatusEvent
from evalrun_operator.observation.children import Key, trim_manifest
from evalrun_operator.reconcilers.work_queue import FIRST
from evalrun_runtime.backoff import backoff_seconds

logger = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 0.5
CONFLICT_SECONDS = 0.05
MAX_RETRY_SECONDS = 10.0
MAX_REFUSED_SECONDS = 60.0

ModelT = TypeVar("ModelT", bound=ApiModel)


@dataclass(frozen=True)
class ReconcileResult:
    """Result of a completed reconciliation."""

    requeue_after: float | None = None
    """Seconds after which the next reconciliation is due in any case; None: only when something happens."""
    failure: ClusterError | None = None
    """Worst of the writes that failed."""


class Reconciler(ABC):
    """Stores the last seen state of each object of a kind, and reconciles the objects.

    Args:
        kind: kind of the objects.
        cluster: the API server.
        known: store of the objects, by namespace and name.
        wake: requests a reconciliation of an object after a delay in seconds, or `FIRST`.
        now: the time, with its zone.
    """

    def __init__(
        self,
        kind: str,
        cluster: Cluster,
        known: MutableMapping[Key, Object],
        wake: Callable[[Key, float], None],
        now: Callable[[], datetime],
    ) -> None:
        self._kind = kind
        self._cluster = cluster
        self._known = known
        self._wake = wake
        self._now = now
        self._failures: dict[Key, int] = {}
        """Number of failed reconciliations in a row."""
        self._complaints: dict[Key, str] = {}

    @abstractmethod
    async def _pass(self, key: Key, manifest: Object) -> ReconcileResult:
        """Reconcile an object once. Raises ClusterError if the reconciliation cannot be completed."""

    @abstractmethod
    def _on_forgotten(self, key: Key, uid: str, *, replaced: bool) -> None:
        """Drop the state of a deleted object. `replaced`: another object already has its name."""

    def _on_shown(self, uid: str) -> None:  # noqa: B027 - most kinds need not know
        """Record that the API server has just shown an object."""

    def _asks_for_more(self, manifest: Object, known: Object) -> bool:
        """Return whether an object differs in more than its status, which only the operator writes."""
        fields = ("uid", "generation", "deletionTimestamp")
        return any(manifest["metadata"].get(field) != known["metadata"].get(field) for field in fields)

    def saw(self, manifest: Object, *, gone: bool = False) -> None:
        """Store the state of an object, and reconcile it if anything but its status changed."""
        key, uid = _make_key(manifest), manifest["metadata"]["uid"]
        known = self._known.get(key)
        same = known is not None and known["metadata"]["uid"] == uid
        if gone:
            if same:
                self._forget(key, uid)
            return
        if known is not None and same and not _is_newer(manifest, known):
            # This state is known already, usually from our own write.
            return
        # The object was deleted in a gap of the watch.
        if known is not None and not same:
            self._forget(key, known["metadata"]["uid"])
        self._known[key] = manifest
        self._on_shown(uid)
        if known is None or not same:
            self._wake(key, _urgency(manifest))
        elif self._asks_for_more(manifest, known):
            self._wake(key, FIRST)

    def wake_all(self) -> None:
        """Queue every object, because until now another operator, or none, has worked on the objects."""
        for key, manifest in self._known.items():
            self._wake(key, _urgency(manifest))

    async def work(self, key: Key) -> float | None:
        """Reconcile an object once. Return the seconds until its next reconciliation; None: only when it is woken."""
        manifest = self._known.get(key)
        if manifest is None:
            return None
        result = await self._outcome(key, manifest)
        if result.failure is not None:
            return self._delay_after(key, result.failure, result.requeue_after)
        self._failures.pop(key, None)
        self._complaints.pop(key, None)
        return result.requeue_after

    async def _outcome(self, key: Key, manifest: Object) -> ReconcileResult:
        try:
            return await self._pass(key, manifest)
        except ClusterError as error:
            if isinstance(error, RefusedError) and not isinstance(error, NamespaceGoneError):
                await self._complain(key, manifest, "Refused", str(error))
            return ReconcileResult(failure=error)
        except Exception as error:
            # This is an internal error, or an object that cannot be reconciled, e.g. because it cannot be serialised.
            # The object's user must see the error as an event. The queue logs it, and continues with all others.
            text = f"a reconciliation of this object failed unexpectedly: {type(error).__name__}: {error}"
            await self._complain(key, manifest, "PassFailed", text[:500])
            raise

    def _delay_after(self, key: Key, failure: ClusterError, delay: float | None) -> float:
        """Return the seconds to wait after a failed reconciliation.

        The wait grows with each failure in a row, up to a maximum or the object's next due time.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        first = CONFLICT_SECONDS if isinstance(failure, ConflictError) else FIRST_RETRY_SECONDS
        limit = MAX_REFUSED_SECONDS if isinstance(failure, RefusedError) else MAX_RETRY_SECONDS
        wait = backoff_seconds(failures, first, limit)
        wait = wait if delay is None else min(wait, max(delay, first))
        logger.warning("%s %s/%s: %s; again in %.1f s", self._kind, *key, failure, wait)
        return wait

    async def _write_status(self, key: Key, manifest: Object, status: EvalRunStatus | EvalScheduleStatus) -> bool:
        """Write a status if it differs. Return whether the object still exists. Raises ClusterError."""
        if status.to_wire() == manifest.get("status"):
            return True
        uid = manifest["metadata"]["uid"]
        written = await self._cluster.write_status({**manifest, "kind": self._kind}, status)
        if written is None:
            self._forget(key, uid)
            return False
        self._on_shown(uid)
        if _is_newer(written, self._known.get(key, written)):
            self._known[key] = trim_manifest(written)
        return True

    async def _record(self, identity: RunIdentity, event: StatusEvent) -> None:
        """Record an event. A failure is only logged, because the status holds the same text."""
        place = self._kind, identity.namespace, identity.name
        logger.info("%s %s/%s: %s: %s", *place, event.reason, event.message)
        try:
            await self._cluster.record(identity, event, self._now().strftime("%Y-%m-%dT%H:%M:%SZ"), kind=self._kind)
        except ClusterError as error:
            logger.warning("%s %s/%s: %s", *place, error)

    async def _complain(self, key: Key, manifest: Object, reason: str, message: str) -> None:
        """Record once, as an event, the error that ended a reconciliation before it could write the status."""
        if self._complaints.get(key) == message:
            return
        self._complaints[key] = message
        metadata = manifest["metadata"]
        created = datetime.fromisoformat(metadata["creationTimestamp"])
        identity = RunIdentity(metadata["name"], metadata["namespace"], metadata["uid"], created)
        await self._record(identity, StatusEvent(warning=True, reason=reason, message=message))

    def _forget(self, key: Key, uid: str) -> None:
        # A later object of the same name may have replaced this object, and its state is kept.
        replaced = not self._is_known(key, uid)
        if not replaced:
            del self._known[key]
            self._failures.pop(key, None)
            self._complaints.pop(key, None)
        self._on_forgotten(key, uid, replaced=replaced)

    def _is_known(self, key: Key, uid: str) -> bool:
        return key in self._known and self._known[key]["metadata"]["uid"] == uid


def read_object(model: type[ModelT], manifest: dict[str, Any]) -> ModelT:
    """Parse an object of the API into its model.

    Raises:
        RefusedError: the CRD is of another version than this operator.
    """
    try:
        return model.model_validate(manifest)
    except ValidationError as error:
        first = error.errors()[0]
        raise unreadable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def unreadable(what: str) -> RefusedError:
    """Return the error for an object that another release wrote."""
    return RefusedError(f"this operator cannot read {what}: is it older than the one that wrote it?")


def _make_key(manifest: Object) -> Key:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def _is_newer(manifest: Object, known: Object) -> bool:
    """Return whether a state of an object is newer than the known state.

    Resource versions are growing integers (Kubernetes 1.35, KEP-5504). Other versions count as newer if they differ.
    """
    ours, theirs = manifest["metadata"]["resourceVersion"], known["metadata"]["resourceVersion"]
    if ours.isdecimal() and theirs.isdecimal():
        return int(ours) > int(theirs)
    return bool(ours != theirs)


def _urgency(manifest: Object) -> float:
    """Return the delay of an object's first reconciliation.

    A user's new request needs a short reconciliation, which need not wait behind those that create an object's parts,
    nor, after a restart or a takeover, behind every object that was accepted long ago.
    """
    return 0.0 if manifest.get("status") else FIRST
