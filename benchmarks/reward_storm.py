"""Two jobs ask for 45,000 rewards at once: what share of the work each gets, with declared shares and without.

    .venv/bin/python benchmarks/reward_storm.py [--calls 45000] [--cpu-ms 5]

Job `heavy` sends three quarters of the calls and `light` one quarter, each from a process of its own, all at once.
Every program is another one and burns the same CPU time, so a job's share of the calls that ended while both jobs
waited is its share of the work. `heavy` has weight 3 in the first round; in the second, which is the peer, no weights
are declared.
Exits with 1 if a call was lost, a reward wrong, or a share further than 10 % from the declared one.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalrun_cli.local.processes import ServiceProcess
from evalrun_trainers.client import RewardClient
from evalrun_trainers.options import Options
from evalrun_trainers.samples import make_sample

JOBS = {"heavy": 0.75, "light": 0.25}
WEIGHTS = {"heavy": 3.0}
MAX_DEVIATION = 0.10


@dataclass(frozen=True)
class Job:
    """Observations of a job. Times are Unix seconds of this machine's clock."""

    started: float
    ended: Sequence[float]
    """When each call ended, sorted."""
    lost: int
    wrong: int

    @property
    def p99(self) -> float:
        return self.ended[int(0.99 * (len(self.ended) - 1))] - self.started


def program(mark: str, cpu_ms: float) -> str:
    burn = f"import time\nend = time.process_time() + {cpu_ms / 1000}\nwhile time.process_time() < end: pass\n"
    return f"```python\n# {mark}\n{burn}print(int(input()) + 1)\n```"


def ask(url: str, run: str, number: int, cpu_ms: float) -> dict[str, Any]:
    """Request all rewards at once. Return the observations as a JSON object."""
    client = RewardClient(Options(url=url, run=run))
    client.submit(
        make_sample("storm", program(f"{run} first", cpu_ms), {"inputs": ["1\n"], "outputs": ["2\n"]})
    ).result()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    ended: list[float] = []
    started = time.time()
    futures = []
    for index in range(number):
        truth = {"inputs": [f"{index}\n"], "outputs": [f"{index + 1}\n"]}
        future = client.submit(make_sample("storm", program(f"{run} {index} {started}", cpu_ms), truth))
        future.add_done_callback(lambda _: ended.append(time.time()))
        futures.append(future)
    rewards = [future.result().get("reward") for future in futures]
    lost = sum(reward is None for reward in rewards)
    wrong = sum(reward is not None and reward != 1.0 for reward in rewards)
    return {"started": started, "ended": sorted(ended), "lost": lost, "wrong": wrong}


async def storm(url: str, calls: int, cpu_ms: float) -> dict[str, Job]:
    """Start both jobs, let them begin together, and return the observations of each."""
    processes = {}
    for run, share in JOBS.items():
        command = [sys.executable, __file__, "--job", run, "--url", url, "--calls", str(int(calls * share))]
        processes[run] = await asyncio.create_subprocess_exec(
            *command,
            "--cpu-ms",
            str(cpu_ms),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**28,
        )
    for process in processes.values():
        if process.stdout is None or process.stdin is None or not await process.stdout.readline():
            raise SystemExit("a job ended before it began")
    for process in processes.values():
        if process.stdin is not None:
            process.stdin.write(b"go\n")
            await process.stdin.drain()
    said = await asyncio.gather(*(process.communicate() for process in processes.values()))
    return {run: Job(**json.loads(out)) for run, (out, _) in zip(processes, said, strict=True)}


def shares_while_both_waited(jobs: dict[str, Job]) -> dict[str, float]:
    """Return each job's share of the calls that ended while both jobs still waited for replies."""
    end = min(job.ended[-1] for job in jobs.values())
    counts = {run: sum(1 for moment in job.ended if moment <= end) for run, job in jobs.items()}
    return {run: count / sum(counts.values()) for run, count in counts.items()}


async def measure(calls: int, cpu_ms: float) -> int:
    failed = 0
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; {calls} calls at once of {cpu_ms:g} ms each")
    print(
        f"{'weights':<14} {'job':<6} {'calls':>7} {'lost':>5} {'wrong':>6} {'share':>7} {'declared':>9} "
        f"{'p99, s':>7} {'all, s':>7}"
    )
    with tempfile.TemporaryDirectory() as directory:
        for weights in (WEIGHTS, dict[str, float]()):
            flags = [f"--share={run}={weight:g}" for run, weight in weights.items()]
            services: list[ServiceProcess] = []

            async def start(name: str, *arguments: str, to: list[ServiceProcess] = services) -> str:
                service = ServiceProcess(name, f"evalrun_{name}", arguments, Path(directory) / f"{name}.log")
                to.append(service)
                await service.start()
                return service.address

            try:
                sandbox = await start("sandbox")
                judge = await start("judge", "--sandbox", sandbox, "--cache-mib", "0", *flags)
                url = await start("reward", "--judge", judge, *flags)
                jobs = await storm(url, calls, cpu_ms)
            finally:
                for service in reversed(services):
                    await service.stop(5)
            found = shares_while_both_waited(jobs)
            total = sum(weights.get(run, 1.0) for run in jobs)
            for run, job in jobs.items():
                declared = weights.get(run, 1.0) / total
                failed += job.lost + job.wrong + (abs(found[run] - declared) > MAX_DEVIATION * declared)
                print(
                    f"{', '.join(f'{k}={v:g}' for k, v in weights.items()) or 'none':<14} {run:<6} {len(job.ended):>7} "
                    f"{job.lost:>5} {job.wrong:>6} {found[run]:>7.3f} {declared:>9.3f} {job.p99:>7.1f} "
                    f"{job.ended[-1] - job.started:>7.1f}",
                    flush=True,
                )
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=45000)
    parser.add_argument("--cpu-ms", type=float, default=5.0)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.job:
        print(json.dumps(ask(told.url, told.job, told.calls, told.cpu_ms)))
        return 0
    return asyncio.run(measure(told.calls, told.cpu_ms))


if __name__ == "__main__":
    sys.exit(main())
