"""Two replicas of the service as processes, before a real judge; one is killed under load."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from builders.reward.stack import reward_stack

from evalrun_trainers.client import RewardClient
from evalrun_trainers.options import Options
from evalrun_trainers.samples import make_sample

pytestmark = pytest.mark.timeout(180)

TESTS = {"inputs": ["1\n", "2\n"], "outputs": ["1\n", "2\n"]}
PROGRAMS = {1.0: "print(input())", 0.5: "print(1)", 0.0: "print('no')"}


async def test_replica_killed_under_load_leaves_every_reward_right(tmp_path: Path) -> None:
    wanted = [list(PROGRAMS)[index % 3] for index in range(150)]
    async with reward_stack(tmp_path, replicas=2) as (stays, goes):
        options = Options(url=f"{goes.address},{stays.address}", max_batch=5, connections=8, timeout_seconds=120)
        client = RewardClient(options)
        futures = [
            # The number makes each program another one: none is remembered.
            client.submit(make_sample("d", f"```python\n{PROGRAMS[reward]}  # {index}\n```", TESTS))
            for index, reward in enumerate(wanted)
        ]
        await asyncio.wrap_future(futures[0])
        assert goes.pid is not None
        os.kill(goes.pid, signal.SIGKILL)
        assert not all(future.done() for future in futures)
        results = await asyncio.gather(*map(asyncio.wrap_future, futures))
    assert [result["reward"] for result in results] == wanted
    assert client.counts == {"judged": len(wanted)}
