"""Admits runs up to a maximum number of active runs, fairly between namespaces and oldest first within each.

A run is admitted as a whole or not at all. Half-built runs deadlock: thirty of them hold all memory of a node with
their ledgers and judges, and none of them can place its generator.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """A run that is active or waits in the queue."""

    uid: str
    created: datetime
    name: str
    """Namespace and name: decides between runs of the same second."""
    active: bool
    """It was admitted, and has not ended since."""
    stalled: bool = False
    """It was admitted and cannot start: it holds no place, but counts as one of its namespace's."""

    @property
    def namespace(self) -> str:
        """The run's namespace."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """Position of a run in the queue."""

    position: int = 0
    """0: admitted. 1: the next to be admitted."""
    active: int = 0
    """Runs that hold a place."""


def find_position(
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
    free = max(0, max_active - len(active))
    for index, (run, others) in enumerate(_order_by_turn(known, active)):
        if run.uid == uid:
            # Runs that cannot start hold no place. Without a bound of their own they would fill the cluster.
            crowded = others >= max_active
            return QueuePosition(max(int(crowded), index + 1 - free), len(active))
    return QueuePosition(0 if free else 1, len(active))


def _order_by_turn(known: Iterable[QueuedRun], active: Collection[str]) -> Iterator[tuple[QueuedRun, int]]:
    """Yield the waiting runs in the order of their admission, with the number of runs of their namespace before each.

    The next run is always the oldest of the namespace that has the fewest runs: whoever creates hundreds of runs delays
    another namespace by no more than a namespace that creates a single run.
    """
    runs: Counter[str] = Counter()
    waiting: dict[str, list[QueuedRun]] = {}
    for run in known:
        if run.uid in active or run.stalled:
            runs[run.namespace] += 1
        else:
            waiting.setdefault(run.namespace, []).append(run)
    turns = []
    for namespace, queue in waiting.items():
        queue.sort(key=lambda run: (run.created, run.name), reverse=True)
        turns.append((runs[namespace], queue[-1].created, queue[-1].name))
    heapq.heapify(turns)
    while turns:
        count, _, name = turns[0]
        queue = waiting[name.partition("/")[0]]
        yield queue.pop(), count
        if queue:
            heapq.heapreplace(turns, (count + 1, queue[-1].created, queue[-1].name))
        else:
            heapq.heappop(turns)
