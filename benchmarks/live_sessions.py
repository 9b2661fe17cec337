"""1,000 live sessions: memory each, time to open one, time to execute with 64 active; beside bare forked interpreters.

    .venv/bin/python benchmarks/live_sessions.py [--sessions 1000] [--active 64] [--seconds 10] [--pause 0.1]
    .venv/bin/python benchmarks/live_sessions.py --behind-loops 4

With --behind-loops nothing but two waits is measured: that of a step in a session while this many others execute an
endless loop, and how much later than it should an unused session ends.

The bare interpreters are the least that any design with a process per session can do: one fork of the same Python
each, which executes what it reads from a pipe; no isolation, no limits, no supervision, never stopped. Run as root, or
the kernel does not tell what the sessions' workers hold.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry

from evalrun_executor.cpus import usable_cpus
from evalrun_executor.executor import Executor, ExecutorPlan
from evalrun_executor.interpreter import choose_identity, find_interpreter
from evalrun_sandbox.sessions.policy import Budget
from evalrun_sandbox.sessions.sessions import Execution, SessionLimits, Sessions
from evalrun_sandbox.sessions.start import start_sessions

SETUP = "values = list(range(100))\ndef step(n):\n    return sum(values) + n\ntotal = 0"
CODE = "total += step(total % 7)\nprint(total)"
CODE_ALONE = "sum(range(100))"
LOOP = "while True: pass"

BARE = """
import os, select, sys, time
setup, code, sessions, active, seconds = eval(sys.stdin.read())
children = []
opened = []
for _ in range(sessions):
    start = time.perf_counter()
    code_read, code_write = os.pipe()
    out_read, out_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        names = {}
        while text := os.read(code_read, 65536):
            exec(compile(text, "<cell>", "exec"), names)
            os.write(out_write, b"x")
        os._exit(0)
    os.close(code_read); os.close(out_write)
    children.append((pid, code_write, out_read))
    os.write(code_write, setup.encode())
    os.read(out_read, 1)
    opened.append(time.perf_counter() - start)
print("ready", *[pid for pid, _, _ in children])
print("opened", *opened, flush=True)
poller = select.poll()
started = {}
quiet = code.replace("print(total)", "str(total)")
for _, write, read in children[:active]:
    poller.register(read, select.POLLIN)
writes = {read: write for _, write, read in children}
deadline = time.perf_counter() + seconds
for _, write, read in children[:active]:
    started[read] = time.perf_counter()
    os.write(write, quiet.encode())
times = []
while time.perf_counter() < deadline:
    for read, _ in poller.poll():
        os.read(read, 1)
        now = time.perf_counter()
        times.append(now - started[read])
        started[read] = now
        os.write(writes[read], quiet.encode())
print("executed", *times, flush=True)
for pid, _, _ in children:
    os.kill(pid, 9)
"""


def percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """Return p50 and p99 in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100)
    return cuts[49] * 1000, cuts[98] * 1000


def kib(pid: int) -> tuple[int, int]:
    """Return the PSS and the private memory of a process, in KiB. Raises OSError if the kernel does not show them."""
    pss = private = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "Pss":
            pss += int(rest.split()[0])
        elif name in ("Private_Clean", "Private_Dirty"):
            private += int(rest.split()[0])
    return pss, private


def below(pid: int) -> list[int]:
    found = [pid]
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += below(int(child))
    return found


def available_kib() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))


def memory(pids: Sequence[int], sessions: int, taken_kib: int) -> str:
    """Return a line about the memory of these processes per session."""
    found = [kib(pid) for pid in pids]
    pss, private = (sum(column) / sessions / 1024 for column in zip(*found, strict=True))
    return (
        f"PSS {pss:.2f} MiB, private {private:.2f} MiB, with the kernel's share {taken_kib / sessions / 1024:.2f} MiB"
    )


async def executed(sessions: Sessions, names: Sequence[str], seconds: float, pause: float) -> list[float]:
    """Execute code in each of these sessions, one execution after another. Return the seconds that each took."""
    times: list[float] = []
    deadline = time.perf_counter() + seconds

    async def use(place: int, name: str) -> None:
        await asyncio.sleep(pause * place / len(names))
        while time.perf_counter() < deadline:
            start = time.perf_counter()
            await sessions.execute(name, Execution(CODE, 10.0, 65536))
            times.append(time.perf_counter() - start)
            await asyncio.sleep(pause)

    await asyncio.gather(*[use(place, name) for place, name in enumerate(names)])
    return times


def until_gone(pid: int) -> float:
    """Wait until a process has ended. Return the time of its end, in seconds of `time.perf_counter`."""
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.01)
    return time.perf_counter()


async def waits(loops: int) -> None:
    """Print how long steps wait behind loops, and how late an unused session ends."""
    executor = Executor(ExecutorPlan())
    await executor.start()
    registry = CollectorRegistry()
    sessions = start_sessions(executor, SessionLimits(loops + 1, 256, Budget(3600.0, 8 << 30)), registry)
    try:
        *busy, name = [await sessions.create() for _ in range(loops + 1)]
        looping = [asyncio.create_task(sessions.execute(each, Execution(LOOP, 10.0, 65536))) for each in busy]
        await asyncio.sleep(0.2)
        times: list[float] = []
        while not any(task.done() for task in looping) or not times:
            start = time.perf_counter()
            await sessions.execute(name, Execution(CODE_ALONE, 10.0, 65536))
            times.append(time.perf_counter() - start)
        await asyncio.gather(*looping)
        print(f"behind {loops} loops, {executor.slots} slots: {len(times)} steps, the longest took {max(times):.2f} s")
    finally:
        await sessions.close()
    unused = start_sessions(executor, SessionLimits(1, 256, Budget(1.0, 8 << 30)), CollectorRegistry())
    try:
        late = []
        for _ in range(5):
            _, outcome = await unused.execute(await unused.create(), Execution(CODE_ALONE, 10.0, 65536))
            idle = time.perf_counter()
            late.append(await asyncio.to_thread(until_gone, outcome.pid) - idle - 1.0)
            await asyncio.sleep(0.5)
        print(f"an unused session ended at most {max(late):.2f} s late, of {len(late)}")
    finally:
        await unused.close()
        await executor.close()


async def ours(options: argparse.Namespace) -> tuple[float, float]:
    """Measure live sessions. Return p50 and p99 of an execution, in milliseconds."""
    registry = CollectorRegistry()
    executor = Executor(ExecutorPlan())
    await executor.start()
    limits = SessionLimits(options.sessions, 256, Budget(3600.0, 8 << 30))
    sessions = start_sessions(executor, limits, registry)
    try:
        await sessions.execute(await sessions.create(), Execution(SETUP, 10.0, 65536))
        others = set(below(os.getpid()))
        before = available_kib()
        opened, names = [], []
        for _ in range(options.sessions - 1):
            start = time.perf_counter()
            names.append(await sessions.create())
            opened.append(time.perf_counter() - start)
        for name in names:
            await sessions.execute(name, Execution(SETUP, 10.0, 65536))
        taken = before - available_kib()
        print(f"live sessions, {options.sessions} of them, {executor.slots} slots")
        print(f"  memory each: {memory(sorted(set(below(os.getpid())) - others), len(names), taken)}")
        print("  open:        p50 {:.1f} ms, p99 {:.1f} ms".format(*percentiles(opened)))
        for active, pause in ((1, 0.0), (options.active, options.pause), (options.active, 0.0)):
            times = await executed(sessions, names[:active], options.seconds, pause)
            how = f"pausing {pause:g} s between two" if pause else "without a pause"
            print("  execute, {} active {}: p50 {:.1f} ms, p99 {:.1f} ms, {:.0f}/s".format(
                active, how, *percentiles(times), len(times) / options.seconds))  # fmt: skip
        return percentiles(times)
    finally:
        await sessions.close()
        await executor.close()


async def bare(options: argparse.Namespace) -> tuple[float, float]:
    """Measure bare forked interpreters. Return p50 and p99 of an execution, in milliseconds."""
    interpreter = await find_interpreter(None, choose_identity())
    before = available_kib()
    process = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs meanwhile
        [interpreter.path, "-I", "-S", "-c", BARE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("a pipe is missing")
    process.stdin.write(repr((SETUP, CODE, options.sessions, options.active, options.seconds)))
    process.stdin.close()
    pids = [int(pid) for pid in process.stdout.readline().split()[1:]]
    opened = [float(number) for number in process.stdout.readline().split()[1:]]
    print(f"bare forked interpreters, {options.sessions} of them")
    print(f"  memory each: {memory(pids, options.sessions, before - available_kib())}")
    print("  open:        p50 {:.1f} ms, p99 {:.1f} ms".format(*percentiles(opened)))
    times = [float(number) for number in process.stdout.readline().split()[1:]]
    process.wait()
    print("  execute, {} active: p50 {:.1f} ms, p99 {:.1f} ms, {:.0f}/s".format(
        options.active, *percentiles(times), len(times) / options.seconds))  # fmt: skip
    return percentiles(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--active", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--pause", type=float, default=0.1, help="of an active session between two executions")
    parser.add_argument("--behind-loops", type=int, metavar="N", help="measure the waits alone, with N loops")
    options = parser.parse_args()
    print(f"{usable_cpus()} CPUs, load {os.getloadavg()[0]:.1f}")
    if options.behind_loops:
        asyncio.run(waits(options.behind_loops))
        return 0
    peer = asyncio.run(bare(options))
    own = asyncio.run(ours(options))
    print(f"execute without a pause, live sessions / bare: p50 {own[0] / peer[0]:.1f}x, p99 {own[1] / peer[1]:.1f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
