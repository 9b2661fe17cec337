"""Contest programs: how much of the machine goes into the programs themselves.

    .venv/bin/python benchmarks/contests.py [--programs 40]

Judges contest submissions (Python, C and C++, right and wrong, all their tests) and sets the CPU seconds
of the programs' own tests against what the cores could give in that time: the physical limit. What is missing to 1 is
compiling, forking, containing, comparing and waiting. Programs that time out are left out: they only burn their limit.
Data: EVALRUN_TEST_DATA, or ../shared/data.
"""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import argparse
import asyncio
import gzip
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from judge_humaneval import until_ready

from evalrun_cli.local.processes import ServiceProcess
from evalrun_proto.judge.v1 import judge_pb2, judge_pb2_grpc
from evalrun_runtime.connections.grpc_channel import open_channel

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("EVALRUN_TEST_DATA", ROOT.parent / "shared" / "data")) / "contests" / "problems.jsonl.gz"
LANGUAGES = {"python": "python", "python3": "python", "py": "python", "c": "c", "cpp": "cpp", "c++": "cpp"}


def requests(most: int) -> Iterator[judge_pb2.JudgeRequest]:
    """Yield one program of each problem in turn, until there are `most`."""
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        problems = [json.loads(line) for line in lines]
    made = 0
    for turn in range(max(len(problem["submissions"]) for problem in problems)):
        for problem in problems:
            if turn >= len(problem["submissions"]) or made >= most:
                continue
            submission = problem["submissions"][turn]
            if submission["expected"] == "time_limit_exceeded":
                continue
            made += 1
            yield judge_pb2.JudgeRequest(
                request_id=f"{problem['id']}:{submission['name']}",
                submission=judge_pb2.Submission(
                    text=submission["code"],
                    mode=judge_pb2.SUBMISSION_MODE_STANDALONE,
                    language=LANGUAGES[submission["lang"].lower()],
                ),
                stdio=judge_pb2.StdioTests(
                    tests=[
                        judge_pb2.StdioTest(input=test["input"], expected_output=test["output"])
                        for test in problem["tests"]
                    ]
                ),
                limits=judge_pb2.Limits(time_seconds=float(problem["our_tl"])),
            )


async def measure(most: int, in_flight: int) -> None:
    asked = list(requests(most))
    with tempfile.TemporaryDirectory() as name:
        sandbox = ServiceProcess("sandbox", "evalrun_sandbox", [], Path(name) / "sandbox.log")
        await sandbox.start()
        judge = ServiceProcess("judge", "evalrun_judge", ["--sandbox", sandbox.address], Path(name) / "judge.log")
        await judge.start()
        load = os.getloadavg()[0]
        try:
            async with open_channel(judge.address) as channel:
                stub: judge_pb2_grpc.JudgeServiceAsyncStub = judge_pb2_grpc.JudgeServiceStub(channel)
                await until_ready(stub)
                gate = asyncio.Semaphore(in_flight)

                async def one(request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict:
                    async with gate:
                        return (await stub.Judge(request)).verdict

                started = time.perf_counter()
                verdicts = await asyncio.gather(*map(one, asked))
                seconds = time.perf_counter() - started
        finally:
            await judge.stop(5)
            await sandbox.stop(5)
    tests = [test for verdict in verdicts for test in verdict.tests if test.ran]
    cpu = sum(test.cpu_time for test in tests)
    cores = len(os.sched_getaffinity(0))
    accepted = sum(verdict.accepted for verdict in verdicts)
    print(f"{cores} CPUs, load {load:.1f}: {len(verdicts)} programs ({accepted} accepted), {len(tests)} tests")
    print(f"{seconds:.1f} s wall, {len(tests) / seconds:.0f} tests/s; the programs' own CPU {cpu:.1f} s")
    print(f"share of the cores that went into the programs: {cpu / (seconds * cores):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=40)
    parser.add_argument("--in-flight", type=int, default=16)
    arguments = parser.parse_args()
    if not DATA.exists():
        raise SystemExit(f"{DATA} is not here: set EVALRUN_TEST_DATA")
    asyncio.run(measure(arguments.programs, arguments.in_flight))


if __name__ == "__main__":
    main()
