"""Work for the judge: taken from the item states, read from the ledger, held until its verdict is on disk.

At most `limit` items are held however many are waiting, retries included, so that memory stays flat and an outage of
the judge touches few items.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from evalrun_aggregator.judging.retry_policy import ItemHistory
from evalrun_aggregator.ledger.entries import StoredCompletion
from evalrun_aggregator.ledger.item_states import ItemState, ItemStates
from evalrun_aggregator.ledger.ledger import Ledger

READ_AHEAD = 64


@dataclass(eq=False)
class Work:
    """An item that is being judged."""

    index: int
    completion: StoredCompletion
    history: ItemHistory = field(default_factory=ItemHistory)
    sent_at: float = 0.0
    """Time of sending, in seconds of the dispatcher's clock."""
    verdicts_at_sending: int = 0
    """Number of verdicts that the judge had given at that time."""
    with_tests: bool = False
    """Whether the next request contains the tests, because the judge did not know the digest in the last request."""


class WorkSource:
    """Source of work for the stream workers.

    Args:
        item_states: items to be judged are GENERATED there, items handed out are JUDGING.
        ledger: holds the completions.
        limit: maximum number of items held at once.
        clock: seconds, monotonic.
    """

    def __init__(self, item_states: ItemStates, ledger: Ledger, limit: int, clock: Callable[[], float]) -> None:
        self._item_states = item_states
        self._ledger = ledger
        self._limit = limit
        self._clock = clock
        self._ready: deque[Work] = deque()
        self._later: list[tuple[float, int, Work]] = []
        self._held = 0
        self._next = 0
        self._sequence = 0
        self._filling: asyncio.Task[bool] | None = None
        self._changed = asyncio.Event()
        self._is_paused = False

    @property
    def held(self) -> int:
        """Items taken from the item states whose verdicts are not on disk yet."""
        return self._held

    def wake(self) -> None:
        """Announce that there may be new work."""
        self._changed.set()

    def pause(self, paused: bool) -> None:
        """Hand out nothing while paused."""
        self._is_paused = paused
        self._changed.set()

    async def take(self) -> Work:
        """Wait for the next item and return it. Raises LedgerError."""
        while True:
            await self.wait()
            if self._later and self._later[0][0] <= self._clock():
                return heapq.heappop(self._later)[2]
            if self._ready:
                return self._ready.popleft()

    async def wait(self) -> None:
        """Wait until there is an item to take. Raises LedgerError."""
        while True:
            self._changed.clear()
            if self._is_paused:
                await self._changed.wait()
                continue
            if self._ready or (self._later and self._later[0][0] <= self._clock()):
                return
            if self._filling is None or self._filling.done():
                self._filling = asyncio.create_task(self._fill())
            # A caller that is cancelled must not lose items that are being read.
            if await asyncio.shield(self._filling):
                continue
            delay = self._later[0][0] - self._clock() if self._later else None
            try:
                async with asyncio.timeout(delay):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def put_back(self, work: Work, delay: float) -> None:
        """Take an item back to be sent again after `delay` seconds."""
        if delay <= 0:
            self._ready.append(work)
        else:
            self._sequence += 1
            heapq.heappush(self._later, (self._clock() + delay, self._sequence, work))
        self._changed.set()

    def done(self) -> None:
        """Record that an item's verdict is on disk, so that another item may be taken."""
        self._held -= 1
        self._changed.set()

    async def _fill(self) -> bool:
        """Read waiting items ahead. Return whether there were any."""
        indices: list[int] = []
        while len(indices) < READ_AHEAD and self._held < self._limit:
            index = self._item_states.first(ItemState.GENERATED, self._next)
            if index is None:
                break
            self._item_states.move(index, ItemState.JUDGING)
            self._held += 1
            self._next = index + 1
            indices.append(index)
        if not indices:
            return False
        by_row = {self._item_states.items.get_row(index): index for index in indices}
        completions = await self._ledger.completions(list(by_row))
        self._ready.extend(Work(by_row[completion.row], completion) for completion in completions)
        return True
