"""What hedging and fair sharing gain: the gateway's own pool over sandboxes that only wait, in virtual time.

    .venv/bin/python benchmarks/judge_policies.py

Hedging: 400 programs of 0.2 to 2 s over 4 sandboxes of 4 slots, one of which becomes 30 x slower on the way: how long
until the last verdict. Fair sharing: a run of 2,000 programs is there when one of 20 arrives: how long the small one
takes, beside how long it takes alone, and beside the same queue where both are one run (first come, first served).
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from builders.judge import Time, make_pool
from builders.virtual_time import run_virtually

from evalrun_judge.hedging import HedgePolicy
from evalrun_judge.pool import SandboxPool
from evalrun_judge.sandboxes.fake import FakeSandbox, echo
from evalrun_sandbox.api import RunReply, RunRequest

SLOTS = 4


class Waiting(FakeSandbox):
    """Takes as many seconds as the program says, times `slowness`."""

    def __init__(self, address: str) -> None:
        super().__init__(self._wait, address=address, slots=SLOTS)
        self.slowness = 1.0

    async def _wait(self, request: RunRequest) -> RunReply:
        await asyncio.sleep(float(request.code) * self.slowness)
        return echo(request)


def pool_of(sandboxes: list[Waiting], hedging: HedgePolicy | None = None) -> tuple[SandboxPool, list[bool]]:
    won: list[bool] = []
    clock = asyncio.get_running_loop().time
    return make_pool(sandboxes, Time(), clock=clock, sleep=asyncio.sleep, hedging=hedging, on_hedge=won.append), won


def program(chance: random.Random) -> RunRequest:
    return RunRequest("python", str(chance.uniform(0.2, 2.0)), [b""])


async def until_in_use(pool: SandboxPool, sandboxes: list[Waiting]) -> None:
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


def median(works: list[Coroutine[Any, Any, float]]) -> float:
    return sorted(run_virtually(work) for work in works)[len(works) // 2]


def main() -> None:
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


if __name__ == "__main__":
    main()
