"""Queue for slots, shared fairly among runs: a run with a thousand requests does not delay a run with ten. Pure.

A free slot goes to the run with the fewest slots, and on a tie to the run whose last turn is longest ago. So runs with
enough work hold equal shares of the slots at any time (max-min fairness), however long their programs take: counting
requests instead would favour the run with the longest programs. With declared shares a free slot goes to the run that
is furthest behind its share. Within a run: first come, first served, but requests that have begun before those that
have not.
"""

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from evalrun_runtime.declared_shares import DeclaredShares

Item = TypeVar("Item")


class _Waiting(Generic[Item]):
    """A run's items."""

    def __init__(self) -> None:
        self.urgent: deque[Item] = deque()
        self._others: deque[Item] = deque()

    def choose_queue(self, urgent: bool) -> deque[Item]:
        return self.urgent if urgent else self._others

    @property
    def next(self) -> deque[Item]:
        return self.urgent or self._others

    def __iter__(self) -> Iterator[Item]:
        return itertools.chain(self.urgent, self._others)


class FairQueue(Generic[Item]):
    """Waiting items, by run."""

    def __init__(self, gone: Callable[[Item], bool] = lambda item: False, shares: DeclaredShares | None = None) -> None:
        """Start empty.

        Args:
            gone: returns whether an item's caller is gone; such an item is dropped at its turn.
            shares: of the slots; None for equal shares.
        """
        self._gone = gone
        self._shares = shares
        self._waiting: dict[str, _Waiting[Item]] = {}
        self._held: Counter[str] = Counter()
        self._turns = itertools.count(1)
        self._last_turn: dict[str, int] = {}

    def push(self, run: str, item: Item, *, urgent: bool = False) -> None:
        """Add an item; an urgent item goes before the run's other items."""
        if run not in self._waiting:
            self._advance()
        self._waiting.setdefault(run, _Waiting()).choose_queue(urgent).append(item)

    def first(self) -> tuple[str, Item] | None:
        """Return the run whose turn it is and its first item; None if no item waits."""
        # Most gateways serve one run at a time.
        if len(self._waiting) == 1:
            ((run, waiting),) = self._waiting.items()
            if self._has_items_left(waiting):
                return run, waiting.next[0]
        self._advance()
        for idle in [run for run, waiting in self._waiting.items() if not self._has_items_left(waiting)]:
            del self._waiting[idle]
            self._forget(idle)
        if not self._waiting:
            return None
        run = self._next_run()
        return run, self._waiting[run].next[0]

    def _next_run(self) -> str:
        if self._shares is None:
            return min(self._waiting, key=lambda run: (self._held[run], self._last_turn.get(run, 0)))
        lacking = self._shares.count_missing_slots(self._waiting, self._held)
        return min(self._waiting, key=lambda run: (-lacking[run], self._last_turn.get(run, 0)))

    def take(self, run: str) -> Item:
        """Take the run's first item out: it now holds a slot. Raises KeyError or IndexError if no item waits."""
        item = self._waiting[run].next.popleft()
        self.hold(run)
        return item

    def pass_over(self, run: str) -> Item:
        """Set the run's first item aside, so that the next items come first. Raises KeyError or IndexError if no
        item waits."""
        return self._waiting[run].next.popleft()

    def put_back(self, run: str, item: Item) -> None:
        """Put a skipped item back at the front of its run's queue."""
        self._waiting.setdefault(run, _Waiting()).urgent.appendleft(item)

    def hold(self, run: str) -> None:
        """Count a slot that the run holds."""
        self._advance()
        self._held[run] += 1
        self._last_turn[run] = next(self._turns)

    def release(self, run: str) -> None:
        """Announce that the run gave a slot back."""
        self._advance()
        self._held[run] -= 1
        self._forget(run)

    def clear(self) -> list[Item]:
        """Take everything out that waits."""
        everything = [item for waiting in self._waiting.values() for item in waiting if not self._gone(item)]
        runs = [*self._waiting]
        self._waiting.clear()
        for run in runs:
            self._forget(run)
        return everything

    def _advance(self) -> None:
        if self._shares is not None:
            self._shares.advance(self._waiting, self._held)

    def _has_items_left(self, waiting: "_Waiting[Item]") -> bool:
        while (items := waiting.next) and self._gone(items[0]):
            items.popleft()
        return bool(items)

    def _forget(self, run: str) -> None:
        """Forget a run without waiting or running items: a gateway may see thousands of runs."""
        if self._held[run] <= 0 and run not in self._waiting:
            del self._held[run]
            self._last_turn.pop(run, None)
