"""Submits completions to the ledger in small batches as they arrive."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from evalrun_generator.ledger.ledger_client import LedgerClient, UnknownKeyError
from evalrun_proto.ledger.v1 import ledger_pb2 as ledger

logger = logging.getLogger(__name__)


class Submitter:
    """Collects up to `batch_size` completions for at most `delay` seconds, then submits them in one call.

    While a call is in progress, the next batch is collected. A completion leaves the queue only once the ledger has it.
    """

    def __init__(
        self,
        ledger_client: LedgerClient,
        *,
        batch_size: int,
        delay: float,
        acknowledged: Callable[[Sequence[ledger.Completion]], None],
    ) -> None:
        """Create the submitter; `acknowledged` gets each batch that the ledger has stored, or does not know."""
        self._ledger = ledger_client
        self._batch_size = batch_size
        self._delay = delay
        self._acknowledged = acknowledged
        self._queue: deque[ledger.Completion] = deque()
        self._arrived = asyncio.Event()
        self._go = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def add(self, completion: ledger.Completion) -> None:
        """Queue a completion."""
        self._queue.append(completion)
        self._empty.clear()
        self._arrived.set()
        if len(self._queue) >= self._batch_size:
            self._go.set()

    @property
    def pending(self) -> int:
        """Number of completions not acknowledged yet."""
        return len(self._queue)

    def hurry(self) -> None:
        """Submit without waiting for a full batch, because no more completions are expected now."""
        if self._queue:
            self._go.set()

    async def flush(self) -> None:
        """Wait until all queued completions are acknowledged. `run` must be running."""
        self.hurry()
        await self._empty.wait()

    async def run(self) -> None:
        """Submit until cancelled. Raises the ledger's errors."""
        while True:
            await self._arrived.wait()
            try:
                async with asyncio.timeout(self._delay):
                    await self._go.wait()
            except TimeoutError:
                # The delay is over: submit the completions collected so far.
                pass
            batch = [self._queue[index] for index in range(min(self._batch_size, len(self._queue)))]
            await self._store(batch)
            for _ in batch:
                self._queue.popleft()
            if len(self._queue) < self._batch_size:
                self._go.clear()
            if not self._queue:
                self._arrived.clear()
                self._empty.set()
            self._acknowledged(batch)

    async def _store(self, batch: Sequence[ledger.Completion]) -> None:
        try:
            await self._ledger.submit(batch)
        except UnknownKeyError as error:
            if len(batch) == 1:
                # The ledger did not lease these items: it belongs to another run, or was recreated. The batch is
                # dropped.
                logger.error("dropping a batch: the ledger does not know an item that was leased: %s", error)
                return
            for completion in batch:
                await self._store([completion])
