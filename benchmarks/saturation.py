"""Which part between ledger and sandbox is full first, and at what rate: one aggregator, one gateway, one sandbox.

    .venv/bin/python benchmarks/saturation.py [--rate 1000] [--seconds 60] [--samples 60000]

Programs of one input, every third wrong, no two alike. First completions come at a steady rate, as a generator's do:
printed are, four times in between, the answers that wait for their verdict and the memory of aggregator and gateway.
Then all of them come as fast as the aggregator takes them. Printed for each part are its CPU time a verdict and the
rate at which it would fill what it can use: one core, for a process with one event loop, and every core for the
programs with what starts and watches them. Parts share the cores, so the rates are bounds. The verdict cache is off.
"""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from aggregator_growth import write_order
from gateway_overhead import cpu_of_all, cpu_seconds

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from builders.judge.load import peak_and_current_mib

from evalrun_cli.local.processes import ServiceProcess
from evalrun_executor.cpus import usable_cpus
from evalrun_generator.ledger.ledger_client import GrpcLedger
from evalrun_proto.ledger.v1 import ledger_pb2, ledger_pb2_grpc
from evalrun_runtime.connections.grpc_channel import open_channel
from evalrun_runtime.service_environment import SERVICE_ENVIRONMENT

WRONG_EVERY = 3
BATCH = 64
STEP_SECONDS = 0.05
PROGRAM = """Here:
```python
# {number}
values = list(map(int, input().split()))
print(*sorted(values, reverse={wrong}))
```
"""


@dataclass(frozen=True)
class Parts:
    """The processes under load."""

    aggregator: ServiceProcess
    judge: ServiceProcess
    sandbox: ServiceProcess

    def cpu(self) -> dict[str, float]:
        service = cpu_seconds(self.sandbox)
        return {
            "aggregator": cpu_seconds(self.aggregator),
            "gateway": cpu_seconds(self.judge),
            "sandbox's HTTP server": service,
            "programs": cpu_of_all(self.sandbox.pid or 0) - service,
        }

    def memory(self) -> str:
        held = (peak_and_current_mib(one.pid)[1] for one in (self.aggregator, self.judge))
        return "aggregator {:.0f} MiB, gateway {:.0f} MiB".format(*held)


class Run:
    """A run's ledger, from a worker's side."""

    def __init__(self, channel: grpc.aio.Channel, address: str, samples: int) -> None:
        self.samples = samples
        self.handed_in = 0
        self._stub: ledger_pb2_grpc.LedgerServiceAsyncStub = ledger_pb2_grpc.LedgerServiceStub(channel)
        self._ledger = GrpcLedger(
            channel, address=address, worker_id="w", tokens=None, start_seconds=60, away_seconds=60,
            rng=random.Random(1),
        )  # fmt: skip

    async def when(self, reached: Callable[[ledger_pb2.DatasetStatus], bool]) -> ledger_pb2.DatasetStatus:
        while True:
            status = (await self._stub.GetStatus(ledger_pb2.GetStatusRequest())).datasets[0]
            if reached(status):
                return status
            await asyncio.sleep(STEP_SECONDS)

    async def hand_in(self, per_second: float | None) -> None:
        """Submit completions for all work, at a steady rate; None: as fast as possible."""
        began = time.perf_counter()
        while self.handed_in < self.samples:
            due = BATCH if per_second is None else int((time.perf_counter() - began) * per_second) - self.handed_in
            if due > 0 and (taken := await self._ledger.get_work(min(due, BATCH), fresh=False)).items:
                await self._ledger.submit([self._completion(item.key) for item in taken.items])
            else:
                await asyncio.sleep(STEP_SECONDS)

    def _completion(self, key: ledger_pb2.WorkKey) -> ledger_pb2.Completion:
        number, self.handed_in = self.handed_in, self.handed_in + 1
        return ledger_pb2.Completion(
            key=key, text=PROGRAM.format(number=number, wrong=number % WRONG_EVERY == 0), finish_reason="stop",
            prompt_tokens=120, output_tokens=40, generation_seconds=1.0, started_at=1e9, replica="r", model="m",
            attempts=1,
        )  # fmt: skip

    async def judged(self) -> ledger_pb2.DatasetStatus:
        """Wait for the last verdict, and check the numbers of verdicts. Return the dataset's status."""
        status = await self.when(lambda seen: seen.judged + seen.not_judged >= self.samples)
        right = self.samples - -(-self.samples // WRONG_EVERY)
        if status.not_judged or status.accepted != right:
            raise SystemExit(f"{status.accepted} accepted instead of {right}, {status.not_judged} not judged")
        return status


@asynccontextmanager
async def started(samples: int) -> AsyncIterator[tuple[Parts, Run]]:
    """Start aggregator, gateway and sandbox, with a run configuration for this number of samples."""
    directory = Path(tempfile.mkdtemp(prefix="saturation-"))
    processes: list[ServiceProcess] = []

    async def start(name: str, *arguments: str) -> ServiceProcess:
        process = ServiceProcess(name, f"evalrun_{name}", arguments, directory / f"{name}.log")
        processes.append(process)
        await process.start()
        return process

    try:
        sandbox = await start("sandbox")
        judge = await start("judge", "--sandbox", sandbox.address, "--cache-mib", "0")
        order = ["--work-order", str(write_order(directory, samples)), "--ledger", str(directory / "ledger.db")]
        in_flight = ["--judge-in-flight", str(max(64, 4 * usable_cpus()))]
        aggregator = await start("aggregator", *order, "--judge", judge.address, *in_flight)
        async with open_channel(aggregator.address) as channel:
            yield Parts(aggregator, judge, sandbox), Run(channel, aggregator.address, samples)
    finally:
        for process in reversed(processes):
            await process.stop(5)


async def steadily(per_second: float, seconds: float) -> None:
    """Print the waiting answers and the memory while completions come at a steady rate."""
    # Each of the 1,000 problems gets the same number of samples.
    samples = int(per_second * seconds) // 1000 * 1000
    async with started(samples) as (parts, run):
        print(f"{per_second:.0f} completions/s for {samples / per_second:.0f} s")
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            group.create_task(run.hand_in(per_second))
            for quarter in range(1, 5):
                status = await run.when(lambda seen: seen.generated >= samples * quarter // 4)  # noqa: B023 - awaited at once
                waiting = status.generated - status.judged
                at = time.perf_counter() - began
                print(f"  after {at:5.1f} s: {status.judged:7,} verdicts, {waiting:5,} wait; {parts.memory()}")
        await run.judged()
        took = time.perf_counter() - began
        print(f"  last verdict after {took:.1f} s: {samples / took:.0f} verdicts/s, 0 wrong", flush=True)


async def flat_out(samples: int) -> None:
    """Print the rate and each part's CPU time while completions come as fast as they are taken."""
    async with started(samples) as (parts, run):
        before, began = parts.cpu(), time.perf_counter()
        handing_in = asyncio.create_task(run.hand_in(None))
        await run.judged()
        took, after = time.perf_counter() - began, parts.cpu()
        await handing_in
        print(f"{samples:,} completions as fast as they are taken: {samples / took:.0f} verdicts/s, 0 wrong; ", end="")
        print(parts.memory())
        print(f"  {'part':<16} {'ms of CPU a verdict':>20} {'cores in use':>13} {'full at, verdicts/s':>20}")
        for part, used in after.items():
            each = (used - before[part]) / samples
            cores = usable_cpus() if part == "programs" else 1
            print(f"  {part:<16} {1000 * each:>20.2f} {each * samples / took:>13.2f} {cores / each:>20,.0f}")
        sys.stdout.flush()


async def measure(per_second: float, seconds: float, samples: int, rounds: int) -> None:
    print(f"{usable_cpus()} CPUs, load {os.getloadavg()[0]:.1f}")
    for _ in range(rounds):
        await flat_out(samples)
    await steadily(per_second, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=1000, help="completions a second")
    parser.add_argument("--seconds", type=float, default=60, help="for so long")
    parser.add_argument("--samples", type=int, default=30_000, help="as fast as they are taken; a multiple of 1,000")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    # gRPC reads these variables when it is imported, so the program starts itself again with them.
    if not SERVICE_ENVIRONMENT.keys() <= os.environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**SERVICE_ENVIRONMENT, **os.environ})
    asyncio.run(measure(given.rate, given.seconds, given.samples, given.rounds))


if __name__ == "__main__":
    main()
