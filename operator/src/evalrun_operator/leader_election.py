"""Holds a Lease, so that only one of several operators works: acquires, renews and releases it.

`policies.leadership` decides. Two operators that work at once for the length of a request do no harm: every write names
the uid or the version of its object, and creating is refused if the object exists.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol

from evalrun_cluster.errors import ClusterError, ConflictError
from evalrun_cluster.kinds import LEASE
from evalrun_cluster.objects import Object
from evalrun_operator.policies.leadership import (
    DEADLINE_SECONDS,
    LEASE_SECONDS,
    RENEW_SECONDS,
    REQUEST_SECONDS,
    RETRY_SECONDS,
    Lease,
    ObservedLease,
    may_lead,
    must_stop,
    observe_lease,
)

logger = logging.getLogger(__name__)


class LeaseApi(Protocol):
    """Interface to the API server's Leases; `evalrun_cluster.client.Cluster` implements it."""

    async def read_lease(self, name: str, namespace: str) -> Object | None:
        """Return a Lease, or None. Raises ClusterError."""
        ...

    async def write_lease(self, lease: Object) -> Object:
        """Create a Lease, or replace the version that it names. Raises ClusterError, ConflictError if it changed."""
        ...


class LeaderElection:
    """Takes part in the election on behalf of an operator.

    Args:
        leases: the API server's Leases.
        place: namespace and name of the Lease.
        me: the unique name of this process.
        lead: starts the work.
        follow: ends the work before it returns.
        now: the time, for people who look at the Lease.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        leases: LeaseApi,
        place: tuple[str, str],
        me: str,
        lead: Callable[[], None],
        follow: Callable[[], Awaitable[None]],
        now: Callable[[], datetime],
        clock: Callable[[], float],
    ) -> None:
        self._leases = leases
        self._namespace, self._name = place
        self._me = me
        self._lead = lead
        self._follow = follow
        self._now = now
        self._clock = clock
        self._sight: ObservedLease | None = None
        self._manifest: Object | None = None
        self._renewed_at = 0.0
        self.leading = False

    async def run(self) -> None:
        """Take part until cancelled."""
        while True:
            pause = await self.turn()
            await asyncio.sleep(pause)

    async def turn(self) -> float:
        """Read the Lease, and take or renew it if that is due. Return the seconds until the next turn."""
        began = self._clock()
        left = self._renewed_at + DEADLINE_SECONDS - began if self.leading else REQUEST_SECONDS
        lost = False
        try:
            async with asyncio.timeout(max(0.05, min(REQUEST_SECONDS, left))):
                lost = not await self._try(began)
        except (ClusterError, TimeoutError) as error:
            logger.warning("Lease %s/%s: %s", self._namespace, self._name, str(error) or "no answer in time")
            self._sight = None if isinstance(error, ConflictError) else self._sight
        else:
            if self.leading and not lost:
                return RENEW_SECONDS
        # Stop the work outside the timeout block: the timeout would interrupt the stop and leave half of the work
        # running.
        if lost:
            await self._stop_leading("another operator has taken the Lease")
        if self.leading and must_stop(self._renewed_at, self._clock()):
            await self._stop_leading("the Lease could not be renewed")
        return RETRY_SECONDS

    async def release(self) -> None:
        """End the work, and let another operator begin at once."""
        if not self.leading:
            return
        await self._stop_leading("the operator ends")
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                await self._leases.write_lease(self._make_manifest(holder=""))
        # No second attempt is needed, because the Lease expires by itself.
        except (ClusterError, TimeoutError) as error:
            logger.warning("releasing Lease %s/%s: %s", self._namespace, self._name, error)

    async def _try(self, began: float) -> bool:
        """Read the Lease, and acquire or renew it if that is due. Return False if this leader has lost it."""
        self._manifest = await self._leases.read_lease(self._name, self._namespace)
        self._sight = observe_lease(self._sight, _lease(self._manifest), self._clock())
        if self.leading and (self._sight.lease is None or self._sight.lease.holder != self._me):
            return False
        if not may_lead(self._sight, self._me, self._clock()):
            return True
        self._manifest = await self._leases.write_lease(self._make_manifest(self._me))
        self._sight = ObservedLease(_lease(self._manifest), self._clock())
        # The time before the request counts: other operators count the Lease from a later moment, so this leader stops
        # before another takes over.
        self._renewed_at = began
        if not self.leading:
            self.leading = True
            logger.info("%s leads: it holds Lease %s/%s", self._me, self._namespace, self._name)
            self._lead()
        return True

    async def _stop_leading(self, why: str) -> None:
        self.leading = False
        logger.info("%s leads no more: %s", self._me, why)
        await self._follow()

    def _make_manifest(self, holder: str) -> Object:
        known = self._manifest or {}
        metadata = {"name": self._name, "namespace": self._namespace, **known.get("metadata", {})}
        spec = dict(known.get("spec") or {})
        time = self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if holder and holder != spec.get("holderIdentity"):
            spec["acquireTime"] = time
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + bool(known)
        spec |= {"holderIdentity": holder, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": time}
        return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}


def _lease(manifest: Object | None) -> Lease | None:
    if manifest is None:
        return None
    spec = manifest.get("spec") or {}
    return Lease(
        spec.get("holderIdentity") or "",
        float(spec.get("leaseDurationSeconds") or LEASE_SECONDS),
        manifest["metadata"]["resourceVersion"],
    )
