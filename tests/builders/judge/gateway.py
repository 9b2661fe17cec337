"""Requests, replies and a wired judge for tests of the gateway, with every collaborator scripted."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from evalrun_executor.api import Level, Limits, ProgramRun
from evalrun_judge.cache.verdict_cache import VerdictCache
from evalrun_judge.cache.verdict_key import JudgeIdentity
from evalrun_judge.families.family import Runners
from evalrun_judge.families.registry import build_families
from evalrun_judge.function_tests.assertions import AssertionRunner
from evalrun_judge.judge import Judge
from evalrun_judge.metrics import JudgeMetrics
from evalrun_judge.pool.discovery import SandboxDiscovery
from evalrun_judge.pool.hedge_policy import HedgePolicy
from evalrun_judge.pool.policy import HealthPolicy, PoolPolicy
from evalrun_judge.pool.pool import SandboxPool
from evalrun_judge.pool.retries import RetryPolicy
from evalrun_judge.pool.sandbox_fleet import SandboxSources
from evalrun_judge.rpc.messages import fill_verdict
from evalrun_judge.sandboxes import Sandbox
from evalrun_judge.sandboxes.fake import FakeSandbox
from evalrun_judge.submission import JudgeRequest, StdioTest, StdioTests, Submission
from evalrun_judge.verdict import Verdict
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_registry.comparators import Comparator
from evalrun_runtime.admission import Admission


def message_of(verdict: Verdict) -> judge_pb2.Verdict:
    message = judge_pb2.Verdict()
    fill_verdict(message, verdict)
    return message


def stdio_request(
    *cases: tuple[str, str],
    text: str = "```python\nprint(input())\n```",
    comparator: Comparator | None = None,
    language: str = "python",
    request_id: str = "r1",
) -> JudgeRequest:
    return JudgeRequest(
        submission=Submission(text, language=language),
        tests=StdioTests([StdioTest(data, wanted) for data, wanted in cases or [("1\n", "1\n")]]),
        comparator=comparator or Comparator(),
        request_id=request_id,
    )


class NoAssertions:
    """Stands for the assertions' child where no test needs it."""

    level: Level = "full"

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def run(
        self, stdin: bytes, limits: Limits, on_slot: Callable[[], None], *, shareable: bool = False
    ) -> ProgramRun:
        raise NotImplementedError


class Time:
    """A clock that moves when somebody sleeps; `sleeps` holds what was asked for."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.sleeps: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class CountedCalls:
    """Passes what a pool counts to callables."""

    count_retry: Callable[[str], None]
    observe_call: Callable[[float], None]
    count_hedge: Callable[[bool], None]


def make_pool(
    sandboxes: Sequence[Sandbox],
    time: Time,
    *,
    required_level: Level = "full",
    retries: RetryPolicy | None = None,
    on_retry: Callable[[str], None] = lambda reason: None,
    on_call: Callable[[float], None] = lambda seconds: None,
    discoveries: Sequence[SandboxDiscovery] = (),
    connect: Callable[[str, str], Sandbox] = lambda url, _name: FakeSandbox(address=url),
    health: HealthPolicy | None = None,
    hedging: HedgePolicy | None = None,
    on_hedge: Callable[[bool], None] = lambda won: None,
    clock: Callable[[], float] | None = None,
    sleep: Callable[[float], Awaitable[None]] | None = None,
) -> SandboxPool:
    return SandboxPool(
        SandboxSources(sandboxes, discoveries, connect),
        PoolPolicy(required_level, retries or RetryPolicy(), health or HealthPolicy(), hedging),
        clock=clock or time.clock,
        sleep=sleep or time.sleep,
        randomness=random.Random(7),
        metrics=CountedCalls(on_retry, on_call, on_hedge),
    )


def make_judge(
    pool: SandboxPool,
    time: Time,
    *,
    capacity: int = 1000,
    assertions: AssertionRunner | None = None,
    registry: CollectorRegistry | None = None,
    cache: VerdictCache | None = None,
) -> tuple[Judge, Admission, JudgeMetrics]:
    metrics = JudgeMetrics(registry or CollectorRegistry())
    admission = Admission(lambda: capacity, time.clock, metrics.observe_queue, max_bytes=1 << 30)
    judge = Judge(
        pool,
        build_families(Runners(pool, assertions or NoAssertions())),
        admission,
        metrics,
        time.clock,
        cache or VerdictCache(()),
        JudgeIdentity("1.0", "sandbox@sha256:1"),
    )
    return judge, admission, metrics
