"""What the gateway costs: its own CPU a request, and the throughput of a sandbox with and without it in front.

    .venv/bin/python benchmarks/gateway_overhead.py [--rounds 15] [--requests 1000]

Rounds alternate between the sandbox called directly, with the very requests that the gateway would send, and the same
programs through the gateway; both by one client process over one connection. The sandbox's slots are the machine's
CPUs, which gateway and client share with it. Aim: at most 1 ms of the gateway's own CPU a request, and at most 10 % of
the throughput. The verdict cache is off. A third in the rounds is a gateway that only passes on, with the libraries of
ours (`pass_on_gateway.py`): the least that a gateway in Python takes here. On a machine with other work compare the CPU
of all processes a request, which that disturbs less than the throughput.

Then a suite of 8 MB: with each answer, by digest to the gateway only, and by digest to the sandbox too.
"""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import argparse
import asyncio
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from judge_humaneval import until_ready

from evalrun_cli.local.processes import ServiceProcess
from evalrun_executor.cpus import usable_cpus
from evalrun_judge.families.stdio import plan_stdio
from evalrun_judge.rpc.messages import request_from
from evalrun_judge.sandboxes import SandboxBusyError
from evalrun_judge.sandboxes.evalrun_http import EvalrunSandbox
from evalrun_judge.submission import StdioTest, StdioTests, extract_program
from evalrun_proto.judge.v1 import judge_pb2, judge_pb2_grpc
from evalrun_runtime.connections.grpc_channel import open_channel
from evalrun_runtime.connections.tls_files import TlsSource
from evalrun_runtime.service_environment import SERVICE_ENVIRONMENT

PROGRAM = "n = int(input())\nprint(sum(map(int, input().split())) % 1000007, {number})\n"


def request(tests: int, number: int) -> judge_pb2.JudgeRequest:
    wanted = judge_pb2.JudgeRequest(
        request_id=str(number),
        submission=judge_pb2.Submission(text=f"Here:\n```python\n{PROGRAM.format(number=number)}```\n"),
    )
    for size in range(100, 100 + tests):
        values = [i * 7919 % 101 for i in range(size)]
        wanted.stdio.tests.add(
            input=f"{size}\n{' '.join(map(str, values))}\n", expected_output=f"{sum(values) % 1000007} {number}\n"
        )
    return wanted


def cpu_seconds(process: ServiceProcess) -> float:
    """Return the CPU seconds of a process so far, without those of its children."""
    pid = process.pid or 0
    # The number names the CPU clock of another process: linux/posix-timers.h, MAKE_PROCESS_CPUCLOCK.
    return time.clock_gettime((~pid << 3) | 2)


def cpu_of_all(pid: int) -> float:
    """Return the CPU seconds of a process and its descendants, including descendants that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        # A program's process may have ended since its parent named it.
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + sum(map(cpu_of_all, map(int, children)))


async def directly(url: str, requests: list[judge_pb2.JudgeRequest], in_flight: int) -> None:
    asked = [request_from(one) for one in requests]
    waiting = [
        plan_stdio(one, one.tests, extract_program(one.submission)).run
        for one in asked
        if isinstance(one.tests, StdioTests)
    ]

    async def work(sandbox: EvalrunSandbox) -> None:
        while waiting:
            run = waiting.pop()
            while True:
                try:
                    reply = await sandbox.run(run)
                    break
                except SandboxBusyError as busy:
                    await asyncio.sleep(busy.retry_after_seconds)
            if any(one.exit_code != 0 for one in reply.runs):
                raise SystemExit("a program failed")

    async with EvalrunSandbox(url) as sandbox, asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(work(sandbox))


async def through(
    address: str, requests: list[judge_pb2.JudgeRequest], in_flight: int, tls: TlsSource | None = None
) -> None:
    async with open_channel(address, tls) as channel:
        stream = judge_pb2_grpc.JudgeServiceStub(channel).JudgeStream()
        waiting = list(requests)
        for _ in range(min(in_flight, len(waiting))):
            await stream.write(judge_pb2.JudgeStreamRequest(request=waiting.pop()))
        for _ in requests:
            answer = await stream.read()
            if not isinstance(answer, judge_pb2.JudgeStreamResponse) or not answer.verdict.accepted:
                raise SystemExit(f"not accepted: {answer}")
            if waiting:
                await stream.write(judge_pb2.JudgeStreamRequest(request=waiting.pop()))
        await stream.done_writing()


async def rate(count: int, work: Callable[[], Awaitable[None]]) -> float:
    started = time.perf_counter()
    await work()
    return count / (time.perf_counter() - started)


async def large_suite(judges: dict[str, tuple[ServiceProcess, ServiceProcess]], count: int) -> None:
    """Measure the same tests of 8 MB when they are sent with each answer, and when a digest names them."""
    whole = [request(1, number) for number in range(count)]
    for one in whole:
        one.stdio.tests[0].input += " " * (8 << 20)
    for one in whole:
        one.stdio.tests[0].expected_output = whole[0].stdio.tests[0].expected_output
        one.submission.text = whole[0].submission.text
    digest = StdioTests([StdioTest(one.input, one.expected_output) for one in whole[0].stdio.tests]).digest
    first = judge_pb2.JudgeRequest(suite_digest=digest)
    first.MergeFrom(whole[0])
    named = []
    for one in whole:
        named.append(judge_pb2.JudgeRequest(request_id=one.request_id, suite_digest=digest))
        named[-1].submission.CopyFrom(one.submission)
    for how, (sandbox, judge) in judges.items():
        requests = named if "digest" in how else whole
        await through(judge.address, [first], 1)
        before, started = (cpu_seconds(judge), cpu_seconds(sandbox)), time.perf_counter()
        await through(judge.address, requests, 2)
        seconds = time.perf_counter() - started
        ours, theirs = ((cpu_seconds(one) - then) / count for one, then in zip((judge, sandbox), before, strict=True))
        sent = sum(one.ByteSize() for one in requests) / 2**20
        print(
            f"tests of 8 MB {how}: {sent:.1f} MiB to the gateway for {count} answers, {1000 * ours:.1f} ms of its CPU "
            f"an answer, {1000 * theirs:.1f} ms of the sandbox's HTTP server; {seconds:.1f} s in all"
        )


async def measure(rounds: int, count: int, in_flight: int) -> None:
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        async def start(module: str, *arguments: str) -> ServiceProcess:
            # The directory holds `pass_on_gateway`.
            here = {"PYTHONPATH": str(Path(__file__).parent)}
            process = ServiceProcess(module, module, arguments, directory / f"{module}.log", here)
            stack.push_async_callback(process.stop, 5)
            await process.start()
            return process

        sandbox = await start("evalrun_sandbox")
        judge = await start("evalrun_judge", "--sandbox", sandbox.address, "--cache-mib", "0")
        least = await start("pass_on_gateway", "--sandbox", sandbox.address)
        async with open_channel(judge.address) as channel:
            await until_ready(judge_pb2_grpc.JudgeServiceStub(channel))
        print(
            f"{usable_cpus()} CPUs, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}, "
            f"{in_flight} in flight, {rounds} rounds"
        )
        for tests in (1, 20):
            requests = [request(tests, number) for number in range(max(20, count // tests))]
            for gateway in (judge, least):
                await through(gateway.address, requests[:20], in_flight)
            direct, ours, passing, cpu, floor, every = [], [], [], [], [], []
            for _ in range(rounds):
                start_all = cpu_of_all(os.getpid())
                direct.append(await rate(len(requests), lambda: directly(sandbox.address, requests, in_flight)))  # noqa: B023 - awaited at once
                between_all, before = cpu_of_all(os.getpid()), cpu_seconds(judge)
                ours.append(await rate(len(requests), lambda: through(judge.address, requests, in_flight)))  # noqa: B023 - awaited at once
                cpu.append((cpu_seconds(judge) - before) / len(requests))
                every.append((cpu_of_all(os.getpid()) - between_all) / (between_all - start_all))
                before = cpu_seconds(least)
                passing.append(await rate(len(requests), lambda: through(least.address, requests, in_flight)))  # noqa: B023 - awaited at once
                floor.append((cpu_seconds(least) - before) / len(requests))
            lost, min_lost = (
                1 - statistics.median(one / other for one, other in zip(rates, direct, strict=True))
                for rates in (ours, passing)
            )
            print(
                f"{tests:2d} tests a request: gateway {1000 * statistics.median(cpu):.2f} ms of CPU a request, one "
                f"that only passes on {1000 * statistics.median(floor):.2f}; "
                f"{statistics.median(direct):.0f} requests/s directly, {statistics.median(ours):.0f} through it: "
                f"{lost:.1%} lost, passing on {min_lost:.1%}; CPU of all processes {statistics.median(every):.2f} x"
            )
        forgetful = await start("evalrun_sandbox", "--keep-mib", "0")
        before_it = await start("evalrun_judge", "--sandbox", forgetful.address, "--cache-mib", "0")
        async with open_channel(before_it.address) as channel:
            await until_ready(judge_pb2_grpc.JudgeServiceStub(channel))
        behind = {
            "sent with each answer": (forgetful, before_it),
            "by digest to the gateway": (forgetful, before_it),
            "by digest to gateway and sandbox": (sandbox, judge),
        }
        await large_suite(behind, min(20, count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--in-flight", type=int, default=8)
    arguments = parser.parse_args()
    # gRPC reads these variables when it is imported, so the program starts itself again with them.
    if not SERVICE_ENVIRONMENT.keys() <= os.environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**SERVICE_ENVIRONMENT, **os.environ})
    asyncio.run(measure(arguments.rounds, arguments.requests, arguments.in_flight))


if __name__ == "__main__":
    main()
