"""Leases of items: who holds which item, and until when. Pure: the time is an argument.

Leases live in memory. After a restart of the aggregator nobody holds anything, and a completion from an earlier lease
is as good as any other (the ledger keeps the first). So a lease only saves work; correctness does not depend on it.
"""

from collections import OrderedDict

from evalrun_aggregator.ledger.item_states import ItemState, ItemStates

DEFAULT_SECONDS = 900.0


class Leases:
    """The leases of a run.

    Args:
        item_states: pending items are taken from here and become LEASED.
        seconds: duration of a lease; longer than the slowest completion, which is otherwise generated twice.
    """

    def __init__(self, item_states: ItemStates, seconds: float = DEFAULT_SECONDS) -> None:
        self._item_states = item_states
        self._seconds = seconds
        self._held: OrderedDict[int, tuple[str, float]] = OrderedDict()
        """(worker, end) by item, in order of end: all leases last equally long."""
        self._of_worker: dict[str, set[int]] = {}
        self._next = 0

    def take(self, worker: str, limit: int, now: float) -> list[int]:
        """Lease up to `limit` pending items, in order of index.

        Args:
            worker: the worker that asks.
            limit: maximum number of items.
            now: seconds of a monotonic clock.
        """
        self.expire(now)
        taken: list[int] = []
        while len(taken) < limit:
            index = self._item_states.first(ItemState.PENDING, self._next)
            if index is None:
                break
            self._item_states.move(index, ItemState.LEASED)
            self._held[index] = (worker, now + self._seconds)
            self._of_worker.setdefault(worker, set()).add(index)
            self._next = index + 1
            taken.append(index)
        return sorted(taken)

    def settle(self, index: int) -> None:
        """Remove the lease of an item whose completion has arrived, from any worker."""
        held = self._held.pop(index, None)
        if held is not None:
            self._of_worker[held[0]].discard(index)

    def void(self, worker: str) -> int:
        """End a worker's leases. Return their number."""
        items = self._of_worker.pop(worker, set())
        for index in items:
            del self._held[index]
            self._give_back(index)
        return len(items)

    def expire(self, now: float) -> int:
        """End the leases that have expired. Return their number."""
        ended = 0
        while self._held:
            index, (worker, end) = next(iter(self._held.items()))
            if end > now:
                break
            del self._held[index]
            self._of_worker[worker].discard(index)
            self._give_back(index)
            ended += 1
        return ended

    def retry_after(self, now: float) -> float:
        """Return the seconds until the next lease ends; 0 if none is held."""
        if not self._held:
            return 0.0
        return max(0.0, next(iter(self._held.values()))[1] - now)

    def _give_back(self, index: int) -> None:
        # The item was cancelled meanwhile.
        if self._item_states.state(index) is not ItemState.LEASED:
            return
        self._item_states.move(index, ItemState.PENDING)
        self._next = min(self._next, index)
