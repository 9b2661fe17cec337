"""20-test stdio programs through the executor, beside a bare warm-fork loop, in the same run.

    .venv/bin/python benchmarks/sandbox_throughput.py

The bare loop is the least that any judge which forks can do: no isolation, no limits, no clean interpreter; it forks,
hands the child a pipe for stdin and one for stdout, and waits. It runs in one process a CPU, each under the same
interpreter as the candidates. A second bare loop forks children that end at once. The table at the end divides a test's
time among what each step adds to the one before it.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time

from evalrun_executor.api import RunRequest
from evalrun_executor.cpus import usable_cpus
from evalrun_executor.errors import Busy
from evalrun_executor.executor import Executor, ExecutorPlan

PROGRAM = """
import sys
from collections import defaultdict

def main():
    n = int(input())
    values = list(map(int, input().split()))
    seen = defaultdict(int)
    best = 0
    for value in values:
        seen[value] += 1
        best = max(best, seen[value])
    print(best, sum(values) % 1000007)

if __name__ == "__main__":
    main()
"""
TESTS = 20
INPUTS = [
    f"{size}\n{' '.join(str(i * 7919 % 101) for i in range(size))}\n".encode() for size in range(100, 100 + TESTS)
]

FORK = """
import os, sys, time
deadline = time.monotonic() + eval(sys.stdin.read())[2]
done = 0
from collections import defaultdict
while time.monotonic() < deadline:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    done += 1
print(done)
"""
BARE = """
import io, os, sys, time
program, inputs, seconds = eval(sys.stdin.read())
from collections import defaultdict
deadline = time.monotonic() + seconds
done = 0
while time.monotonic() < deadline:
    code = compile(program, "main.py", "exec")
    for text in inputs:
        in_read, in_write = os.pipe()
        out_read, out_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.dup2(in_read, 0); os.dup2(out_write, 1)
            os.close(in_write); os.close(out_read)
            sys.stdin = open(0); sys.stdout = open(1, "w")
            exec(code, {"__name__": "__main__"})
            sys.stdout.flush()
            os._exit(0)
        os.close(in_read); os.close(out_write)
        os.write(in_write, text); os.close(in_write)
        out = b""
        while data := os.read(out_read, 65536):
            out += data
        os.close(out_read)
        os.waitpid(pid, 0)
        assert out, text
        done += 1
print(done)
"""


STEPS = {
    "fork alone": "fork a bare interpreter, end, wait",
    "bare warm fork": "the program and its pipes",
    "without landlock and seccomp": "limits, supervision, results; the HTTP server and its clients",
    "executor": "landlock, seccomp",
}
"""Work that each step adds to the step before it."""


def bare_loop(loop: str, interpreter: str, processes: int, seconds: float) -> float:
    job = repr((PROGRAM, INPUTS, seconds)).encode()
    running = [
        subprocess.Popen([interpreter, "-s", "-S", "-c", loop], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")
        for _ in range(processes)
    ]
    for process in running:
        if process.stdin is not None:
            process.stdin.write(job)
            process.stdin.close()
    done = sum(int(process.stdout.read()) for process in running if process.stdout is not None)
    for process in running:
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    return done / seconds


async def through_executor(executor: Executor, in_flight: int, seconds: float) -> float:
    request = RunRequest("python", PROGRAM, INPUTS)
    expected = [run.stdout for run in (await executor.run(request)).runs]
    deadline = time.monotonic() + seconds
    done = 0

    async def client() -> None:
        nonlocal done
        while time.monotonic() < deadline:
            try:
                reply = await executor.run(request)
            except Busy as busy:
                await asyncio.sleep(busy.retry_after_ms / 1000)
                continue
            if [run.stdout for run in reply.runs] != expected:
                raise RuntimeError("two runs of one program differ")
            done += TESTS

    started = time.monotonic()
    await asyncio.gather(*[client() for _ in range(in_flight)])
    return done / (time.monotonic() - started)


async def main(rounds: int, seconds: float) -> int:
    """Measure all steps in turn, so that a busy machine slows all alike. Print the medians and their ratio."""
    # The import is here, because `cpu_of_runs --beside` loads this module with the libraries of other commits.
    from evalrun_executor.interpreter import choose_identity, find_interpreter

    cpus = usable_cpus()
    interpreter = (await find_interpreter(None, choose_identity())).path
    contained = Executor(ExecutorPlan(slots=cpus))
    bare_isolation = Executor(ExecutorPlan(slots=cpus, allow_uncontained=True, contain=False))
    await contained.start()
    await bare_isolation.start()
    figures: dict[str, list[float]] = {name: [] for name in reversed(STEPS)}
    try:
        for _ in range(rounds):
            figures["executor"].append(await through_executor(contained, 2 * cpus, seconds))
            figures["without landlock and seccomp"].append(await through_executor(bare_isolation, 2 * cpus, seconds))
            for name, loop in (("bare warm fork", BARE), ("fork alone", FORK)):
                figures[name].append(await asyncio.to_thread(bare_loop, loop, interpreter, cpus, seconds))
    finally:
        await contained.close()
        await bare_isolation.close()
    medians = {name: sorted(values)[len(values) // 2] for name, values in figures.items()}
    print(f"{cpus} CPUs, level {contained.report.level}, load {os.getloadavg()[0]:.1f}, {rounds} rounds of {seconds} s")
    for name, median in medians.items():
        print(f"{name:30} {median:8.0f} tests/s   ({min(figures[name]):.0f} to {max(figures[name]):.0f})")
    ratio = medians["executor"] / medians["bare warm fork"]
    print(f"executor / bare warm fork      {ratio:8.2f}")
    print("microseconds of a CPU that a test takes")
    so_far = 0.0
    for name, added in STEPS.items():
        took = cpus * 1e6 / medians[name]
        print(f"{added:55} {took - so_far:6.0f}")
        so_far = took
    return 0 if ratio >= 0.6 and medians["executor"] >= 800 else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    sys.exit(asyncio.run(main(arguments.rounds, arguments.seconds)))
