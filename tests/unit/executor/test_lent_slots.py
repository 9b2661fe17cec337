"""Idle slots that are lent to a batch come back, whenever the batch is given up."""

import asyncio
from typing import Any

from evalrun_executor.executor import Executor, ExecutorPlan


class QuietZygote:
    """A zygote of which no runner is left."""

    def __init__(self) -> None:
        self.lost = asyncio.get_running_loop().create_future()

    def runner_in(self, slot: int) -> None:
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


async def test_a_slot_that_is_lent_in_the_moment_of_the_cancellation_comes_back() -> None:
    """A task that is cancelled before its first step runs no `finally`: its slot was gone for good."""
    executor, batch = Executor(ExecutorPlan(slots=2)), LongBatch()
    held = await executor._slots.take(1)
    work: Any = executor._run_everywhere
    running = asyncio.create_task(work(batch, batch.zygote))
    await batch.begun.wait()
    running.cancel()
    executor._slots._free.extend(held)  # as given back by a request that ended in the same turn of the loop
    executor._offer()
    await asyncio.gather(running, return_exceptions=True)
    await asyncio.sleep(0)
    assert len(batch.slots) == 1, "the second worker had not begun"
    assert executor.free == 2
