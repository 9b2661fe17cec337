"""A pool in changing weather, in virtual time: whatever befalls sandboxes and callers, all ends and no slot is lost."""

import asyncio
import logging
import random
from collections import Counter

import pytest
from builders.judge.gateway import Time, make_pool
from builders.virtual_time import run_virtually

from evalrun_executor.api import RunReply, RunRequest
from evalrun_judge.pool.hedge_policy import HedgePolicy
from evalrun_judge.pool.policy import HealthPolicy
from evalrun_judge.pool.pool import SandboxPool
from evalrun_judge.pool.retries import RetryPolicy
from evalrun_judge.pool.slot_queue import NoSandboxError
from evalrun_judge.sandboxes import (
    Backend,
    SandboxBusyError,
    SandboxFailedError,
    SandboxTimeoutError,
    SandboxUnreachableError,
)
from evalrun_judge.sandboxes.fake import FakeSandbox, echo
from evalrun_runtime.deadlines import DeadlineError, until

REQUEST = RunRequest(language="python", code="print(input())", inputs=[b"1"])
PROGRAMS = 200
WEATHER = ("good", "good", "good", "slow", "hung", "bad", "flaky", "down")
FAULTS = (SandboxFailedError("500"), SandboxUnreachableError("reset"), SandboxTimeoutError("no answer"))


class Exposed(FakeSandbox):
    """Does as the weather is; other gateways take some of its slots."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(self._work, slots=chance.choice((1, 2, 4)))
        self._chance = chance
        self.weather = "good"
        self.left = self.info.slots

    async def _work(self, request: RunRequest) -> RunReply:
        if self._in_flight > self.left:
            raise SandboxBusyError("full", self._chance.choice((0.0, 0.05, 0.5)), self._chance.choice((0, 0, 1)))
        await asyncio.sleep(self._chance.expovariate(1 / (30 if self.weather == "slow" else 0.5)))
        while self.weather == "hung":  # noqa: ASYNC110 - virtual time: costs nothing
            await asyncio.sleep(1)
        if self.weather == "bad" or (self.weather == "flaky" and self._chance.random() < 0.3):
            raise self._chance.choice(FAULTS)
        return echo(request)

    async def describe(self) -> Backend:
        while self.weather == "hung":  # noqa: ASYNC110
            await asyncio.sleep(1)
        if self.weather == "down":
            raise SandboxUnreachableError("connection refused")
        return await super().describe()


async def change(sandboxes: list[Exposed], chance: random.Random) -> None:
    while True:
        await asyncio.sleep(chance.uniform(1, 10))
        sandbox = chance.choice(sandboxes)
        sandbox.weather = chance.choice(WEATHER)
        sandbox.left = chance.choice((sandbox.info.slots, 1, 0))


async def asked(pool: SandboxPool, chance: random.Random) -> RunReply:
    loop = asyncio.get_running_loop()
    async with until(chance.choice((None, None, loop.time() + chance.uniform(0, 20)))):
        return await pool.run(REQUEST, run=chance.choice("abc"), begun=chance.random() < 0.2)


async def scene(seed: int) -> Counter[str]:
    chance = random.Random(seed)
    loop = asyncio.get_running_loop()
    sandboxes = [Exposed(chance) for _ in range(chance.choice((1, 2, 3, 5)))]
    pool = make_pool(
        sandboxes, Time(), clock=loop.time, sleep=asyncio.sleep, hedging=HedgePolicy(),
        health=HealthPolicy(seconds=2, failures=2), retries=RetryPolicy(budget_seconds=chance.choice((5, 1e9))),
    )  # fmt: skip
    pool.start()
    changing = asyncio.create_task(change(sandboxes, chance))
    running = []
    for _ in range(PROGRAMS):
        task = asyncio.create_task(asked(pool, chance))
        if chance.random() < 0.1:
            loop.call_later(chance.uniform(0, 10), task.cancel)
        running.append(task)
        await asyncio.sleep(chance.expovariate(5))
    await asyncio.sleep(60)
    changing.cancel()
    for sandbox in sandboxes:
        sandbox.weather, sandbox.left = "good", sandbox.info.slots
    async with asyncio.timeout(1000):
        ends = await asyncio.gather(*running, return_exceptions=True)
    await asyncio.sleep(100)  # sandboxes that rest come back
    assert (pool.in_flight, pool.crowded) == (0, False)
    slots = pool.slots
    assert len(await asyncio.gather(*(pool.run(REQUEST) for _ in range(3 * slots)))) == 3 * slots
    await pool.close()
    return Counter(type(end).__name__ for end in ends)


ENDS = {kind.__name__ for kind in (RunReply, NoSandboxError, DeadlineError, asyncio.CancelledError)}


@pytest.mark.parametrize("seed", range(6))
def test_every_request_ends_under_random_faults(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    ends = run_virtually(scene(seed))
    assert set(ends) <= ENDS
    assert ends["RunReply"] > PROGRAMS / 3
    assert ends["DeadlineError"] + ends["CancelledError"] > 0
