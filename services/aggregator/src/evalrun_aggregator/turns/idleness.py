"""Waiting times of replicas between requests: with turns that depend on verdicts, GPUs may wait for the judge. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

PAUSE_SECONDS: Final = 600.0
"""A longer gap between a replica's requests is a suspension or an outage, and no wait for verdicts."""


@dataclass(slots=True)
class _Use:
    busy: float = 0.0
    """Seconds with a request in flight."""
    idle: float = 0.0
    end: float = 0.0
    """Of the requests so far; Unix seconds."""


def idle_share(requests: Iterable[tuple[str, float, float]]) -> dict[str, float | int | None]:
    """Return in which part of the time between their first and last request replicas had none in flight.

    Args:
        requests: (replica, started at, seconds) of each, in order of their starts. What was sent by nobody known is
            left out.
    """
    uses: dict[str, _Use] = {}
    for replica, start, seconds in requests:
        if not start or not replica:
            continue
        end = start + seconds
        use = uses.get(replica)
        if use is None:
            uses[replica] = _Use(seconds, 0.0, end)
            continue
        if 0 < (gap := start - use.end) <= PAUSE_SECONDS:
            use.idle += gap
        use.busy += max(0.0, end - max(start, use.end))
        use.end = max(use.end, end)
    busy, idle = sum(use.busy for use in uses.values()), sum(use.idle for use in uses.values())
    return {
        "replicas": len(uses),
        "busy_seconds": busy,
        "idle_seconds": idle,
        "idle_share": idle / (busy + idle) if busy + idle > 0 else None,
    }
