"""SandboxFusion's API for tests: a real sandbox process, a scripted executor, and verl's client as a contract."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from aiohttp import web

from evalrun_executor.api import CompileResult, ProgramRun, RunReply, RunRequest
from evalrun_runtime.ready_line import parse_ready_line
from evalrun_sandbox.fusion.dataset_rows import RowDirectory
from evalrun_sandbox.fusion.dispatch import Dispatcher
from evalrun_sandbox.fusion.routes import FusionRoutes

Step = RunReply | Exception
TEST_SECONDS = 600.0
"""A client's timeout that leaves the wait to the test's own limit: a sandbox answers for a program past its time limit
once runs alone have confirmed it, which takes minutes on a busy machine."""
OK = CompileResult("ok", 0.001)
STDIO_ROW: dict[str, Any] = {
    "id": 7,
    "content": "Add two numbers.",
    "labels": {"level": "easy"},
    "test": [
        {"input": {"stdin": f"{n} {n}\n"}, "output": {"stdout": f"{2 * n}\n"}} for n in range(5)
    ],
}  # fmt: skip
ADD = "print(sum(map(int, input().split())))"


def fenced(code: str, tag: str = "python") -> str:
    return f"Here you are:\n```{tag}\n{code}\n```\n"


def exited(stdout: bytes = b"", code: int = 0, stderr: bytes = b"") -> ProgramRun:
    return ProgramRun("exited", code, stdout, stderr, 0.01, 0.02)


def reply(*runs: ProgramRun, compiled: CompileResult = OK) -> RunReply:
    return RunReply(compiled, list(runs), "full")


class ScriptedExecutor:
    """Answers by script, then by `rule`; holds what it was asked."""

    def __init__(
        self, *steps: Step, rule: Callable[[bytes], ProgramRun] | None = None, slots: int = 2,
        languages: Sequence[str] = ("c", "cpp", "python"),
    ) -> None:  # fmt: skip
        self.steps = list(steps)
        self.rule = rule or (lambda _: exited(b"ok\n"))
        self.slots = slots
        self.languages = list(languages)
        self.asked: list[RunRequest] = []
        self.started = asyncio.Event()
        self.gate: asyncio.Event | None = None

    async def run(self, request: RunRequest) -> RunReply:
        self.asked.append(request)
        self.started.set()
        if self.gate is not None:
            await self.gate.wait()
        step = self.steps.pop(0) if self.steps else reply(*map(self.rule, request.inputs))
        if isinstance(step, Exception):
            raise step
        return step


async def settle() -> None:
    """Let everything that can go on, go on."""
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def serving(dispatcher: Dispatcher, rows: RowDirectory | None = None) -> AsyncIterator[str]:
    """The routes alone, in this process."""
    application = web.Application()
    FusionRoutes(dispatcher, rows, "pod-1").add_routes(application.router)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextmanager
def sandbox(*flags: str | Path, environment: dict[str, str] | None = None) -> Iterator[str]:
    """A real sandbox process; gives its address. The programs of these tests are trusted."""
    command = [sys.executable, "-m", "evalrun_sandbox", "--allow-uncontained", "--exit-with-parent"]
    process = subprocess.Popen(
        [*command, "--log-level", "warning", *map(str, flags)], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        address = parse_ready_line(process.stdout.readline())
        assert address is not None, "the sandbox did not start: see its stderr"
        yield address
    finally:
        process.terminate()
        process.communicate(timeout=60)


STOCK = os.environ.get("EVALRUN_TEST_SANDBOXFUSION", "").rstrip("/")
"""Address of a stock SandboxFusion server on this machine; empty: none. It runs programs uncontained."""
BOTH_SERVERS = ("evalrun", "stock")


def stock_address() -> str:
    """Return the stock server's address; skip the test if there is none."""
    if not STOCK:
        pytest.skip("EVALRUN_TEST_SANDBOXFUSION names no stock SandboxFusion server")
    return STOCK


@contextmanager
def server_named(name: str, datasets: Path) -> Iterator[str]:
    """One of BOTH_SERVERS: this sandbox, started here, or the stock server, where there is one."""
    if name == "evalrun":
        with sandbox("--fusion-datasets", datasets) as address:
            yield address
    else:
        yield stock_address()


class VerlClient:
    """How verl 0.9.1 calls `/run_code`, as a contract: payload, deadline, retries and what an answer counts as.

    Written from a description of `verl.utils.reward_score.sandbox_fusion`; the package itself needs torch.
    """

    def __init__(self, url: str, sleep: Callable[[float], None] = time.sleep, margin_seconds: float = 10.0) -> None:
        self._url = url
        self._sleep = sleep
        self._margin_seconds = margin_seconds
        self.attempts = 0

    def call(
        self, code: str, stdin: str | None, timeout: float = 10, memory_limit_mb: int | None = 1024
    ) -> dict[str, Any] | None:
        """Return the answer; None: an API error."""
        payload: dict[str, Any] = {
            "compile_timeout": timeout, "run_timeout": timeout, "code": code, "stdin": stdin,
            "memory_limit_MB": memory_limit_mb, "language": "python", "files": {}, "fetch_files": [],
        }  # fmt: skip
        for attempt in range(3):
            self.attempts += 1
            try:
                response = requests.post(self._url, json=payload, timeout=2 * timeout + self._margin_seconds)
            except requests.RequestException:
                return None
            if response.status_code == 504:
                if attempt < 2:
                    self._sleep(attempt + 1)
                continue
            if response.status_code != 200:
                return None
            answer: dict[str, Any] = response.json()
            return answer
        return None

    def grade(self, code: str, stdin: str | None, expected: str | None, timeout: float = 10) -> bool | int:
        """Return True, False, -1 (API error), -2 (runtime error), -3 (timeout) or -4 (compile error)."""
        answer = self.call(code, stdin, timeout)
        return -1 if answer is None else grade_of(answer, expected)


def grade_of(answer: dict[str, Any], expected: str | None) -> bool | int:
    compiled, run = answer["compile_result"], answer["run_result"]
    if answer["status"] == "Failed":
        if compiled and (compiled["status"] != "Finished" or compiled["return_code"] != 0):
            return -4
        if run and run["status"] == "TimeLimitExceeded":
            return -3
        return -2 if run and (run["status"] == "Error" or run["return_code"] != 0) else -1
    if answer["status"] != "Success" or not run or run["status"] != "Finished":
        return -1
    return expected is None or run["stdout"].rstrip("\n") == expected.rstrip("\n")
