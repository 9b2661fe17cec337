"""How the ledger grows: synthetic completions and verdicts from 1,000 to 1,000,000, no network and no sandbox.

Each decade starts a fresh process with a fresh ledger and prints items/s (a completion and its verdict are one item,
both durable), the process's CPU seconds, its peak memory, the size on disk, and how long it takes a new process to take
the ledger up again and to read every sample once. Figures of one machine: compare decades, not machines.

    .venv/bin/python benchmarks/ledger_growth.py [--max-items 1000000] [--directory DIR] [--keep benchmarks/growth.json]
"""

import argparse
import asyncio
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from growth_plot import keep

from evalrun_aggregator.ledger.entries import StoredCompletion, StoredVerdict
from evalrun_aggregator.ledger.item_states import ItemState, ItemStates
from evalrun_aggregator.ledger.items import DatasetItems, RunItems, pack_row
from evalrun_aggregator.ledger.leases import Leases
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_aggregator.start.facts import NOT_ENDED
from evalrun_client.fake_judge import make_scripted_verdict
from evalrun_proto.judge.v1 import judge_pb2

BATCH = 32
CALLERS = 8
SAMPLES = 10
TEXT = "```python\ndef solve(values):\n    return sorted(values)\n```\n" * 12
"""About 700 bytes: an answer of 200 tokens."""


def items_of(count: int) -> RunItems:
    return RunItems([DatasetItems("synthetic", [f"problem-{i}" for i in range(count // SAMPLES)])], SAMPLES)


async def fill(ledger: Ledger, item_states: ItemStates) -> None:
    """Store completions and verdicts as the service does, with several workers at once."""
    items, leases = item_states.items, Leases(item_states)
    verdict = make_scripted_verdict(judge_pb2.JudgeRequest(submission=judge_pb2.Submission(text="accept " + TEXT)))
    content = verdict.SerializeToString()

    async def worker(name: str) -> None:
        while taken := leases.take(name, BATCH, time.monotonic()):
            rows = [items.get_row(index) for index in taken]
            await ledger.add_completions(
                [StoredCompletion(row, TEXT, "stop", 100, 200, 1.0, 1.0, "replica-0", "model") for row in rows]
            )
            for index in taken:
                leases.settle(index)
                item_states.move(index, ItemState.GENERATED)
            await ledger.add_verdicts(
                [StoredVerdict(row, content, verdict.final_status, True, True, time.time()) for row in rows]  # noqa: FBT003
            )
            for index in taken:
                item_states.judge(index, judged=True, accepted=True, final_status=verdict.final_status)

    await asyncio.gather(*(worker(f"worker-{number}") for number in range(CALLERS)))


async def measure_fill(path: Path, count: int) -> dict[str, float]:
    items = items_of(count)
    item_states = ItemStates(items)
    async with Ledger(path) as ledger:
        await ledger.found(list(items.names()), {**NOT_ENDED})
        start, cpu = time.perf_counter(), time.process_time()
        await fill(ledger, item_states)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {"items_per_second": count / seconds, "cpu_us_per_item": cpu / count * 1e6, "peak_mib": peak_mib()}


async def measure_resume(path: Path, count: int) -> dict[str, float]:
    items = items_of(count)
    start = time.perf_counter()
    async with Ledger(path) as ledger:
        item_states = ItemStates(items)
        item_states.restore(ledger.reader.completion_rows(), ledger.reader.verdict_rows(), keep_not_judged=True)
        tallies = sum(tally.count for tally in ledger.reader.tallies(0, pack_row(items.problems, 0, 0)))
        opened = time.perf_counter() - start
        if (item_states.count(ItemState.ACCEPTED), tallies) != (count, count):
            raise SystemExit(
                f"the ledger of {count} items lost some: {item_states.count(ItemState.ACCEPTED)}, {tallies}"
            )
        start = time.perf_counter()
        read = sum(1 for _ in ledger.samples())
        reading = time.perf_counter() - start
    return {"resume_seconds": opened, "read_per_second": read / reading, "resume_peak_mib": peak_mib()}


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_own_process(step: str, path: Path, count: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--step", step, "--file", str(path), "--max-items", str(count)]
    result: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-items", type=int, default=1_000_000, help="items of the largest ledger")
    parser.add_argument("--directory", type=Path, help="where the ledgers are made; a real disk, for syncs cost there")
    parser.add_argument("--keep", type=Path, help="file that keeps the figures for growth_plot.py")
    parser.add_argument("--step", choices=["fill", "resume"], help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.step is not None:
        measure = measure_fill if chosen.step == "fill" else measure_resume
        print(json.dumps(asyncio.run(measure(chosen.file, chosen.max_items))))
        return
    print("    items  items/s  CPU us/item  peak MiB  disk MiB  resume s  resume MiB  read/s")
    decades = sorted({chosen.max_items, *(1000 * 10**n for n in range(4) if 1000 * 10**n < chosen.max_items)})
    directory = Path(tempfile.mkdtemp(prefix="ledger_growth_", dir=chosen.directory))
    try:
        for count in decades:
            path = directory / f"{count}.sqlite3"
            figures = in_own_process("fill", path, count)
            disk = path.stat().st_size / 2**20
            figures |= in_own_process("resume", path, count)
            keep(chosen.keep, "ledger_growth.py", count, figures | {"peak_mb": figures["peak_mib"] * 2**20 / 1e6})
            print(
                f"{count:9,d}  {figures['items_per_second']:7,.0f}  {figures['cpu_us_per_item']:11.0f}  "
                f"{figures['peak_mib']:8.0f}  {disk:8.0f}  {figures['resume_seconds']:8.2f}  "
                f"{figures['resume_peak_mib']:10.0f}  {figures['read_per_second']:6,.0f}",
                flush=True,
            )
            path.unlink()
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
