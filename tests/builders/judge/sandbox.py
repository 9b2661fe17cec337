"""Requests for the sandbox, and the one place that knows whether programs can be contained on this machine."""

import asyncio
import os
import shutil
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from builders.tools import missing

from evalrun_executor.api import Limits, ProgramRun, RunReply, RunRequest
from evalrun_executor.errors import Busy
from evalrun_executor.executor import Executor, ExecutorPlan
from evalrun_executor.machine import Machine
from evalrun_executor.oom_kills import OomKills
from evalrun_executor.run_queues import RunQueues
from evalrun_executor.toolchain import COMPILER_PATH
from evalrun_runtime.ready_line import parse_ready_line

Found = TypeVar("Found")


def machine_of(slowness: float) -> Machine:
    """Return a machine that has been quiet once, at its start, and is so much slower ever after."""
    readings = threading.local()  # several requests may look at the machine at once, each in a thread
    sample = 1.0

    def clock() -> float:
        readings.last = getattr(readings, "last", 0.0) + sample
        return float(readings.last)

    machine = Machine(clock)
    machine.probe()
    sample = slowness
    return machine


MEMORY_SEARCH = """
import ctypes, os

def f(parts):
    wanted = "".join(parts).encode()
    found = pages = 0
    file = os.open("page", os.O_RDWR | os.O_CREAT)
    top = ctypes.CDLL(None).sbrk
    top.restype = ctypes.c_void_p
    kept = globals().get("kept", ())
    seen = set()
    for start in (*map(id, [os, wanted, {}, f, *kept]), top(0) - 4096):
        start &= ~4095
        for step in (4096, -4096):
            page = start
            while page not in seen:
                seen.add(page)
                try:
                    os.pwrite(file, (ctypes.c_char * 4096).from_address(page), 0)
                except OSError:
                    break
                pages += 1
                found += os.pread(file, 4096, 0).count(wanted)
                page += step
    return [found, pages]
"""
"""Defines f(parts): how often the parts, joined, are found in the process's memory, and in how many pages.

It writes each page that it can reach, from objects on (those in `kept` too) and below the C library's heap, to a file
in the private directory: a page that is not there is an error of the call, not a crash.
"""


@asynccontextmanager
async def started(
    plan: ExecutorPlan | None = None,
    slowness: float = 1.0,
    oom_kills: OomKills | None = None,
    run_queues: RunQueues | None = None,
) -> AsyncIterator[Executor]:
    """Return a running executor on a machine of known slowness, and end it."""
    executor = Executor(plan, machine_of(slowness), oom_kills, run_queues)
    await executor.start()
    try:
        yield executor
    finally:
        await executor.close()


@asynccontextmanager
async def service(*flags: str, **environment: str) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Return the address and the process of a sandbox service, and end it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "evalrun_sandbox", "--allow-uncontained", *flags,
        stdout=asyncio.subprocess.PIPE, env={**os.environ, **environment},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        address = parse_ready_line((await process.stdout.readline()).decode())
        assert address is not None
        yield address, process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def request(code: str, *inputs: bytes, language: str = "python", seconds: float = 5.0, memory: int = 512,
            output: int = 1024, stop_after: int = 0, mode: str = "stdio") -> RunRequest:  # fmt: skip
    """Return a request; without inputs, one that is empty."""
    return RunRequest(
        language,
        code,
        list(inputs) or [b""],
        Limits(seconds, memory, output),
        mode,
        stop_after,
    )


async def run_one(executor: Executor, code: str, stdin: bytes = b"", **options: object) -> ProgramRun:
    """Run a program on one input; it must compile."""
    reply = await executor.run(request(code, stdin, **options))  # type: ignore[arg-type]  # passed on
    assert reply.compile.status == "ok", reply.compile
    return reply.runs[0]


def require_compiler(program: str) -> None:
    """Skip the test where a compiler or an interpreter is missing; in CI, fail."""
    if shutil.which(program, path=COMPILER_PATH) is None:
        missing(f"no {program} in {COMPILER_PATH}")


async def until(condition: Callable[[], Found | None]) -> Found:
    """Wait, at most 60 s, until the condition holds; gives what it gave."""
    async with asyncio.timeout(60):
        while not (found := condition()):  # noqa: ASYNC110 - another process brings it about
            await asyncio.sleep(0.01)
    return found


def living_children(pid: int | None) -> list[int]:
    """Return the children of a process that are no zombies; none where it is gone itself."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):  # the second where it ends between opening and reading
        return []
    return [int(child) for child in children if state_of(int(child)) not in "Z"]


def programs_below(zygote: int | None) -> list[int]:
    """Return the processes that run a program: the children of a zygote's runners and workers."""
    return [child for parent in living_children(zygote) for child in living_children(parent)]


def filters_of(pid: int | None) -> int:
    """Return how many seccomp filters a process stands under: a worker one more than its zygote, a program two."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("Seccomp_filters:")), 0)


def busy_descendant(pid: int | None, cpu_seconds: float, but: Collection[int] = ()) -> int | None:
    """Return a process below this one that has used so much CPU; none of `but`, nor of what is below those."""
    for child in living_children(pid):
        if child in but:
            continue
        try:
            used = time.clock_gettime((~child << 3) | 2)  # of that process: linux/posix-timers.h
        except OSError:  # it has just ended
            continue
        if used >= cpu_seconds:
            return child
        if found := busy_descendant(child, cpu_seconds, but):
            return found
    return None


def processes_named(name: str) -> list[int]:
    """Return the processes of a name that descend from this one: other tests compile too."""
    about = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                before, _, after = (entry / "stat").read_text().rpartition(")")
                about[int(entry.name)] = before.partition("(")[2], int(after.split()[1])
        except OSError:  # it has ended
            continue

    def is_ours(pid: int) -> bool:
        while pid in about and pid != os.getpid():
            pid = about[pid][1]
        return pid == os.getpid()

    return [pid for pid, (called, _) in about.items() if called == name and is_ours(pid)]


def state_of(pid: int) -> str:
    """Return a process's state letter; Z where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


async def until_served(executor: Executor, wanted: RunRequest) -> RunReply:
    """Run it, coming back for as long as the executor is busy."""
    while True:
        try:
            return await executor.run(wanted)
        except Busy as busy:
            await asyncio.sleep(busy.retry_after_ms / 1000)
