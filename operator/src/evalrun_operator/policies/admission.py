"""Admits runs up to a maximum number of active runs, fairly between namespaces and oldest first within each.

A run is admitted as a whole or not at all. Half-built runs deadlock: thirty of them fill all memory of a node with
their ledgers and judges, and none can place its generator.
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
    """Namespace and name, which decide between runs of the same second."""
    active: bool
    """Whether the run was admitted, and has not ended since."""
    stalled: bool = False
    """Whether the run was admitted and cannot start: it holds no position, but counts in its namespace."""

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
    """Number of runs that hold a position."""


def find_position(
    uid: str, contenders: Iterable[QueuedRun], max_active: int, admitted: Collection[str] = ()
) -> QueuePosition:
    """Return a run's position in the queue.

    Args:
        uid: uid of the run.
        contenders: all runs that are active or wait, the run itself included.
        max_active: maximum number of active runs; 0: no maximum.
        admitted: uids of runs that have just been admitted, whose status does not show it yet.
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
            # Runs that cannot start hold no position. Without a limit of their own they would fill the cluster.
            crowded = others >= max_active
            return QueuePosition(max(int(crowded), index + 1 - free), len(active))
    return QueuePosition(0 if free else 1, len(active))


def _order_by_turn(known: Iterable[QueuedRun], active: Collection[str]) -> Iterator[tuple[QueuedRun, int]]:
    """Yield the waiting runs in the order of their admission, with the number of earlier runs of their namespace.

    The next run is always the oldest of the namespace with the fewest runs, so hundreds of runs delay another namespace
    by no more than a single run does.
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
