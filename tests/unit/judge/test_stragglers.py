"""Calls that take too long: sent to a second sandbox where slots are idle; broken off where the sandbox is hung."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from builders.judge.gateway import Time, make_pool
from builders.virtual_time import run_virtually

from evalrun_executor.api import RunReply, RunRequest
from evalrun_judge.pool.hedge_policy import CallTimes, HedgePolicy
from evalrun_judge.pool.policy import HealthPolicy
from evalrun_judge.pool.pool import SandboxPool
from evalrun_judge.pool.retries import RetryPolicy
from evalrun_judge.pool.slot_queue import NoSandboxError
from evalrun_judge.sandboxes import Backend, SandboxFailedError
from evalrun_judge.sandboxes.fake import FakeSandbox, echo

REQUEST = RunRequest(language="python", code="print(input())", inputs=[b"1"])


class Timed(FakeSandbox):
    """Takes `seconds` a program; one that is `frozen` takes calls and answers none, until it is thawed."""

    def __init__(self, address: str, seconds: float, slots: int = 4) -> None:
        super().__init__(self._slowly, address=address, slots=slots)
        self.seconds = seconds
        self.cancelled = 0
        self.thawed = asyncio.Event()
        self.thawed.set()

    async def _slowly(self, request: RunRequest) -> RunReply:
        try:
            await asyncio.sleep(self.seconds)
            await self.thawed.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return echo(request)

    async def describe(self) -> Backend:
        await self.thawed.wait()
        return await super().describe()


def pool_of(
    *sandboxes: FakeSandbox,
    hedging: HedgePolicy | None = None,
    won: list[bool] | None = None,
    retries: RetryPolicy | None = None,
) -> SandboxPool:
    return make_pool(
        sandboxes,
        Time(),
        clock=asyncio.get_running_loop().time,
        sleep=asyncio.sleep,
        hedging=hedging,
        on_hedge=(won if won is not None else list[bool]()).append,
        health=HealthPolicy(seconds=5, failures=3),
        retries=retries,
    )


async def all_in_use(*sandboxes: FakeSandbox) -> None:
    """The pool's watchers ask them in turn; no fake needs longer."""
    for _ in range(5 * len(sandboxes)):
        await asyncio.sleep(0)


def virtually(work: Coroutine[Any, Any, None]) -> None:
    run_virtually(work)


@pytest.mark.parametrize(
    ("seconds", "after"),
    [
        ([0.1] * 19, None),  # too little known
        ([0.1] * 20, 1.0),  # never below the least
        ([3.0] * 20, 6.0),
        ([1.0] * 96 + [50.0] * 4, 2.0),  # twice the 95th percentile
        ([1.0] * 90 + [50.0] * 10, 100.0),
    ],
)
def test_straggles_after_is_twice_the_95th_percentile_above_the_minimum(
    seconds: list[float], after: float | None
) -> None:
    times = CallTimes(HedgePolicy())
    for one in seconds:
        times.add(one)
    assert times.straggles_after == after


def test_hedges_hold_a_share_of_the_slots() -> None:
    assert [HedgePolicy().max_hedges(slots) for slots in (1, 7, 40)] == [1, 1, 10]


async def _known(pool: SandboxPool) -> None:
    for _ in range(20):
        await pool.run(REQUEST)


def test_a_straggler_is_answered_by_a_second_sandbox_and_the_first_call_cancelled() -> None:
    async def scene() -> None:
        slow, quick = Timed("slow", 0.1), Timed("quick", 0.1)
        won: list[bool] = []
        pool = pool_of(slow, quick, hedging=HedgePolicy(), won=won)
        pool.start()
        await all_in_use(slow, quick)
        await _known(pool)
        slow.seconds = 300
        start = asyncio.get_running_loop().time()
        replies = await asyncio.gather(*(pool.run(REQUEST) for _ in range(3)))
        assert asyncio.get_running_loop().time() - start < 5
        assert [reply.runs[0].stdout for reply in replies] == [b"1"] * 3
        assert won
        assert all(won)
        assert slow.cancelled == len(won)
        assert pool.in_flight == 0
        await pool.close()

    virtually(scene())


def test_no_hedge_is_made_while_requests_wait_or_without_a_second_sandbox() -> None:
    async def scene(*sandboxes: Timed) -> None:
        won: list[bool] = []
        pool = pool_of(*sandboxes, hedging=HedgePolicy(), won=won)
        pool.start()
        await all_in_use(*sandboxes)
        await _known(pool)
        for sandbox in sandboxes:
            sandbox.seconds = 30
        await asyncio.gather(*(pool.run(REQUEST) for _ in range(8)))
        assert sum(len(sandbox.requests) for sandbox in sandboxes) == 28
        assert won == []
        await pool.close()

    virtually(scene(Timed("only", 0.1)))


def test_a_hedge_that_fails_leaves_the_first_call_to_answer() -> None:
    async def scene() -> None:
        slow, broken = Timed("slow", 0.1), Timed("broken", 0.1)
        won: list[bool] = []
        pool = pool_of(slow, broken, hedging=HedgePolicy(), won=won)
        pool.start()
        await all_in_use(slow, broken)
        await _known(pool)
        slow.seconds = broken.seconds = 30
        running = asyncio.create_task(pool.run(REQUEST))
        await asyncio.sleep(0.5)
        (given,) = (one for one in (slow, broken) if len(one.requests) > 0 and pool.in_flight and one._in_flight)
        other = broken if given is slow else slow
        other.faults.extend([SandboxFailedError("500")])
        assert (await running).runs[0].stdout == b"1"
        assert won == [False]
        await pool.close()

    virtually(scene())


def test_a_hung_sandbox_is_left_out_and_its_programs_run_elsewhere() -> None:
    async def scene() -> None:
        hung, good = Timed("hung", 1), Timed("good", 1)
        pool = pool_of(hung, good)
        pool.start()
        await all_in_use(hung, good)
        hung.thawed.clear()
        replies = await asyncio.gather(*(pool.run(REQUEST) for _ in range(12)))
        assert [reply.runs[0].stdout for reply in replies] == [b"1"] * 12
        assert asyncio.get_running_loop().time() < 3 * (5 + 5) + 15
        assert hung.cancelled == 4
        before = len(hung.requests)
        hung.thawed.set()
        await asyncio.sleep(10)
        await asyncio.gather(*(pool.run(REQUEST) for _ in range(20)))
        assert len(hung.requests) > before  # taken back
        await pool.close()

    virtually(scene())


def test_long_program_is_not_taken_for_a_hang() -> None:
    async def scene() -> None:
        sandbox = Timed("busy", 600)
        pool = pool_of(sandbox)
        pool.start()
        assert (await pool.run(REQUEST)).runs[0].stdout == b"1"
        assert len(sandbox.requests) == 1
        await pool.close()

    virtually(scene())


def test_pool_of_hung_sandboxes_raises_no_sandbox() -> None:
    async def scene() -> None:
        hung = Timed("hung", 1)
        pool = pool_of(hung, retries=RetryPolicy(budget_seconds=30))
        pool.start()
        await all_in_use(hung)
        hung.thawed.clear()
        with pytest.raises(NoSandboxError):
            async with asyncio.timeout(300):
                await pool.run(REQUEST)
        await pool.close()

    virtually(scene())


def test_caller_cancelled_during_a_broken_off_call_is_cancelled() -> None:
    async def scene() -> None:
        hung = Timed("hung", 1)
        pool = pool_of(hung)
        pool.start()
        await all_in_use(hung)
        hung.thawed.clear()
        running = asyncio.create_task(pool.run(REQUEST))
        await asyncio.sleep(20)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert pool.in_flight == 0
        await pool.close()

    virtually(scene())
