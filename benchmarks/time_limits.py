"""Time limits on a disturbed machine: verdicts of contest programs beside those of the quiet machine.

    .venv/bin/python benchmarks/time_limits.py [--programs 60] [--part 0:1] [--only PART] [--load 12] [--cpus 0.5]

Judges contest programs (right, wrong and too slow ones) three times: undisturbed, beside other processes, and with the
sandbox under a quota of CPU. What is not judged is judged again, as a run does. Prints for each how many verdicts are
as filed, are those of the first time, are not judged, and the most that the machine was slower than at its best; then
each program whose verdict differs. Ends with status 1 if one does. On a machine of many cores, `--part BEGIN:STEP`
divides the programs over several pairs of them: `taskset -c 0,1 ... --part 0:4`. Data: EVALRUN_TEST_DATA, or
../shared/data.
"""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import argparse
import asyncio
import os
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from builders.data import contests_with_submissions
from builders.judge.disturbances import NoQuotaError, load_of, throttled
from builders.judge.services import judge_until_judged, request_of, services, told

from evalrun_executor.cpus import usable_cpus
from evalrun_proto.judge.v1 import judge_pb2, judge_pb2_grpc
from evalrun_runtime.connections.grpc_channel import open_channel

ROOT = Path(__file__).resolve().parents[1]
Verdicts = dict[str, judge_pb2.Verdict]


def programs(most: int, only: str) -> tuple[dict[str, judge_pb2.JudgeRequest], dict[str, bool]]:
    """Return requests, with one program of each problem in turn, and which of them were filed as accepted."""
    problems = [(problem, given) for problem, given in contests_with_submissions()]
    requests: dict[str, judge_pb2.JudgeRequest] = {}
    accepted = {}
    for turn in range(max(len(given) for _, given in problems)):
        for problem, given in problems:
            if turn >= len(given) or len(requests) >= most:
                continue
            name = f"{problem.problem_id}/{turn}/{given[turn]['name']}"
            if only in name:
                requests[name] = request_of(
                    problem, given[turn]["code"], language=given[turn]["lang"], stop_after_timeouts=1
                )
                accepted[name] = given[turn]["expected"] == "accepted"
    return requests, accepted


def short(verdict: judge_pb2.Verdict) -> str:
    if not verdict.judged:
        return "not judged"
    return "accepted" if verdict.accepted else "rejected"


async def judged(
    requests: dict[str, judge_pb2.JudgeRequest], address: str, disturbance: AbstractContextManager[None]
) -> tuple[Verdicts, float, float]:
    """Judge under a disturbance. Return the verdicts, the seconds, and the slowness that the gateway saw so far."""
    began = time.monotonic()
    with disturbance:
        verdicts = await judge_until_judged(address, requests)
    async with open_channel(address) as channel:
        stub: judge_pb2_grpc.JudgeServiceAsyncStub = judge_pb2_grpc.JudgeServiceStub(channel)
        described = await stub.Describe(judge_pb2.DescribeRequest())
    return verdicts, time.monotonic() - began, described.slowness


async def measure(most: int, part: slice, only: str, load: int, cpus: float) -> bool:
    requests, filed = programs(most, only)
    requests = {name: requests[name] for name in [*requests][part]}
    filed = {name: filed[name] for name in requests}
    print(f"{len(requests)} programs, {sum(filed.values())} of them filed as accepted; {usable_cpus()} CPUs")
    print("machine           as filed  as first  not judged  slowness  seconds")
    first: dict[str, str] = {}
    lines: list[str] = []
    equal = True
    for label in ("undisturbed", f"load of {load}", f"{cpus} CPUs"):
        with tempfile.TemporaryDirectory() as directory:
            async with services(Path(directory)) as (judge, (sandbox,)):
                disturbance: AbstractContextManager[None] = nullcontext()
                if label.startswith("load"):
                    disturbance = load_of(load)
                elif first and sandbox.pid is not None:
                    disturbance = throttled(sandbox.pid, cpus)
                try:
                    verdicts, seconds, slowness = await judged(requests, judge.address, disturbance)
                except NoQuotaError as error:
                    print(f"{label:17} {error}")
                    continue
        said = {name: short(verdict) for name, verdict in verdicts.items()}
        first = first or said
        as_filed = sum((said[name] == "accepted") is filed[name] and said[name] != "not judged" for name in said)
        same = sum(said[name] == first[name] for name in said)
        apart = sum(text == "not judged" for text in said.values())
        print(f"{label:17} {as_filed:8}  {same:8}  {apart:10}  {slowness:8.1f}  {seconds:7.0f}", flush=True)
        equal = equal and same == len(said)
        for name, verdict in verdicts.items():
            wanted = "accepted" if filed[name] else "rejected"
            if said[name] != first[name] or said[name] != wanted:
                lines.append(f"{label}: {name}: filed {wanted}, first {first[name]}, now {told(verdict)}")
    print("\n".join(lines))
    return equal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=60)
    parser.add_argument("--part", default="0:1", metavar="BEGIN:STEP", help="only these of them")
    parser.add_argument("--only", default="", help="a part of the names of programs")
    parser.add_argument("--load", type=int, default=12)
    parser.add_argument("--cpus", type=float, default=0.5)
    given = parser.parse_args()
    os.environ.setdefault("EVALRUN_TEST_DATA", str(ROOT.parent / "shared" / "data"))
    begin, step = map(int, given.part.split(":"))
    part = slice(begin, None, step)
    sys.exit(not asyncio.run(measure(given.programs, part, given.only, given.load, given.cpus)))


if __name__ == "__main__":
    main()
