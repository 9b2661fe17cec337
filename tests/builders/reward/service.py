"""A reward service on loopback before a scripted judge, and what a trainer would post to it."""

import io
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from prometheus_client import CollectorRegistry

from evalrun_client.fake_judge import FakeJudge, FakeJudgeServer
from evalrun_client.judge_client import GrpcJudge
from evalrun_data.records import Problem
from evalrun_reward.app import RewardService
from evalrun_reward.metrics import RewardMetrics
from evalrun_reward.samples import SampleTests, make_judging
from evalrun_reward.sessions.store_factory import open_store
from evalrun_reward.settings import RewardSettings

TESTS = {"inputs": ["1\n", "2\n"], "outputs": ["1\n", "2\n"]}
"""Of a program that prints what it reads."""
ECHO = "```python\nprint(input())  # accept\n```"
"""Right, and accepted by the scripted judge too."""
WRONG = "```python\nprint('no')\n```"


@dataclass(frozen=True)
class Served:
    """A running service."""

    address: str
    service: RewardService
    judge: FakeJudge
    registry: CollectorRegistry

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def served(
    judge: FakeJudge | None = None, problems: Sequence[Problem] = (), judge_address: str = "", **settings: Any
) -> AsyncIterator[Served]:
    """Serve before a scripted judge, or before whatever is at `judge_address`."""
    judge = judge or FakeJudge()
    gateway = FakeJudgeServer(judge)
    address = judge_address or await gateway.start()
    client = GrpcJudge(address)
    told = RewardSettings(judge=address, **settings)
    tests = SampleTests(problems, make_judging(told.comparator, told.time_limit), told.cache_mib << 20)
    registry = CollectorRegistry()
    store = None
    if told.session_store is not None:
        address, idle = told.session_store.get_secret_value(), told.session_idle_seconds
        store = open_store(address, max_sessions=told.max_sessions, idle_seconds=idle)
    service = RewardService(told, client, tests, RewardMetrics(registry), client.close, sessions=store)
    try:
        yield Served(await service.start(), service, judge, registry)
    finally:
        await service.stop(5.0)
        await gateway.stop()


async def post(
    address: str, path: str, body: object, headers: Mapping[str, str] | None = None
) -> tuple[int, Any, Mapping[str, str]]:
    """Post JSON; returns status, body and headers."""
    async with aiohttp.ClientSession() as session:
        text = body if isinstance(body, str) else json.dumps(body)
        async with session.post(f"{address}{path}", data=io.BytesIO(text.encode()), headers=headers) as answer:
            return answer.status, await answer.json(), dict(answer.headers)


def batch(*responses: str, run: str = "r", **more: object) -> dict[str, object]:
    samples = [{"id": str(n), "response": text, "ground_truth": TESTS} for n, text in enumerate(responses)]
    return {"samples": samples, "run": run, **more}
