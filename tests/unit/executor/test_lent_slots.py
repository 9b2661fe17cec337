"""Idle slots that are lent to a batch come back, whenever the batch is given up."""

import asyncio
from typing import Any

from evalrun_executor.slot_runs import SlotRuns


class QuietZygote:
    """A zygote of which no runner is left."""

    def __init__(self) -> None:
        self.lost = asyncio.get_running_loop().create_future()

    def find_runner(self, slot: int) -> None:
        del slot


class LongBatch:
    """A batch whose work does not end."""

    def __init__(self) -> None:
        self.zygote = QuietZygote()
        self.left = 10
        self.slots: list[int] = []
        self.begun = asyncio.Event()

    async def run_in(self, slot: int) -> None:
        self.slots.append(slot)
        self.begun.set()
        await asyncio.Event().wait()


async def test_slot_lent_during_a_cancellation_is_returned() -> None:
    """A task that is cancelled before its first step runs no `finally`: its slot was gone for good."""
    slot_runs, batch = SlotRuns(2), LongBatch()
    held = await slot_runs.slots.take(1)
    run_batch: Any = slot_runs.run_batch
    running = asyncio.create_task(run_batch(batch))
    await batch.begun.wait()
    running.cancel()
    slot_runs.slots._free.extend(held)  # as given back by a request that ended in the same turn of the loop
    slot_runs._lend_idle()
    await asyncio.gather(running, return_exceptions=True)
    await asyncio.sleep(0)
    assert len(batch.slots) == 1, "the second worker had not begun"
    assert slot_runs.slots.free == 2
