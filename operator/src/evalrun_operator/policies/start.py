"""Failure of a run that cannot start: which problems do not resolve themselves, and how long they may last."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

ROOM = re.compile(
    r"Insufficient |untolerated taint|didn't match Pod's node affinity|Too many pods|no nodes available|Preempt"
)
"""Messages of the scheduler about a pod without a node. There may be one in a minute or overnight."""
STARTING = re.compile(r"Startup probe failed|Readiness probe failed")
"""Messages of the kubelet about a container that is not up yet, on a busy node for minutes. One that never is, it kills
and starts again, which is trouble of its own (CrashLoopBackOff)."""
CRAMPED = (
    "It waits for room in the cluster. Runs that wait for each other's room never end: operator.maxActiveRuns bounds "
    "how many are active at a time."
)


def obstacles(troubles: Iterable[str]) -> list[str]:
    """Return the troubles that last until somebody fixes them: a missing Secret, claim or image, a refusal."""
    return [trouble for trouble in troubles if not is_cramped(trouble) and not STARTING.search(trouble)]


def is_cramped(trouble: str) -> bool:
    """Return whether a pod waits for room."""
    return ROOM.search(trouble) is not None


def gives_up_at(stalled_since: datetime, seconds: float) -> datetime | None:
    """Return when a run that cannot start fails; None if it may wait without end.

    Args:
        stalled_since: when it was first seen that it cannot start.
        seconds: how long that may last; 0: without end.
    """
    return stalled_since + timedelta(seconds=seconds) if seconds else None
