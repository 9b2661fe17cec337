"""Who may run: a fixed number of slots, handed out first come, first served; one caller may ask for all of them."""

import asyncio
from collections import deque
from collections.abc import Callable


class Slots:
    """Slot numbers. Waiters are served in order, so a caller that wants all of them is not starved."""

    def __init__(self, count: int, on_idle: Callable[[], None] = lambda: None) -> None:
        self.count = count
        self._on_idle = on_idle
        self._free = list(range(count - 1, -1, -1))
        self._waiters: deque[tuple[int, asyncio.Future[list[int]]]] = deque()

    @property
    def free(self) -> int:
        """How many are free."""
        return len(self._free)

    @property
    def waiting(self) -> int:
        """How many callers wait."""
        return len(self._waiters)

    def take_idle(self) -> int | None:
        """Take a slot that nobody waits for."""
        return self._free.pop() if self._free and not self._waiters else None

    def give_back(self, slots: list[int]) -> None:
        """Free slots, serve whom they suffice, and tell `on_idle` where some are left."""
        self._free.extend(slots)
        self._serve()
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
            if waiter.done() and not waiter.cancelled():
                self.give_back(waiter.result())
            elif entry in self._waiters:
                self._waiters.remove(entry)
                self._serve()
            raise

    def _serve(self) -> None:
        while self._waiters and self._waiters[0][0] <= len(self._free):
            need, waiter = self._waiters.popleft()
            if not waiter.cancelled():
                waiter.set_result([self._free.pop() for _ in range(need)])
