"""What mutual TLS costs the judge: throughput and CPU with it and in plain text, in one run.

    .venv/bin/python benchmarks/tls_overhead.py [--rounds 15] [--requests 500]

Two pairs of gateway and sandbox, one in plain text and one with mutual TLS on both hops, judge the same requests in
turn, asked by one client process over one new connection a round: so a handshake is in each. The verdict cache is off.
On a machine with other work compare the CPU of all processes a request, which that disturbs less than the throughput.
"""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from gateway_overhead import cpu_of_all, rate, request, through
from judge_humaneval import until_ready

from evalrun_cli.local.processes import ServiceProcess
from evalrun_executor.cpus import usable_cpus
from evalrun_proto.judge.v1 import judge_pb2_grpc
from evalrun_runtime.connections.grpc_channel import open_channel
from evalrun_runtime.connections.tls_files import TlsFiles
from evalrun_runtime.service_environment import SERVICE_ENVIRONMENT

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from builders.tls_directories import TlsDirectory, authority


async def measure(rounds: int, count: int, in_flight: int) -> None:
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        identity = TlsDirectory(directory / "tls").write("gateway", authority())

        async def start(module: str, name: str, *arguments: str) -> ServiceProcess:
            process = ServiceProcess(name, module, arguments, directory / f"{name}.log")
            stack.push_async_callback(process.stop, 5)
            await process.start()
            return process

        judges: dict[str, tuple[str, TlsFiles | None]] = {}
        for how in ("plain", "tls"):
            served = [] if how == "plain" else [f"--tls-folder={identity}"]
            called = [] if how == "plain" else [f"--sandbox-tls-folder={identity}"]
            sandbox = await start("evalrun_sandbox", f"sandbox-{how}", *served)
            where = ["--sandbox", sandbox.address, "--cache-mib", "0"]
            judge = await start("evalrun_judge", f"judge-{how}", *where, *served, *called)
            judges[how] = judge.address, TlsFiles.load(identity if served else None)
            async with open_channel(*judges[how]) as channel:
                await until_ready(judge_pb2_grpc.JudgeServiceStub(channel))
        print(f"{usable_cpus()} CPUs, load {os.getloadavg()[0]:.1f}, {in_flight} in flight, {rounds} rounds")
        for tests in (1, 20):
            requests = [request(tests, number) for number in range(max(20, count // tests))]
            rates: dict[str, list[float]] = {how: [] for how in judges}
            cpu: dict[str, list[float]] = {how: [] for how in judges}
            for _ in range(rounds):
                for how, (address, tls) in judges.items():
                    before = cpu_of_all(os.getpid())
                    rates[how].append(
                        await rate(len(requests), lambda: through(address, requests, in_flight, tls))  # noqa: B023 - awaited at once
                    )
                    cpu[how].append((cpu_of_all(os.getpid()) - before) / len(requests))
            for how in judges:
                print(
                    f"{tests:2d} tests a request, {how:5s}: {statistics.median(rates[how]):.0f} requests/s, "
                    f"{1000 * statistics.median(cpu[how]):.2f} ms of CPU of all processes a request"
                )
            speed, work = (
                statistics.median(one / other for one, other in zip(kind["tls"], kind["plain"], strict=True))
                for kind in (rates, cpu)
            )
            print(f"{tests:2d} tests a request, with TLS / plain: throughput {speed:.3f} x, CPU {work:.3f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--in-flight", type=int, default=8)
    arguments = parser.parse_args()
    # gRPC reads these variables when it is imported, so the program starts itself again with them.
    if not SERVICE_ENVIRONMENT.keys() <= os.environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**SERVICE_ENVIRONMENT, **os.environ})
    asyncio.run(measure(arguments.rounds, arguments.requests, arguments.in_flight))


if __name__ == "__main__":
    main()
