"""CPU that the sandbox takes for one run of each kind: the executor's own, and that of the zygote and all it forks,
with the page faults of those.

    .venv/bin/python benchmarks/cpu_of_runs.py [--rounds 5] [--beside CHECKOUT] [--python INTERPRETER]

Each round runs the kinds in a fresh process, first with this checkout and then with the one of `--beside` (`git
worktree add /tmp/before COMMIT`), with this environment's packages. CPU time scatters less than rates on a machine with
other work, and page faults hardly at all. The peer is `--beside`; `sandbox_throughput.py` has the bare fork loop.
"""

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from judge_command import paths_of
from sandbox_throughput import INPUTS, PROGRAM

from evalrun_executor.api import Limits, RunRequest
from evalrun_executor.cpus import usable_cpus
from evalrun_executor.executor import Executor, ExecutorPlan

CALL = {"imports": "", "tests": [[0, [["f", [1], {"d": []}]]]]}
KINDS: Mapping[str, tuple[RunRequest, int]] = {
    "a program of one input": (RunRequest("python", PROGRAM, INPUTS[:1]), 150),
    "one of a program's 20 inputs": (RunRequest("python", PROGRAM, INPUTS), 15),
    "a call of a function": (
        RunRequest("python", "def f(x):\n    return x\n", [json.dumps(CALL).encode()], Limits(2.0, 256, 64), "calls"),
        150,
    ),
}
"""Request, and the number of times that it is sent, by kind."""
Figures = Mapping[str, tuple[float, float, float]]
"""Figures per run, by kind: CPU milliseconds of the executor's process and of all its descendants, and their faults."""


def used(who: int) -> tuple[float, int]:
    found = resource.getrusage(who)
    return found.ru_utime + found.ru_stime, found.ru_minflt


async def cost_of(request: RunRequest, count: int, python: str | None) -> tuple[float, float, int]:
    """Return the CPU seconds of this process for `count` requests, and the CPU seconds and page faults of all its
    descendants, their start included.
    """
    below = used(resource.RUSAGE_CHILDREN)
    executor = Executor(ExecutorPlan(slots=2, python=python))
    await executor.start()
    own, _ = used(resource.RUSAGE_SELF)
    waiting = [request] * count

    async def work() -> None:
        while waiting:
            reply = await executor.run(waiting.pop())
            if any(run.exit_code != 0 for run in reply.runs):
                raise SystemExit("a program failed")

    await asyncio.gather(work(), work())
    own = used(resource.RUSAGE_SELF)[0] - own
    # The kernel counts only children that have ended and were waited for.
    await executor.close()
    seconds, faults = used(resource.RUSAGE_CHILDREN)
    return own, seconds - below[0], faults - below[1]


async def measure(python: str | None) -> None:
    figures = {}
    for name, (request, count) in KINDS.items():
        _, start, first_faults = await cost_of(request, 0, python)
        own, below, faults = await cost_of(request, count, python)
        runs = count * len(request.inputs)
        figures[name] = (1000 * own / runs, 1000 * (below - start) / runs, (faults - first_faults) / runs)
    print(json.dumps(figures))


def measured(checkout: Path | None, python: str | None) -> Figures:
    """Run `measure` in a separate process, with the modules of a checkout. Return its figures."""
    environment = dict(os.environ)
    if checkout is not None:
        environment["PYTHONPATH"] = paths_of(checkout)
    command = [sys.executable, __file__, "--once", *(["--python", python] if python else [])]
    found: Figures = json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", type=Path, help="another checkout, measured in each round too")
    parser.add_argument("--python", help="the programs' interpreter; without it the sandbox's usual one")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        asyncio.run(measure(arguments.python))
        return
    print(f"{usable_cpus()} CPUs, load {os.getloadavg()[0]:.1f}, median of {arguments.rounds} rounds, CPU ms a run")
    rounds = []
    for _ in range(arguments.rounds):
        ours = measured(None, arguments.python)
        beside = arguments.beside
        rounds.append((ours, ours if beside is None else measured(beside.resolve(), arguments.python)))
    for name in KINDS:
        service, below, faults = (statistics.median(ours[name][part] for ours, _ in rounds) for part in range(3))
        line = f"{name:30} {service:6.2f} executor, {below:6.2f} zygote and below, {faults:4.0f} faults"
        if arguments.beside is not None:
            theirs = statistics.median(other[name][1] for _, other in rounds)
            ratio = statistics.median(other[name][1] / ours[name][1] for ours, other in rounds)
            theirs_faults = statistics.median(other[name][2] for _, other in rounds)
            line += f"; of --beside {theirs:6.2f}, {ratio:.2f} x, {theirs_faults:4.0f} faults"
        print(line)


if __name__ == "__main__":
    main()
