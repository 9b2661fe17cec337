"""How the aggregator's own process grows with a run: the real service, a judge that runs nothing, workers, the outputs.

Completions go in over gRPC, verdicts of some tests come back from a fake judge, outputs are written: every part of the
process is in it, unlike in `ledger_growth.py` and `outputs_growth.py`. Prints for each size items/s until the last
verdict, seconds of writing the outputs, CPU time an item, and the peak memory before and after the outputs.
The limit to stay under is 300 MB at 1,000,000 samples. Figures of one machine: compare sizes, not machines.

    .venv/bin/python benchmarks/aggregator_growth.py [--samples 200000] [--tests 10] [--keep benchmarks/growth.json]
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from growth_plot import keep

from evalrun_client.fake_judge import FakeJudge, FakeJudgeServer
from evalrun_generator.ledger.ledger_client import GrpcLedger
from evalrun_proto.judge.v1 import judge_pb2 as pb
from evalrun_proto.ledger.v1 import ledger_pb2, ledger_pb2_grpc
from evalrun_runtime.connections.grpc_channel import open_channel
from evalrun_runtime.ready_line import parse_ready_line
from evalrun_runtime.service_environment import SERVICE_ENVIRONMENT

LIMIT_MB = 300
PROBLEMS = 1000
BATCH = 512
WORKERS = 4
TEXT = "```python\ndef solve(values):\n    return sorted(values)\n```\n" * 12
"""About 700 bytes: an answer of 200 tokens."""


def judged(tests: int) -> list[pb.Verdict]:
    text = pb.CutText(text="4 8 15 16 23 42\n" * 6, full_length=96)
    made = []
    for accepted in (True, False):
        status = pb.TEST_STATUS_SUCCESS if accepted else pb.TEST_STATUS_WRONG_ANSWER
        records = [
            pb.TestResult(
                case_index=index, status=status, ran=True, input=text, expected_output=text, stdout=text, exit_code=0,
                duration=0.2, cpu_time=0.1,
            )
            for index in range(tests)
        ]  # fmt: skip
        final = pb.FINAL_STATUS_SUCCESS if accepted else pb.FINAL_STATUS_WRONG_ANSWER
        made.append(
            pb.Verdict(
                final_status=final, judged=True, accepted=accepted, pass_ratio=float(accepted), tests=records,
                code=TEXT, extraction=pb.EXTRACTION_METHOD_TAGGED_BLOCK, containment_level="full",
            )
        )  # fmt: skip
    return made


def write_order(directory: Path, samples: int) -> Path:
    """Write the run configuration for this number of samples, over PROBLEMS problems. Return its path."""
    each = samples // PROBLEMS
    rows = [
        {"dataset": "synthetic", "problem_id": f"p{number}", "prompt": "Sort the numbers.\n" * 20,
         "ground_truth": {"inputs": ["3 1 2\n"], "outputs": ["1 2 3\n"]}}
        for number in range(PROBLEMS)
    ]  # fmt: skip
    (directory / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    order = {
        "schema": 1, "run": "growth", "created": "2026-01-01T00:00:00Z", "base_dir": str(directory),
        "output_dir": str(directory / "out"),
        "spec": {
            "model": {"path": "synthetic"}, "endpoints": [{"url": "http://127.0.0.1:1/v1", "model": "m"}],
            "datasets": [{"name": "synthetic", "source": "problems.jsonl"}],
            "protocol": {"name": "EVAL@k", "temperature": "0.8", "samples": each, "k": [1]},
        },
    }  # fmt: skip
    path = directory / "order.json"
    path.write_text(json.dumps(order))
    return path


async def work(ledger: GrpcLedger) -> None:
    """Take items of work and submit their completions at once, until nothing is left."""
    while True:
        taken = await ledger.get_work(BATCH, fresh=False)
        if taken.items:
            completions = [
                ledger_pb2.Completion(
                    key=item.key, text=TEXT, finish_reason="stop", prompt_tokens=120, output_tokens=200,
                    generation_seconds=1.0, started_at=1e9, replica="r", model="m", attempts=1,
                )
                for item in taken.items
            ]  # fmt: skip
            await ledger.submit(completions)
        elif not taken.remaining:
            return
        else:
            await asyncio.sleep(taken.retry_after_ms / 1000)


def peak_mb(pid: int) -> float:
    """Return a process's peak memory in MB (10**6 bytes)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(samples: int, tests: int, directory: Path) -> dict[str, float]:
    verdicts = judged(tests)
    fake = FakeJudge()
    fake.script = lambda request: verdicts[fake.requests % 2]
    judge = FakeJudgeServer(fake)
    arguments = ["--work-order", str(write_order(directory, samples)), "--ledger", str(directory / "ledger.db")]
    arguments += ["--judge", await judge.start(), "--judge-in-flight", "256"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "evalrun_aggregator", *arguments, stdout=asyncio.subprocess.PIPE,
        env={**SERVICE_ENVIRONMENT, **os.environ},
    )  # fmt: skip
    if process.stdout is None:
        raise RuntimeError("the aggregator has no stdout")
    address = parse_ready_line((await process.stdout.readline()).decode())
    if address is None:
        raise RuntimeError("the aggregator did not get ready")
    began, started = time.perf_counter(), cpu_seconds(process.pid)
    async with open_channel(address) as channel:
        stub: ledger_pb2_grpc.LedgerServiceAsyncStub = ledger_pb2_grpc.LedgerServiceStub(channel)

        async def until(done: int) -> ledger_pb2.GetStatusResponse:
            while True:
                status = await stub.GetStatus(ledger_pb2.GetStatusRequest())
                if status.datasets[0].judged >= samples and status.state >= done:
                    return status
                await asyncio.sleep(0.1)

        workers = [
            GrpcLedger(
                channel, address=address, worker_id=f"w{number}", tokens=None, start_seconds=60, away_seconds=60,
                rng=random.Random(number),
            )
            for number in range(WORKERS)
        ]  # fmt: skip
        await asyncio.gather(*map(work, workers))
        await until(ledger_pb2.RUN_STATE_JUDGING)
        decided, before = time.perf_counter(), peak_mb(process.pid)
        status = await until(ledger_pb2.RUN_STATE_SUCCEEDED)
        written = time.perf_counter()
        if status.state != ledger_pb2.RUN_STATE_SUCCEEDED:
            raise RuntimeError(f"the run ended in state {status.state}: {status.message}")
    found = {
        "items_per_second": samples / (decided - began),
        "outputs_seconds": written - decided,
        "cpu_us_per_item": 1e6 * (cpu_seconds(process.pid) - started) / samples,
        "peak_before_mb": before,
        "peak_mb": peak_mb(process.pid),
    }
    process.terminate()
    await process.wait()
    await judge.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=200_000, help="of the largest run; the decades below go first")
    parser.add_argument("--tests", type=int, default=10, help="tests a verdict")
    parser.add_argument(
        "--directory", type=Path, default=None, help="where ledger and outputs go (a temporary directory)"
    )
    parser.add_argument("--keep", type=Path, help="file that keeps the figures for growth_plot.py")
    given = parser.parse_args()
    print(f"{'samples':>9} {'items/s':>8} {'outputs s':>9} {'CPU us/item':>11} {'peak before':>11} {'peak MB':>8}"
          f" {'disk MB':>8}  of the limit of {LIMIT_MB} MB")  # fmt: skip
    for samples in (*(10**n for n in range(3, 6) if 10**n < given.samples), given.samples):
        directory = Path(tempfile.mkdtemp(prefix="aggregator-growth-", dir=given.directory))
        try:
            found = asyncio.run(measure(samples, given.tests, directory))
            found["disk_mb"] = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 1e6
        finally:
            shutil.rmtree(directory)
        keep(given.keep, "aggregator_growth.py", samples, found)
        print(
            f"{samples:9,} {found['items_per_second']:8,.0f} {found['outputs_seconds']:9.1f} "
            f"{found['cpu_us_per_item']:11.0f} {found['peak_before_mb']:11.0f} {found['peak_mb']:8.0f} "
            f"{found['disk_mb']:8.0f}  {100 * found['peak_mb'] / LIMIT_MB:.0f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
