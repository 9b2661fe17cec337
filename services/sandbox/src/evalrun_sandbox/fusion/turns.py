"""A bounded first-come-first-served queue before the executor."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from evalrun_executor.slots import Slots
from evalrun_sandbox.fusion.refusals import TryAgain

MAX_WAITING = 1024
"""Maximum number of queued requests. It is high, because an immediate 504 would use up a client's few attempts."""
MAX_WAITING_BYTES = 512 << 20


class Turns:
    """Grants as many turns at a time as the executor has slots; waiting callers hold their request's bytes."""

    def __init__(self, slots: int, max_waiting: int = MAX_WAITING, max_waiting_bytes: int = MAX_WAITING_BYTES) -> None:
        self._slots = Slots(slots)
        self._max_waiting = max_waiting
        self._max_bytes = max_waiting_bytes
        self._bytes = 0

    @property
    def waiting(self) -> int:
        return self._slots.waiting

    @asynccontextmanager
    async def turn(self, weight: int) -> AsyncIterator[None]:
        """Wait for a turn and hold it. A cancelled caller leaves the queue.

        Args:
            weight: bytes the caller holds while it waits.

        Raises:
            TryAgain: the queue is full.
        """
        slot = await self._take_slot(weight)
        try:
            yield
        finally:
            self._slots.give_back(slot)

    async def _take_slot(self, weight: int) -> list[int]:
        idle = self._slots.take_idle()
        if idle is not None:
            return [idle]
        if self.waiting >= self._max_waiting or self._bytes + weight > self._max_bytes:
            raise TryAgain(f"the queue is full: {self.waiting} requests wait")
        self._bytes += weight
        try:
            return await self._slots.take(1)
        finally:
            self._bytes -= weight
