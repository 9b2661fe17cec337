"""2,000 verdicts at 1, 16, 64 and 256 in flight; then 64 right programs of 0.4 CPU seconds at once with a limit of 2 s.

    .venv/bin/python benchmarks/judge_load.py [--verdicts 2000] [--programs 64]

Aims: the same verdicts at each, a queue within its bound, the gateway's memory flat, and none of the 64 late (stock
SandboxFusion, alone, on 2 cores: all of 24 such programs wrong). A sandbox of as many slots as CPUs; right, wrong,
crashing and broken programs in equal parts, stdin/stdout and function tests. The verdict cache is off.
"""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from builders.judge.load import (
    KINDS,
    busy_request,
    finals,
    load,
    peak_and_current_mib,
    watched,
)
from builders.judge.services import judge_all, services
from builders.ports import free_port

from evalrun_proto.judge.v1 import judge_pb2

QUEUE = 128


async def measure(verdicts: int, programs: int) -> bool:
    requests, right = load(-(-verdicts // KINDS))
    port = free_port()
    good = True
    with tempfile.TemporaryDirectory() as directory:
        flags = ["--metrics-port", str(port), "--queue-limit", str(QUEUE)]
        async with services(Path(directory), judge_arguments=flags) as (judge, _):
            print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {len(requests)} verdicts, queue {QUEUE}")
            print("in flight   verdicts/s   wrong   most inside   gateway MiB (peak)")
            await judge_all(judge.address, dict([*requests.items()][:KINDS]))
            for in_flight in (1, 16, 64, 256):
                started = time.perf_counter()
                async with watched(port, 0.2) as watch:
                    found = finals(await judge_all(judge.address, requests, in_flight=in_flight))
                seconds = time.perf_counter() - started
                wrong = sum(found[name] != right[name] for name in right)
                peak, current = peak_and_current_mib(judge.pid)
                # The two gauges are read one after the other, so their sum may exceed the bound by a little.
                good &= wrong == 0 and watch.max_inside <= QUEUE + (os.cpu_count() or 1) + 2
                print(
                    f"{in_flight:9d}   {len(requests) / seconds:10.0f}   {wrong:5d}   {watch.max_inside:11.0f}   "
                    f"{current:.0f} ({peak:.0f})",
                    flush=True,
                )
            busy = {str(number): busy_request(0.4, limit_seconds=2.0) for number in range(programs)}
            started = time.perf_counter()
            answers = await judge_all(judge.address, busy, in_flight=programs)
            late = sum(answer.final_status == judge_pb2.FINAL_STATUS_TIMEOUT for answer in answers.values())
            accepted = sum(answer.accepted for answer in answers.values())
            good &= accepted == programs
            print(
                f"{programs} right programs of 0.4 CPU s, limit 2 s, at once: {accepted} accepted, {late} timed out, "
                f"{time.perf_counter() - started:.1f} s"
            )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verdicts", type=int, default=2000)
    parser.add_argument("--programs", type=int, default=64)
    arguments = parser.parse_args()
    return 0 if asyncio.run(measure(arguments.verdicts, arguments.programs)) else 1


if __name__ == "__main__":
    sys.exit(main())
