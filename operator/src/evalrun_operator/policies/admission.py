"""Admission of runs while others are active: up to a maximum number, in the order of their creation.

A run is admitted as a whole or not at all. Half-built runs deadlock: thirty of them hold all memory of a node with
their ledgers and judges, and none of them can place its generator.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """A run that holds a place, or waits for one."""

    uid: str
    created: datetime
    name: str
    """Namespace and name: decides between runs of the same second."""
    active: bool
    """It was admitted, and has not ended since."""


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """Position of a run in the queue."""

    position: int = 0
    """0: admitted. 1: the next to be admitted."""
    active: int = 0
    """Runs that hold a place."""


def place_of(
    uid: str, contenders: Iterable[QueuedRun], max_active: int, admitted: Collection[str] = ()
) -> QueuePosition:
    """Return a run's place in the queue.

    Args:
        uid: the run's.
        contenders: every run that is active or waits, the run itself too.
        max_active: runs that may be active at a time; 0: any number.
        admitted: uids of runs that have been admitted just now, whose status does not say so yet.
    """
    if max_active == 0:
        return QueuePosition()
    known = list(contenders)
    active = {run.uid for run in known if run.active or run.uid in admitted}
    if uid in active:
        return QueuePosition(0, len(active))
    waiting = sorted((run for run in known if run.uid not in active), key=lambda run: (run.created, run.name))
    ahead = next((index for index, run in enumerate(waiting) if run.uid == uid), 0)
    free = max_active - len(active)
    return QueuePosition(max(0, ahead + 1 - max(0, free)), len(active))
