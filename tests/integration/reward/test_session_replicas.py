"""Sessions through two replicas that share a Redis, before a real judge and sandbox; one replica is killed."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from builders.redis_server import redis_server
from builders.reward.stack import reward_stack

pytestmark = pytest.mark.timeout(300)

# Fewer by default: CI's machine has two busy cores.
SESSIONS = 256 if os.environ.get("EVALRUN_TEST_FULL_LOAD") == "1" else 48
TURNS = 4
TESTS = {"inputs": ["1\n", "2\n"], "outputs": ["1\n", "2\n"]}
LAST = {1.0: "print(input())", 0.5: "print(1)", 0.0: "print('no')"}


class Trainer:
    """Makes the four calls as one does that meets failures: it asks again, elsewhere."""

    def __init__(self, http: aiohttp.ClientSession, addresses: list[str]) -> None:
        self._http = http
        self._addresses = addresses
        self.failures = 0
        self.actions = 0

    async def call(self, name: str, at: int, **body: object) -> dict[str, Any]:
        while True:
            try:
                address = self._addresses[at % len(self._addresses)]
                async with self._http.post(f"{address}/{name}", json=body) as answer:
                    said: dict[str, Any] = await answer.json()
                    if answer.status == 200:
                        return said
                    assert answer.status in (429, 503), said
            except aiohttp.ClientError:
                self.failures += 1
            at += 1
            await asyncio.sleep(0.05)  # paces the asking

    async def session(self, number: int, wanted: float) -> dict[str, Any]:
        sid = (await self.call("start_instance", number, instance_hash=f"i{number % 7}", ground_truth=TESTS,
                               request_id=f"s{number}"))["sid"]  # fmt: skip
        for turn in range(TURNS):
            program = LAST[wanted] if turn == TURNS - 1 else f"print('turn {turn} of {number}')"
            content = f"```python\n{program}  # {number}.{turn}\n```"
            seen = await self.call("process_action", number + turn, sid=sid, content=content, turn=turn)
            if turn < TURNS - 1:
                assert seen["content"] == f"stdout:\nturn {turn} of {number}"
            self.actions += 1
        assert await self.call("postprocess", number, sid=sid) == {}
        return await self.call("compute_reward", number + 1, sid=sid)


async def test_killed_replica_leaves_every_session_reward_right(tmp_path: Path) -> None:
    wanted = [list(LAST)[number % 3] for number in range(SESSIONS)]
    async with redis_server(tmp_path) as redis:
        flags = ["--session-store", redis.url, "--session-idle-seconds", "120", "--deadline-seconds", "120"]
        async with (
            reward_stack(tmp_path, replicas=2, reward_arguments=flags) as (stays, goes),
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64)) as http,
        ):
            trainer = Trainer(http, [stays.address, goes.address])
            tasks = [asyncio.create_task(trainer.session(*each)) for each in enumerate(wanted)]
            while trainer.actions < SESSIONS:  # noqa: ASYNC110 - replicas bring it about
                await asyncio.sleep(0.02)  # until a quarter of the actions are done; the limit bounds it
            assert goes.pid is not None
            os.kill(goes.pid, signal.SIGKILL)
            rewards = await asyncio.gather(*tasks)
    assert trainer.failures > 0
    assert [reward["reward"] for reward in rewards] == wanted
    assert {reward["turns"] for reward in rewards} == {TURNS}
    assert [reward["f2p_count"] for reward in rewards] == [2 * reward for reward in wanted]
