"""What hedging, fair sharing and the retry budget gain: the gateway's pool over sandboxes that only wait, virtually.

    .venv/bin/python benchmarks/judge_policies.py

Hedging: 400 programs of 0.2 to 2 s over 4 sandboxes of 4 slots; one becomes 30 x slower on the way: how long
until the last verdict. Fair sharing: a run of 2,000 programs is there when one of 20 arrives: how long the small one
takes, beside how long it takes alone, and beside the same queue where both are one run (first come, first served).
Retry budget: calls of sandboxes a program, with the budget that programs share and with each program's own bound only,
where every sandbox fails whatever it gets, where every sandbox fails each other program, and where one of four does.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from builders.judge.gateway import Time, make_pool
from builders.virtual_time import run_virtually

from evalrun_executor.api import RunReply, RunRequest
from evalrun_judge.pool.hedge_policy import HedgePolicy
from evalrun_judge.pool.pool import SandboxPool
from evalrun_judge.pool.retries import RetryPolicy
from evalrun_judge.pool.slot_queue import NoSandboxError
from evalrun_judge.sandboxes import SandboxFailedError
from evalrun_judge.sandboxes.fake import FakeSandbox, echo

SLOTS = 4
PROGRAMS = 1000


class Waiting(FakeSandbox):
    """A sandbox that waits for the seconds that the program's text gives, times `slowness`."""

    def __init__(self, address: str) -> None:
        super().__init__(self._wait, address=address, slots=SLOTS)
        self.slowness = 1.0

    async def _wait(self, request: RunRequest) -> RunReply:
        await asyncio.sleep(float(request.code) * self.slowness)
        return echo(request)


class Failing(Waiting):
    """A sandbox that fails the given share of its programs, quickly."""

    def __init__(self, address: str, failing: float) -> None:
        super().__init__(address)
        self._failing = failing
        self._due = 0.0

    async def _wait(self, request: RunRequest) -> RunReply:
        self._due += self._failing
        if self._due >= 1:
            self._due -= 1
            await asyncio.sleep(0.05)
            raise SandboxFailedError("status 500")
        return await super()._wait(request)


def pool_of(
    sandboxes: Sequence[Waiting], hedging: HedgePolicy | None = None, retries: RetryPolicy | None = None
) -> tuple[SandboxPool, list[bool]]:
    won: list[bool] = []
    clock = asyncio.get_running_loop().time
    pool = make_pool(
        sandboxes, Time(), clock=clock, sleep=asyncio.sleep, hedging=hedging, on_hedge=won.append, retries=retries
    )
    return pool, won


def program(chance: random.Random) -> RunRequest:
    return RunRequest("python", str(chance.uniform(0.2, 2.0)), [b""])


async def until_in_use(pool: SandboxPool, sandboxes: Sequence[Waiting]) -> None:
    pool.start()
    while pool.slots < SLOTS * len(sandboxes):  # noqa: ASYNC110 - virtual time: costs nothing
        await asyncio.sleep(0.001)


async def with_a_slow_sandbox(seed: int, hedging: HedgePolicy | None) -> tuple[float, int]:
    chance = random.Random(seed)
    sandboxes = [Waiting(str(n)) for n in range(4)]
    pool, won = pool_of(sandboxes, hedging)
    await until_in_use(pool, sandboxes)
    loop = asyncio.get_running_loop()
    started = loop.time()
    running = [asyncio.create_task(pool.run(program(chance))) for _ in range(400)]
    loop.call_later(10, lambda: setattr(sandboxes[0], "slowness", 30.0))
    await asyncio.gather(*running)
    seconds = loop.time() - started
    await pool.close()
    return seconds, len(won)


async def small_beside_big(seed: int, *, fair: bool, alone: bool = False) -> float:
    chance = random.Random(seed)
    sandboxes = [Waiting(str(n)) for n in range(4)]
    pool, _ = pool_of(sandboxes)
    await until_in_use(pool, sandboxes)
    loop = asyncio.get_running_loop()
    big = [asyncio.create_task(pool.run(program(chance), run="big")) for _ in range(0 if alone else 2000)]
    await asyncio.sleep(5)
    started = loop.time()
    small = [asyncio.create_task(pool.run(program(chance), run="small" if fair else "big")) for _ in range(20)]
    await asyncio.gather(*small)
    seconds = loop.time() - started
    for task in big:
        task.cancel()
    await asyncio.gather(*big, return_exceptions=True)
    await pool.close()
    return seconds


async def with_failures(failing: list[float], retries: RetryPolicy) -> tuple[float, float]:
    """Return the calls per program, and the share of the programs that were judged."""
    chance = random.Random(1)
    sandboxes = [Failing(str(n), share) for n, share in enumerate(failing)]
    pool, _ = pool_of(sandboxes, retries=retries)
    await until_in_use(pool, sandboxes)
    running = []
    for _ in range(PROGRAMS):
        running.append(asyncio.create_task(pool.run(program(chance))))
        await asyncio.sleep(0.1)
    ends = await asyncio.gather(*running, return_exceptions=True)
    await pool.close()
    assert {type(end) for end in ends} <= {RunReply, NoSandboxError}
    calls = sum(len(sandbox.requests) for sandbox in sandboxes)
    return calls / PROGRAMS, sum(isinstance(end, RunReply) for end in ends) / PROGRAMS


def median(works: list[Coroutine[Any, Any, float]]) -> float:
    return sorted(run_virtually(work) for work in works)[len(works) // 2]


def main() -> None:
    # The pool logs each sandbox that it leaves out, which happens thousands of times here.
    logging.disable(logging.WARNING)
    seeds = range(9)
    plain = sorted(run_virtually(with_a_slow_sandbox(seed, None))[0] for seed in seeds)
    hedged = sorted(run_virtually(with_a_slow_sandbox(seed, HedgePolicy())) for seed in seeds)
    middle = len(seeds) // 2
    print(
        f"last of 400 verdicts, one sandbox in four 30 x slower from 10 s on: {plain[middle]:.0f} s without hedging, "
        f"{hedged[middle][0]:.0f} s with it ({plain[middle] / hedged[middle][0]:.1f} x; "
        f"{sorted(count for _, count in hedged)[middle]} second calls)"
    )
    alone = median([small_beside_big(seed, fair=True, alone=True) for seed in seeds])
    first_come = median([small_beside_big(seed, fair=False) for seed in seeds])
    fair = median([small_beside_big(seed, fair=True) for seed in seeds])
    print(
        f"20 programs beside a run of 2,000: {first_come:.1f} s first come, first served; {fair:.1f} s shared fairly "
        f"({first_come / fair:.0f} x); {alone:.1f} s alone"
    )
    for what, failing in (
        ("all four sandboxes fail everything", [1.0] * 4),
        ("all four fail every other program", [0.5] * 4),
        ("one of four fails everything", [1.0, 0, 0, 0]),
    ):
        shared, judged = run_virtually(with_failures(failing, RetryPolicy()))
        own, judged_by_own = run_virtually(with_failures(failing, RetryPolicy(ratio=1e9)))
        print(
            f"{what}: {own:.2f} calls a program and {judged_by_own:.1%} judged by each program's own bound, "
            f"{shared:.2f} and {judged:.1%} with the retry budget that they share"
        )


if __name__ == "__main__":
    main()
