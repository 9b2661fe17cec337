"""Programs of one input each, as rewards and tools send them: all at once, and at a steady rate.

    .venv/bin/python benchmarks/single_calls.py [--calls 45000] [--seconds 20] [--rounds 3]

All at once: every call is a task of its own, which asks again when the gateway says that it is full. Printed are the
time, the rate beside that of 8 calls in flight, calls without a verdict or with a wrong one, and the gateway's memory.
At a steady rate: calls leave at 80 % of the rate of 8 in flight, whether the earlier ones were answered or not; printed
is how long an answer took, beside a gateway that only passes on (`pass_on_gateway.py`) at the same rate.

Aims: 45,000 at once without a lost or wrong one and within bounded memory, in 25 s on 16 cores; at the steady rate 99 %
of the answers within 50 ms. The verdict cache is off; every third program crashes.
"""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from gateway_overhead import request, through
from judge_humaneval import until_ready

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from builders.judge.load import peak_and_current_mib

from evalrun_cli.local.processes import ServiceProcess
from evalrun_client.judge_client import GrpcJudge
from evalrun_executor.cpus import usable_cpus
from evalrun_proto.judge.v1 import judge_pb2, judge_pb2_grpc
from evalrun_runtime.connections.grpc_channel import open_channel
from evalrun_runtime.service_environment import SERVICE_ENVIRONMENT

STEADY_SHARE = 0.8
WRONG_EVERY = 3


def requests_of(count: int) -> list[judge_pb2.JudgeRequest]:
    """Return requests of one input each, every third with a program that crashes."""
    all_requests = [request(1, number) for number in range(count)]
    for one in all_requests[::WRONG_EVERY]:
        one.submission.text = one.submission.text.replace("```python\n", "```python\nraise SystemExit(1)\n")
    return all_requests


def is_right(number: int, verdict: judge_pb2.Verdict) -> bool:
    return verdict.accepted == (number % WRONG_EVERY != 0)


async def at_once(address: str, count: int) -> tuple[float, Counter[str]]:
    """Send all calls at once. Return the seconds until the last verdict, and how the calls ended."""
    judge = GrpcJudge(address)
    ended: Counter[str] = Counter()

    async def call(number: int, one: judge_pb2.JudgeRequest) -> None:
        while isinstance(answer := await judge.judge(one), judge_pb2.StreamFailure):
            if not answer.retry_after_ms:
                ended[f"lost: {answer.message}"] += 1
                return
            ended["refused for now"] += 1
            await asyncio.sleep(answer.retry_after_ms / 1000)
        ended["right" if answer.judged and is_right(number, answer) else "wrong"] += 1

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, one in enumerate(requests_of(count)):
            group.create_task(call(number, one))
    seconds = time.perf_counter() - started
    await judge.close()
    return seconds, ended


async def steadily(address: str, per_second: float, seconds: float) -> list[float]:
    """Send calls at a steady rate over one stream. Return the seconds from when each call was due to its answer."""
    waiting = requests_of(int(per_second * seconds))
    due: dict[str, float] = {}
    took: list[float] = []
    async with open_channel(address) as channel:
        stream = judge_pb2_grpc.JudgeServiceStub(channel).JudgeStream()

        async def send() -> None:
            started = time.perf_counter()
            for number, one in enumerate(waiting):
                due[one.request_id] = at = started + number / per_second
                await asyncio.sleep(max(0.0, at - time.perf_counter()))
                await stream.write(judge_pb2.JudgeStreamRequest(request=one))
            await stream.done_writing()

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            for _ in waiting:
                answer = await stream.read()
                if not isinstance(answer, judge_pb2.JudgeStreamResponse) or not is_right(
                    int(answer.request_id), answer.verdict
                ):
                    raise SystemExit(f"wrong or lost: {answer}")
                took.append(time.perf_counter() - due[answer.request_id])
    return took


def milliseconds(took: Sequence[float]) -> str:
    hundredths = statistics.quantiles(took, n=100)
    return f"half of the answers within {1000 * hundredths[49]:.1f} ms, 99 % within {1000 * hundredths[98]:.1f}"


async def measure(calls: int, seconds: float, rounds: int) -> None:
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
        passing = await start("pass_on_gateway", "--sandbox", sandbox.address)
        async with open_channel(judge.address) as channel:
            await until_ready(judge_pb2_grpc.JudgeServiceStub(channel))
        print(f"{usable_cpus()} CPUs, load {os.getloadavg()[0]:.1f}")
        right = [request(1, number) for number in range(1000)]
        for gateway in (judge, passing):
            await through(gateway.address, right, 8)
        for number in range(1, rounds + 1):
            started = time.perf_counter()
            await through(judge.address, right, 8)
            rate = len(right) / (time.perf_counter() - started)
            print(f"round {number}: 8 in flight: {rate:.0f} calls/s")
            steady = STEADY_SHARE * rate
            for title, gateway in (("", judge), ("  a gateway that only passes on, ", passing)):
                took = await steadily(gateway.address, steady, seconds)
                print(f"  {title}{steady:.0f} calls/s for {seconds:.0f} s: {milliseconds(took)}")
            _, before = peak_and_current_mib(judge.pid)
            lasted, ended = await at_once(judge.address, calls)
            peak, after = peak_and_current_mib(judge.pid)
            refused = ended.pop("refused for now", 0)
            print(
                f"  {calls} at once: {lasted:.1f} s, {calls / lasted:.0f} calls/s, {calls / lasted / rate:.2f} of 8 in "
                f"flight; {dict(ended)}, {refused / calls:.1f} times refused for now; "
                f"gateway {before:.0f} MiB before, {peak:.0f} at most, {after:.0f} after",
                flush=True,
            )
            if ended != {"right": calls}:
                raise SystemExit("not every call has its verdict")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=45_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    # gRPC reads these variables when it is imported, so the program starts itself again with them.
    if not SERVICE_ENVIRONMENT.keys() <= os.environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**SERVICE_ENVIRONMENT, **os.environ})
    asyncio.run(measure(arguments.calls, arguments.seconds, arguments.rounds))


if __name__ == "__main__":
    main()
