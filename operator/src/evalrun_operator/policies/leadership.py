"""Leader election: who holds the Lease, until when, and who may take it. Pure.

As in client-go, clocks of different machines are never compared: a Lease counts from when this process first saw its
state. A leader that cannot renew stops before any other may take over.
"""

from dataclasses import dataclass

LEASE_SECONDS = 12
"""Seconds for which a Lease is valid without renewal. A takeover after a crash takes at most this time and one poll."""
RENEW_SECONDS = 5.0
"""Seconds between two renewals by the leader."""
DEADLINE_SECONDS = 10.0
"""Seconds without a renewal after which a leader stops working."""
RETRY_SECONDS = 1.5
"""Seconds between two polls by the others, and between two attempts of a leader that could not renew."""
REQUEST_SECONDS = 2.5
"""Maximum seconds of a request for the Lease. A leader whose connection hangs has time for another request."""


@dataclass(frozen=True)
class Lease:
    """A Lease as the API server has it."""

    holder: str
    """Empty: the Lease is released."""
    seconds: float
    version: str
    """The resourceVersion of the Lease."""


@dataclass(frozen=True)
class ObservedLease:
    """A Lease, and when its state was first seen, by this process's own clock."""

    lease: Lease | None
    since: float


def observe_lease(before: ObservedLease | None, lease: Lease | None, now: float) -> ObservedLease:
    """Return the observed Lease after another look at it."""
    return before if before is not None and before.lease == lease else ObservedLease(lease, now)


def may_lead(sight: ObservedLease, me: str, now: float) -> bool:
    """Return whether this process may write its name into the Lease."""
    lease = sight.lease
    return lease is None or lease.holder in {"", me} or now - sight.since >= lease.seconds


def must_stop(renewed_at: float, now: float) -> bool:
    """Return whether a leader must stop working, because others may soon consider it dead."""
    return now - renewed_at >= DEADLINE_SECONDS
