"""How far the runs that wait for slots are behind the shares that are declared for them. Pure."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

MAX_CARRY: float = 1.0
"""Slot-seconds. So a run never holds more than a slot beyond its share in return for what it lacked before."""


@dataclass
class DeclaredShares:
    """Divides slots among runs in proportion to their weights.

    At any time a run holds its share to one slot. What that lacks is carried on in slot-seconds, so that shares hold
    over time too where there are few slots, and whatever the runs' programs cost.
    """

    weights: Mapping[str, float]
    """Of runs whose weight is not 1."""
    clock: Callable[[], float]
    """Seconds, monotonic."""
    _carried: dict[str, float] = field(default_factory=dict)
    _seen: float = 0.0

    def advance(self, waiting: Collection[str], held: Mapping[str, int]) -> None:
        """Carry on what the runs that waited since the last call had too little or too much of.

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
        self._carried = carried  # nothing is kept of a run that does not wait: a gateway sees thousands

    def lacking(self, waiting: Collection[str], held: Mapping[str, int]) -> dict[str, float]:
        """Return how many slots each run that waits would lack if nobody got the next one."""
        shares = self._shares(waiting, held, 1)
        return {run: share - held.get(run, 0) + self._carried.get(run, 0.0) for run, share in shares.items()}

    def _shares(self, waiting: Collection[str], held: Mapping[str, int], free: int) -> dict[str, float]:
        slots = free + sum(held.get(run, 0) for run in waiting)
        weights = {run: self.weights.get(run, 1.0) for run in waiting}
        total = sum(weights.values())
        return {run: slots * weight / total for run, weight in weights.items()}
