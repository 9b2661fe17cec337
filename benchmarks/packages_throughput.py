"""Programs through two executors in turn, one of which offers numpy: what do packages cost programs that import none?

    /usr/bin/python3 -m pip install --target packages numpy
    .venv/bin/python benchmarks/packages_throughput.py --packages packages

Both run the 20-test program of `sandbox_throughput.py`, which imports nothing of them. Last, the executor with packages
runs a program that imports numpy, a fork a test as any other. Tests/s depend on whatever else the machine does; the CPU
time of the executor and its programs, a test, hardly does.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
from pathlib import Path

from gateway_overhead import cpu_of_all
from sandbox_throughput import INPUTS, through_executor

from evalrun_executor.api import RunRequest
from evalrun_executor.cpus import usable_cpus
from evalrun_executor.executor import Executor, ExecutorPlan

NUMPY = """
import numpy
count = int(input())
values = numpy.array(input().split(), dtype=numpy.int64)
print(int(values.max()), int(values.sum()) % 1000007, count == len(values))
"""


async def main(packages: Path, rounds: int, seconds: float) -> int:
    """Measure both executors in turn, so that a busy machine slows both alike. Print the medians and their ratio."""
    cpus = usable_cpus()
    plain, offering = Executor(ExecutorPlan(slots=cpus)), Executor(ExecutorPlan(slots=cpus, package_dirs=[packages]))
    await plain.start()
    await offering.start()
    figures: dict[str, list[float]] = {"without packages": [], "with packages": []}
    costs: dict[str, list[float]] = {name: [] for name in figures}
    try:
        for number in range(rounds):
            pair = [("without packages", plain), ("with packages", offering)]
            for name, executor in pair if number % 2 == 0 else reversed(pair):
                used, begun = cpu_of_all(os.getpid()), time.monotonic()
                rate = await through_executor(executor, 2 * cpus, seconds)
                tests = rate * (time.monotonic() - begun)
                figures[name].append(rate)
                costs[name].append((cpu_of_all(os.getpid()) - used) / tests * 1000)
        started = time.monotonic()
        reply = await offering.run(RunRequest("python", NUMPY, INPUTS))
        taken = time.monotonic() - started
    finally:
        await plain.close()
        await offering.close()
    if any(run.exit_code != 0 for run in reply.runs):
        raise RuntimeError(f"numpy is not there: {reply.runs[0].stderr.decode()[-300:]}")
    print(f"{cpus} CPUs, level {offering.report.level}, load {os.getloadavg()[0]:.1f}, {rounds} rounds of {seconds} s")
    for name, values in figures.items():
        said = f"{statistics.median(values):8.0f} tests/s   ({min(values):.0f} to {max(values):.0f})"
        print(f"{name:18} {said}; {statistics.median(costs[name]):.2f} ms of CPU a test")
    told = {}
    for what, both in (("tests/s", figures), ("CPU a test", costs)):
        ratios = [there / here for here, there in zip(*both.values(), strict=True)]
        told[what] = statistics.median(ratios)
        print(f"with / without     {told[what]:8.2f}           ({min(ratios):.2f} to {max(ratios):.2f}) {what}")
    print(f"importing numpy    {len(INPUTS) / taken:8.0f} tests/s, one program alone")
    return 0 if told["tests/s"] >= 0.9 else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, required=True, help="directory made by pip install --target")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    sys.exit(asyncio.run(main(arguments.packages, arguments.rounds, arguments.seconds)))
