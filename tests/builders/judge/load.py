"""Much judging at once, with and without faults: real sandboxes and gateways, programs whose verdicts are known."""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import asyncio
import os
import random
import re
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from builders.data import stdio_problem
from builders.judge.services import judge_all, request_of

from evalrun_cli.local.processes import ServiceProcess
from evalrun_cli.reward_check.faulty_proxy import HANG, FaultyProxy, faulty_proxy
from evalrun_data.records import AssertTests, Problem
from evalrun_proto.judge.v1 import judge_pb2

PROGRAMS = {
    "right": ("print(sum(map(int, input().split())))", judge_pb2.FINAL_STATUS_SUCCESS),
    "wrong": ("print(1)", judge_pb2.FINAL_STATUS_WRONG_ANSWER),
    "crash": ("import sys; print(sum(map(int, input().split()))); sys.exit(1)", judge_pb2.FINAL_STATUS_RUNTIME_ERROR),
    "broken": ("print(", judge_pb2.FINAL_STATUS_SYNTAX_ERROR),
}
FUNCTIONS = {
    "right": ("def add(a, b):\n    return a + b\n", judge_pb2.FINAL_STATUS_SUCCESS),
    "wrong": ("def add(a, b):\n    return a - b\n", judge_pb2.FINAL_STATUS_WRONG_ANSWER),
    "crash": ("def add(a, b):\n    raise ValueError\n", judge_pb2.FINAL_STATUS_RUNTIME_ERROR),
}
KINDS = len(PROGRAMS) + len(FUNCTIONS)

BUSY = "import time\nwhile time.process_time() < {seconds}: pass\nprint(sum(map(int, input().split())))"


def load(number: int) -> tuple[dict[str, judge_pb2.JudgeRequest], dict[str, int]]:
    """Return `number` requests of every kind, and each one's right final status."""
    requests: dict[str, judge_pb2.JudgeRequest] = {}
    right: dict[str, int] = {}
    asserts = Problem(
        "mbpp", "MBPP/1", "Add.", AssertTests(("assert add(1, 2) == 3", "assert add(0, 5) == 5"), "", "add")
    )
    for index in range(number):
        for problem, programs in ((stdio_problem(), PROGRAMS), (asserts, FUNCTIONS)):
            for kind, (code, final) in programs.items():
                name = f"{problem.dataset}/{kind}/{index}"
                requests[name] = request_of(problem, code)
                right[name] = final
    return requests, right


def finals(verdicts: dict[str, judge_pb2.Verdict]) -> dict[str, int]:
    assert all(verdict.judged for verdict in verdicts.values())
    return {name: int(verdict.final_status) for name, verdict in verdicts.items()}


def busy_request(cpu_seconds: float, limit_seconds: float) -> judge_pb2.JudgeRequest:
    request = request_of(stdio_problem(tests=1), BUSY.format(seconds=cpu_seconds))
    request.limits.time_seconds = limit_seconds
    return request


def peak_and_current_mib(pid: int | None) -> tuple[float, float]:
    """Return the resident memory of a process, MiB: the most ever and now."""
    text = Path(f"/proc/{pid}/status").read_text()
    peak, current = (int(re.findall(rf"{name}:\s+(\d+) kB", text)[0]) / 1024 for name in ("VmHWM", "VmRSS"))
    return peak, current


@dataclass
class LoadWatch:
    """What a gateway's metrics showed while it was watched."""

    deepest_queue: float = 0.0
    max_inside: float = 0.0
    samples: int = 0
    problems: list[str] = field(default_factory=list)


async def metric(session: aiohttp.ClientSession, port: int, name: str) -> float:
    async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        text = await answer.text()
    return sum(float(value) for value in re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


@asynccontextmanager
async def watched(metrics_port: int, every_seconds: float = 0.05) -> AsyncIterator[LoadWatch]:
    watch = LoadWatch()

    async def look() -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                depth = await metric(session, metrics_port, "evalrun_judge_queue_depth")
                running = await metric(session, metrics_port, "evalrun_judge_inflight")
                watch.deepest_queue = max(watch.deepest_queue, depth)
                watch.max_inside = max(watch.max_inside, depth + running)
                watch.samples += 1
                await asyncio.sleep(every_seconds)

    looking = asyncio.create_task(look())
    try:
        yield watch
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


PROXY_FAULTS = {
    "hang": (HANG,),
    "500": ("500",),
    "slow": ("slow",),
    "truncated": ("truncated",),
    "resets": ("reset before", "reset after"),
}
PROCESS_FAULTS = ("kill", "gateway restarted", "client gone")
TOGETHER = "together"
ALL_FAULTS = (*PROXY_FAULTS, *PROCESS_FAULTS, TOGETHER)


@asynccontextmanager
async def several_sandboxes(directory: Path, number: int = 4) -> AsyncIterator[list[ServiceProcess]]:
    """Return sandboxes of one slot each, ready."""
    async with AsyncExitStack() as stack:
        sandboxes = []
        for place in range(number):
            sandbox = ServiceProcess("sandbox", "evalrun_sandbox", ["--slots", "1"], directory / f"sandbox-{place}.log")
            stack.push_async_callback(sandbox.stop, 5)
            sandboxes.append(sandbox)
        await asyncio.gather(*(sandbox.start() for sandbox in sandboxes))
        yield sandboxes


@dataclass
class Storm:
    """A gateway over sandboxes, and what is done to them while it judges."""

    fault: str
    judge: ServiceProcess
    sandboxes: Sequence[ServiceProcess]
    proxies: Sequence[FaultyProxy]
    requests: dict[str, judge_pb2.JudgeRequest]
    in_flight: int
    chance: random.Random
    done: int = 0
    """Times that something was done to a process."""

    def does(self, fault: str) -> bool:
        return self.fault in (fault, TOGETHER)

    async def rage(self) -> None:
        """Do it again and again, until cancelled."""
        while True:
            # The faults' own rhythm. A client's channel waits up to 2 s before it connects again:
            # a gateway that lives shorter than that judges nothing.
            await asyncio.sleep(self.chance.uniform(*((2, 4) if self.does("gateway restarted") else (0.2, 0.6))))
            if self.does("hang"):
                for proxy in self.proxies:
                    proxy.thaw()
            if self.does("kill"):
                sandbox = self.chance.choice(self.sandboxes)
                if sandbox.pid is not None:
                    os.kill(sandbox.pid, signal.SIGKILL)
                await sandbox.wait()
                await sandbox.start()
            if self.does("gateway restarted"):
                await self.judge.stop(0 if self.done % 2 else 20)  # killed, or drained, in turn
                await self.judge.start()
            if self.does("client gone"):
                await self.come_and_go()
            self.done += 1

    @property
    def broken(self) -> int:
        return self.done + sum(proxy.injected.total() for proxy in self.proxies)

    async def judged(self) -> dict[str, judge_pb2.Verdict]:
        """Have everything judged, and again where a quick machine was done before anything broke."""
        while True:
            verdicts = await judge_all(self.judge.address, self.requests, in_flight=self.in_flight)
            if self.broken:
                return verdicts

    async def come_and_go(self) -> None:
        """Ask for the same, and go away in the middle of it."""
        some = dict(self.chance.sample(sorted(self.requests.items()), min(20, len(self.requests))))
        asking = asyncio.create_task(judge_all(self.judge.address, some, in_flight=10))
        await asyncio.wait((asking,), timeout=self.chance.uniform(0.02, 0.3))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def storm(
    directory: Path, sandboxes: Sequence[ServiceProcess], fault: str, requests: dict[str, judge_pb2.JudgeRequest]
) -> tuple[dict[str, judge_pb2.Verdict], int]:
    """Have everything judged while the fault rages; gives the verdicts and how often something was broken."""
    kinds = PROXY_FAULTS.get(fault, ())
    if fault == TOGETHER:
        kinds = tuple(kind for several in PROXY_FAULTS.values() for kind in several)
    async with AsyncExitStack() as stack:
        proxies: list[FaultyProxy] = []
        urls = [sandbox.address for sandbox in sandboxes]
        if kinds:
            urls = []
            share = 0.02 if fault == "hang" else 0.2
            for place, sandbox in enumerate(sandboxes):
                url, proxy = await stack.enter_async_context(faulty_proxy(sandbox.address, share, place, kinds))
                urls.append(url)
                proxies.append(proxy)
        flags = [part for url in urls for part in ("--sandbox", url)]
        # Quick to find a hung sandbox, and patient: here everything fails all the time.
        flags += ["--cache-mib", "0", "--health-seconds", "0.5", "--retry-attempts", "30"]
        judge = ServiceProcess("judge", "evalrun_judge", flags, directory / f"judge-{fault}.log")
        stack.push_async_callback(judge.stop, 5)
        await judge.start()
        scene = Storm(fault, judge, sandboxes, proxies, requests, 64, random.Random(7))
        raging = asyncio.create_task(scene.rage())
        judging = asyncio.create_task(scene.judged())
        try:
            await asyncio.wait((raging, judging), return_when=asyncio.FIRST_COMPLETED)
            if raging.done():
                raging.result()
            return await judging, scene.broken
        finally:
            for task in (raging, judging):
                task.cancel()
            await asyncio.gather(raging, judging, return_exceptions=True)
            for proxy in proxies:
                proxy.thaw()
            for sandbox in sandboxes:  # one that was being started again when the storm ended
                await sandbox.stop(0)
                await sandbox.start()
