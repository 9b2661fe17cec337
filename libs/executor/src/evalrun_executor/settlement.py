"""Settles a batch: runs it, and repeats doubtful tests with all other slots empty until their results are sure."""

import asyncio
import logging
from functools import partial

from evalrun_executor.api import CompileResult, ProgramRun
from evalrun_executor.batch import Batch
from evalrun_executor.errors import ExecutorLost
from evalrun_executor.machine import Machine
from evalrun_executor.slot_runs import SlotRuns
from evalrun_executor.timeouts import (
    MAX_SLOWNESS,
    STRETCHES,
    compute_allowed_seconds,
    confirm_seconds,
    decide_alone,
    find_doubt,
    is_last_try,
    left_in_doubt,
    order_runs,
)

logger = logging.getLogger(__name__)


class Settlement:
    """Settles batches in the slots of an executor.

    Args:
        slot_runs: the executor's slots.
        machine: measures how slow the machine is.
        wait_seconds: see `ExecutorPlan.confirm_wait_seconds`.
        pause_seconds: see `ExecutorPlan.confirm_pause_seconds`.
    """

    def __init__(self, slot_runs: SlotRuns, machine: Machine, wait_seconds: float, pause_seconds: float) -> None:
        self._slot_runs = slot_runs
        self._machine = machine
        self._wait_seconds = wait_seconds
        self._pause_seconds = pause_seconds

    def compute_allowed_seconds(self, time_seconds: float) -> float:
        """Return the time limit for the first runs of a request on the machine as it is now."""
        return compute_allowed_seconds(time_seconds, self._machine.recent)

    async def settle(self, batch: Batch) -> tuple[CompileResult, list[ProgramRun]]:
        """Run the batch and decide its doubtful runs. Return the compilation's result, and one run per input, in order.

        Raises:
            ExecutorLost: the machinery died, or the program compiled in one runner and not in another.
        """
        request = batch.request
        limit, count = request.limits.time_seconds, len(request.inputs)
        await self._slot_runs.run_batch(batch)
        if batch.compiled is None:
            raise ExecutorLost("a runner ended without a word on the program")
        if batch.compiled.status == "ok":
            decided: set[int] = set()
            last_try = asyncio.get_running_loop().time() + confirm_seconds(limit, count)
            await self._confirm(batch, decided, last_try)
            # A refuted timeout no longer stops the tests after it. These tests may be doubtful as well.
            while batch.resume():
                await self._slot_runs.run_batch(batch)
                if batch.compiled.status != "ok":
                    raise ExecutorLost("the program compiled once, and then no more")
                await self._confirm(batch, decided, last_try)
        return batch.compiled, list(order_runs(batch.runs, count, request.stop_after_timeouts))

    async def _confirm(self, batch: Batch, decided: set[int], last_try: float) -> None:
        """Repeat every test that may or may not have kept its time limit, and add the results to `decided`."""
        limit = batch.request.limits.time_seconds
        slowness = 1.0
        if any(run.end == "timeout" for index, run in batch.runs.items() if index not in decided):
            slowness = await asyncio.to_thread(self._machine.probe)
        stop_after = batch.request.stop_after_timeouts
        find_next = partial(find_doubt, batch.runs, decided, limit, stop_after, batch.allowed, slowness)
        while (index := find_next()) is not None:
            batch.runs[index] = await self._decide(batch, index, last_try)
            decided.add(index)

    async def _decide(self, batch: Batch, index: int, last_try: float) -> ProgramRun:
        """Repeat a test alone until a run shows the program's own time with certainty."""
        first, limit = batch.runs[index], batch.request.limits.time_seconds
        runs, slowness = [first], 1.0
        clock = asyncio.get_running_loop().time
        for made, stretch in enumerate(STRETCHES, 1):
            if made > 1 and clock() > last_try:
                break
            await asyncio.sleep((made - 1) * self._pause_seconds)
            slots = await self._slot_runs.slots.take_within(self._slot_runs.slots.count, self._wait_seconds)
            if not slots:
                logger.info("no moment with all slots empty within %.0f s", self._wait_seconds)
                slots = await self._slot_runs.slots.take(1)
            with self._slot_runs.occupy(batch.zygote, slots) as slot:
                alone, allowed, slowness = await self._run_alone(batch, index, stretch, slot)
            decided = decide_alone(first, alone, limit, allowed, slowness)
            if decided.confirmed:
                return decided
            logger.info(
                "a run alone left a doubt: %.2f s of CPU for a limit of %.2f s, on a machine %.1f times slower than "
                "at its best", decided.cpu_seconds, limit, slowness,
            )  # fmt: skip
            runs += [] if alone is None else [alone]
            if is_last_try(made, runs[-1]):
                break
        return left_in_doubt(runs, limit, slowness)

    async def _run_alone(
        self, batch: Batch, index: int, stretch: float, slot: int
    ) -> tuple[ProgramRun | None, float, float]:
        """Run a test in this slot. Return its run, its time limit, and the machine's slowness. Raises ExecutorLost.

        There is no run if the machine is so slow that the run's time would show nothing.
        """
        limit = batch.request.limits.time_seconds
        slowness = await asyncio.to_thread(self._machine.probe)
        if slowness > MAX_SLOWNESS:
            return None, limit, slowness
        allowed = compute_allowed_seconds(limit, slowness, stretch)
        alone = batch.alone(index, allowed)
        try:
            await alone.run_in(slot)
        finally:
            alone.close()
        batch.files = alone.files
        # The machine may have become slow during the run, so the slower of the two probes counts.
        slowness = max(slowness, await asyncio.to_thread(self._machine.probe))
        return alone.runs.get(0), allowed, slowness
