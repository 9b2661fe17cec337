"""Measures how long replicas wait between requests. Pure.

With turns that depend on verdicts, GPUs may wait for the judge.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

PAUSE_SECONDS: Final = 600.0
"""A longer gap between a replica's requests is a suspension or an outage, not a wait for verdicts."""


@dataclass(slots=True)
class _Use:
    busy: float = 0.0
    """Seconds with a request in flight."""
    idle: float = 0.0
    end: float = 0.0
    """End of the last request so far; Unix seconds."""


def idle_share(requests: Iterable[tuple[str, float, float]]) -> dict[str, float | int | None]:
    """Return the share of the time between first and last request in which replicas had no request in flight.

    Args:
        requests: (replica, started at, seconds) of each request, in order of their starts. Requests without a known
            replica are left out.
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
