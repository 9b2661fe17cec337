"""CPU that a sparse reward's stop at the first failure saves, beside running every test of the same answers.

    .venv/bin/python benchmarks/early_stops.py [--answers 60] [--tests 20 200] [--wrong 0 0.5 0.9] [--cpu-ms 0]

Built answers, each another program, in one stream to a gateway with one sandbox; the verdict cache is off. Of the wrong
ones each third fails every test, every second test, or one test in ten. Both ways judge the same answers in turn.
Printed is the CPU time of the gateway and of the sandbox with all that it starts. --cpu-ms burns so much in each test.
Exits with 1 if the two ways differ about an answer, or one is wrong about it.
"""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import argparse
import asyncio
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from gateway_overhead import cpu_of_all
from judge_humaneval import until_ready

from evalrun_cli.local.processes import ServiceProcess
from evalrun_executor.cpus import usable_cpus
from evalrun_proto.judge.v1 import judge_pb2, judge_pb2_grpc
from evalrun_runtime.connections.grpc_channel import open_channel
from evalrun_runtime.service_environment import SERVICE_ENVIRONMENT

WRONG_EACH = (1, 2, 10)
"""A wrong program fails for each multiple of one of these numbers."""
IN_FLIGHT = 4


@dataclass(frozen=True)
class Group:
    """Requests with answers, and whether each answer is right."""

    requests: Sequence[judge_pb2.JudgeRequest]
    right: Sequence[bool]


def make_request(number: int, tests: int, each: int, cpu_ms: float) -> judge_pb2.JudgeRequest:
    """Return a request whose answer is wrong for each multiple of `each`, or right if `each` is 0."""
    burn = f"import time\nend = time.process_time() + {cpu_ms / 1000}\nwhile time.process_time() < end: pass\n"
    fault = f" - (n % {each} == 0)" if each else ""
    program = f"{burn if cpu_ms else ''}# {number}\nn = int(input())\nprint(n * n{fault})\n"
    made = judge_pb2.JudgeRequest(
        request_id=str(number), submission=judge_pb2.Submission(text=f"```python\n{program}```\n")
    )
    for n in range(1, tests + 1):
        made.stdio.tests.add(input=f"{n}\n", expected_output=f"{n * n}\n")
    return made


def make_group(answers: int, tests: int, wrong: float, cpu_ms: float) -> Group:
    """Return answers of which the share `wrong` is wrong, spread evenly."""
    requests, right, taken = [], [], 0
    for number in range(answers):
        is_wrong = int((number + 1) * wrong) > taken
        each = WRONG_EACH[taken % len(WRONG_EACH)] if is_wrong else 0
        taken += is_wrong
        requests.append(make_request(number, tests, each, cpu_ms))
        right.append(not is_wrong)
    return Group(requests, right)


async def judge(address: str, group: Group, *, stop: bool) -> tuple[list[bool], int]:
    """Return whether each answer was accepted, and how many tests ran."""
    accepted, ran = [False] * len(group.requests), 0
    waiting = []
    for request in group.requests:
        asked = judge_pb2.JudgeRequest()
        asked.CopyFrom(request)
        asked.stop_at_failure = stop
        waiting.append(asked)
    waiting.reverse()
    async with open_channel(address) as channel:
        stream = judge_pb2_grpc.JudgeServiceStub(channel).JudgeStream()
        for _ in range(min(IN_FLIGHT, len(waiting))):
            await stream.write(judge_pb2.JudgeStreamRequest(request=waiting.pop()))
        for _ in group.requests:
            answer = await stream.read()
            if not isinstance(answer, judge_pb2.JudgeStreamResponse) or not answer.verdict.judged:
                raise SystemExit(f"no verdict: {answer}")
            accepted[int(answer.request_id)] = answer.verdict.accepted
            ran += len(answer.verdict.tests)
            if waiting:
                await stream.write(judge_pb2.JudgeStreamRequest(request=waiting.pop()))
        await stream.done_writing()
    return accepted, ran


async def measure(answers: int, tests: Sequence[int], wrong: Sequence[float], cpu_ms: float) -> int:
    failed = 0
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        async def start(name: str, *arguments: str) -> ServiceProcess:
            process = ServiceProcess(name, f"evalrun_{name}", arguments, directory / f"{name}.log")
            stack.push_async_callback(process.stop, 5)
            await process.start()
            return process

        sandbox = await start("sandbox")
        gateway = await start("judge", "--sandbox", sandbox.address, "--cache-mib", "0")
        async with open_channel(gateway.address) as channel:
            await until_ready(judge_pb2_grpc.JudgeServiceStub(channel))
        await judge(gateway.address, make_group(8, 20, 0.5, 0.0), stop=True)
        print(
            f"{usable_cpus()} CPUs, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}; "
            f"{answers} answers, {cpu_ms:g} ms burnt in each test"
        )
        print("tests  wrong   tests run: all  stopped   CPU s: all  stopped  stopped / all   sandbox  gateway")
        for count in tests:
            for share in wrong:
                group = make_group(answers, count, share, cpu_ms)
                spent: dict[bool, list[float]] = {}
                ran: dict[bool, int] = {}
                for stop in (False, True):
                    before = [cpu_of_all(each.pid or 0) for each in (sandbox, gateway)]
                    accepted, ran[stop] = await judge(gateway.address, group, stop=stop)
                    after = [cpu_of_all(each.pid or 0) for each in (sandbox, gateway)]
                    spent[stop] = [end - begin for begin, end in zip(before, after, strict=True)]
                    failed += accepted != list(group.right)
                whole, stopped = sum(spent[False]), sum(spent[True])
                parts = (new / old for old, new in zip(spent[False], spent[True], strict=True))
                print(
                    f"{count:5}  {share:5.0%}  {ran[False]:15,}  {ran[True]:7,}  {whole:11.2f}  {stopped:7.2f}  "
                    f"{stopped / whole:13.2f}  {next(parts):8.2f} {next(parts):8.2f}",
                    flush=True,
                )
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=60)
    parser.add_argument("--tests", type=int, nargs="+", default=[20, 200])
    parser.add_argument("--wrong", type=float, nargs="+", default=[0.0, 0.5, 0.9])
    parser.add_argument("--cpu-ms", type=float, default=0.0)
    told = parser.parse_args()
    # gRPC reads these variables when it is imported, so the program starts itself again with them.
    if not SERVICE_ENVIRONMENT.keys() <= os.environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**SERVICE_ENVIRONMENT, **os.environ})
    return asyncio.run(measure(told.answers, told.tests, told.wrong, told.cpu_ms))


if __name__ == "__main__":
    sys.exit(main())
