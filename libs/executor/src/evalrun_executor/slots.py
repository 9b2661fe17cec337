"""A fixed number of slots for runs, served first come, first served. A caller may ask for all of them."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

_EARLY_SECONDS = 0.001
"""Maximum seconds by which a timer may fire early: uvloop's clock counts milliseconds."""


class Slots:
    """Slot numbers. Waiters are served in order, so a caller that wants all of them is not starved."""

    def __init__(self, count: int, on_idle: Callable[[], None] = lambda: None, *, travel_seconds: float = 0.0) -> None:
        """Create the slots, all free.

        Args:
            count: number of slots.
            on_idle: called when slots are idle: free, with nobody waiting.
            travel_seconds: time for which a returned slot does not count as idle, because the next request may be on
                its way.
        """
        self.count = count
        self._on_idle = on_idle
        self._travel_seconds = travel_seconds
        self._idle_at = 0.0
        """Time at which free slots become idle, by the event loop's clock."""
        self._timer: asyncio.TimerHandle | None = None
        self._free = list(range(count - 1, -1, -1))
        self._waiters: deque[tuple[int, asyncio.Future[list[int]]]] = deque()

    @property
    def free(self) -> int:
        """Number of free slots."""
        return len(self._free)

    @property
    def waiting(self) -> int:
        """Number of waiting callers."""
        return len(self._waiters)

    def take_idle(self) -> int | None:
        """Return an idle slot, which the caller gives back, or None."""
        if not self._free or self._waiters or asyncio.get_running_loop().time() < self._idle_at:
            return None
        return self._free.pop()

    def give_back(self, slots: list[int]) -> None:
        """Free slots, serve the waiting callers, and call `on_idle` if slots are left idle."""
        self._free.extend(slots)
        self._serve()
        if not self._travel_seconds:
            self._tell_idle()
            return
        loop = asyncio.get_running_loop()
        self._idle_at = loop.time() + self._travel_seconds
        if self._timer is None:
            self._timer = loop.call_at(self._idle_at, self._end_travel)

    def _end_travel(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        # Another slot may have been returned meanwhile, which moved the time.
        if loop.time() < self._idle_at - _EARLY_SECONDS:
            self._timer = loop.call_at(self._idle_at, self._end_travel)
            return
        self._idle_at = 0.0
        self._tell_idle()

    def _tell_idle(self) -> None:
        if self._free and not self._waiters:
            self._on_idle()

    async def take(self, need: int) -> list[int]:
        """Wait for `need` slots; the caller gives them back."""
        waiter: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        entry = (need, waiter)
        self._waiters.append(entry)
        self._serve()
        try:
            return await waiter
        except asyncio.CancelledError:
            # The slots may have been assigned in the very turn of the loop in which the caller was cancelled.
            if waiter.done() and not waiter.cancelled():
                self.give_back(waiter.result())
            elif entry in self._waiters:
                self._waiters.remove(entry)
                self._serve()
            raise

    async def take_within(self, need: int, seconds: float | None) -> list[int]:
        """Wait for `need` slots like `take`. Return no slots if they are not free within `seconds`; None: no limit."""
        try:
            # `wait_for` of Python 3.11 may lose a cancellation.
            async with asyncio.timeout(seconds):
                return await self.take(need)
        except TimeoutError:
            return []

    @asynccontextmanager
    async def take_all(self, seconds: float) -> AsyncIterator[bool]:
        """Hold all slots inside the block. Yields False, and holds none, if they are not free within `seconds`."""
        slots = await self.take_within(self.count, seconds)
        try:
            yield bool(slots)
        finally:
            if slots:
                self.give_back(slots)

    def _serve(self) -> None:
        while self._waiters and self._waiters[0][0] <= len(self._free):
            need, waiter = self._waiters.popleft()
            if not waiter.cancelled():
                waiter.set_result([self._free.pop() for _ in range(need)])
