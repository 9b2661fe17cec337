"""How far the runs that wait for slots are behind the shares that are declared for them. Pure."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

FLOOR = 0.05
"""Least part of the slots that the runs of a lower priority keep while those of a higher one wait: nobody starves.
They get more where few slots are held for seconds, since MAX_CARRY bounds what those of the higher one are owed."""
MAX_CARRY: float = 1.0
"""Maximum slot-seconds carried on. So a run never holds more than a slot beyond its share for what it lacked before."""


class Priority(IntEnum):
    """Order in which runs are served; the runs of one priority divide slots by their weights."""

    LOW = -1
    NORMAL = 0
    HIGH = 1


def divide_slots(
    waiting: Collection[str], weights: Mapping[str, float], priorities: Mapping[str, Priority]
) -> dict[str, float]:
    """Return the part of the slots of each run that waits; they add up to 1.

    Each waiting priority below the highest keeps FLOOR, and the highest gets the rest.
    """
    by_run = {run: (priorities.get(run, Priority.NORMAL), weights.get(run, 1.0)) for run in waiting}
    totals: dict[Priority, float] = {}
    for priority, weight in by_run.values():
        totals[priority] = totals.get(priority, 0.0) + weight
    highest, lower = max(totals, default=Priority.NORMAL), len(totals) - 1
    parts = {priority: 1 - lower * FLOOR if priority == highest else FLOOR for priority in totals}
    return {run: parts[priority] * weight / totals[priority] for run, (priority, weight) in by_run.items()}


@dataclass
class DeclaredShares:
    """Divides slots among runs by priority and, within a priority, in proportion to their weights.

    At any time a run's slots differ from its share by at most one slot. The difference is carried over in
    slot-seconds, so that shares also hold over time if slots are few, whatever the runs' programs cost, as long as a
    program takes less than MAX_CARRY.
    """

    weights: Mapping[str, float]
    """Weights of the runs whose weight is not 1."""
    clock: Callable[[], float]
    """Monotonic clock in seconds."""
    priorities: Mapping[str, Priority] = field(default_factory=dict)
    """Priorities of the runs whose priority is not NORMAL."""
    _carried: dict[str, float] = field(default_factory=dict)
    _seen: float = 0.0

    def advance(self, waiting: Collection[str], held: Mapping[str, int]) -> None:
        """Add to each waiting run's carry the slot-seconds that it lacked since the last call, negative if it had too
        many.

        Args:
            waiting: the runs that waited.
            held: slots by run, since then.
        """
        now = self.clock()
        elapsed, self._seen = now - self._seen, now
        carried = {}
        if len(waiting) > 1:
            for run, share in self._shares(waiting, held, 0).items():
                whole = self._carried.get(run, 0.0) + (share - held.get(run, 0)) * elapsed
                carried[run] = min(MAX_CARRY, max(-MAX_CARRY, whole))
        # Nothing is kept of a run that does not wait: a gateway sees thousands of runs.
        self._carried = carried

    def count_missing_slots(self, waiting: Collection[str], held: Mapping[str, int]) -> dict[str, float]:
        """Return how many slots each waiting run would lack if no run got the next slot, including the carry."""
        shares = self._shares(waiting, held, 1)
        return {run: share - held.get(run, 0) + self._carried.get(run, 0.0) for run, share in shares.items()}

    def _shares(self, waiting: Collection[str], held: Mapping[str, int], free: int) -> dict[str, float]:
        slots = free + sum(held.get(run, 0) for run in waiting)
        return {run: slots * part for run, part in divide_slots(waiting, self.weights, self.priorities).items()}
