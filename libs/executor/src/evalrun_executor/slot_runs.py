"""Runs batches in slots, and frees a slot once the runner in it has ended."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from evalrun_executor.batch import Batch
from evalrun_executor.slots import Slots
from evalrun_executor.zygotes.zygote_process import ZygoteProcess

logger = logging.getLogger(__name__)

_RECLAIM_SECONDS = 180.0
_WORTH_A_RUNNER = 2
"""Number of remaining runs that justify another runner, which costs 1 to 2 ms for a fork and the compiler."""
_TRAVEL_SECONDS = 0.005
"""Seconds for which a returned slot is reserved for the next request, which may be on its way from a gateway: that
takes 1 to 3 ms. Another runner for a running batch would take CPU of its own (7 to 13 % of all, with 20 short tests per
request), and the next request would have to wait for it."""


class SlotRuns:
    """The slots of an executor and the batches in them."""

    def __init__(self, count: int) -> None:
        self.slots = Slots(count, self._lend_idle, travel_seconds=_TRAVEL_SECONDS)
        self._open: dict[Batch, set[asyncio.Task[None]]] = {}
        self._reclaims: set[asyncio.Task[None]] = set()

    async def run_batch(self, batch: Batch) -> None:
        """Run a batch in one slot, and in every other idle slot that no request waits for.

        Raises:
            ExecutorLost: a runner died or sent nonsense.
        """
        slots = await self.slots.take(1)
        # With so few runs left no other slot would help.
        if batch.left <= _WORTH_A_RUNNER:
            with self.occupy(batch.zygote, slots) as slot:
                await batch.run_in(slot)
            return
        tasks = {asyncio.create_task(self._run_in(slots, batch))}
        self._open[batch] = tasks
        try:
            self._lend_idle()
            while tasks:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    tasks.discard(task)
                    task.result()
        finally:
            del self._open[batch]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def occupy(self, zygote: ZygoteProcess, slots: list[int]) -> Iterator[int]:
        """Yield the first of these taken slots for a runner, and free all of them once the runner has ended.

        Empties the list `slots` at once.
        """
        held = [*slots]
        slots.clear()
        clean = False
        try:
            yield held[0]
            clean = True
        finally:
            ended = zygote.find_runner(held[0])
            if clean or ended is None:
                self.slots.give_back(held)
            else:
                task = asyncio.create_task(self._reclaim(zygote, held, ended))
                self._reclaims.add(task)
                task.add_done_callback(self._reclaims.discard)

    async def wait_for_reclaims(self) -> None:
        """Wait until the slots of all abandoned runners are free again."""
        await asyncio.gather(*self._reclaims, return_exceptions=True)

    def _lend_idle(self) -> None:
        for batch, tasks in self._open.items():
            while batch.left - len(tasks) >= _WORTH_A_RUNNER and not batch.zygote.lost.done():
                slot = self.slots.take_idle()
                if slot is None:
                    return
                # The task takes the slot out of this list in its first step. A task that is cancelled before that step
                # runs no `finally`: the slot is then still in the list, and only `_give_back_unused` can free it.
                slots = [slot]
                task = asyncio.create_task(self._run_in(slots, batch))
                task.add_done_callback(partial(self._give_back_unused, slots))
                tasks.add(task)

    def _give_back_unused(self, slots: list[int], _: "asyncio.Task[None]") -> None:
        if slots:
            self.slots.give_back(slots)

    async def _run_in(self, slots: list[int], batch: Batch) -> None:
        with self.occupy(batch.zygote, slots) as slot:
            await batch.run_in(slot)

    async def _reclaim(self, zygote: ZygoteProcess, slots: list[int], ended: asyncio.Future[int]) -> None:
        """Free an abandoned runner's slots once the runner has ended or `_RECLAIM_SECONDS` have passed.

        The runner sees our end of the connection close, kills its child and ends.
        """
        either: set[asyncio.Future[Any]] = {ended, zygote.lost}
        done, _ = await asyncio.wait(either, timeout=_RECLAIM_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            logger.error("a runner in slot %d did not end within %.0f s", slots[0], _RECLAIM_SECONDS)
        self.slots.give_back(slots)
