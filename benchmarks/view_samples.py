"""Measures the page of samples in a Chromium: bytes and seconds to the first row, and filter, sort and search.

.venv/bin/python benchmarks/view_samples.py 1000 100000 1000000
"""

import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from evalrun_cli.viewer.export import export_view
from evalrun_results.outputs.result_table import RESULT_SCHEMA
from evalrun_results.sample_index.stored_index import build_index
from evalrun_results.stored_run import StoredRun

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from builders.browser import Browser, open_browser
from builders.results.view_server import directory_served, view_served

WORDS: Final = [
    f"{first}{second}" for first in "abcdefghij" for second in ("value", "total", "index", "items", "count")
]
STATUSES: Final = ["success"] * 5 + ["wrong_answer"] * 3 + ["timeout", "runtime_error"]
QUERIES: Final = {
    "filter": ["status=timeout", "tokens>=1500", "status!=success pass_ratio>0.5", "judged=true"],
    "search": ["rare777", "avalue", "avalue btotal", "rare1"],
}
BATCH: Final = 50_000
AIMS: Final = {
    "first_row_s": 1.0, "bytes_by_then": 5_000_000, "filter_p95_ms": 200.0, "search_p95_ms": 200.0,
    "sort_p95_ms": 200.0,
}  # fmt: skip
"""Limits of what a reader should wait for, by figure."""


def rows(count: int) -> Iterator[dict[str, Any]]:
    """Yield rows with answers of about 400 characters."""
    chance = random.Random(7)
    for number in range(count):
        status = chance.choice(STATUSES)
        ratio = 1.0 if status == "success" else chance.random()
        answer = " ".join(chance.choices(WORDS, k=55)) + f" rare{number % 5000}"
        yield {
            "dataset": "bench", "problem_id": f"problem/{number // 10}", "sample": number % 10, "turn": 0, "repeat": 0,
            "judged": True, "accepted": status == "success", "pass_ratio": ratio,
            "final_status": status, "response": answer, "code": "", "output_tokens": chance.randrange(2000),
            "gen_time": chance.random() * 9, "total_judge_time": chance.random(), "language": "python", "tests": [],
        }  # fmt: skip


def write_rows(run: Path, count: int, *, has_programs: bool = False) -> None:
    """Write a run of made-up rows. With `has_programs` each answer is its own program."""
    run.mkdir()
    made, done = rows(count), 0
    with (
        pq.ParquetWriter(run / "results.parquet", RESULT_SCHEMA) as parquet,
        (run / "results.jsonl").open("w") as lines,
    ):
        while done < count:
            batch = [row for _, row in zip(range(BATCH), made, strict=False)]
            if has_programs:
                batch = [{**row, "code": row["response"]} for row in batch]
            done += len(batch)
            parquet.write_table(pa.Table.from_pylist(batch, schema=RESULT_SCHEMA))
            lines.writelines(json.dumps(row) + "\n" for row in batch)
    summary = {"schema": 1, "state": "Succeeded", "datasets": {"bench": {"metrics": {}, "counts": {}}}}
    (run / "summary.json").write_text(json.dumps(summary))
    (run / "run_info.json").write_text("{}")


async def measure(browser: Browser, address: str, count: int) -> dict[str, float]:
    """Return the seconds and milliseconds that a reader of the page waits, and the bytes until the first row."""
    counter = "(document.querySelector('.tools p')?.textContent ?? '')"
    begun = time.perf_counter()
    await browser.open(f"{address}#/run/run/samples")
    await browser.until("document.querySelector('.rows .row')")
    first = time.perf_counter() - begun
    to_first = "performance.getEntriesByType('resource').reduce((sum, each) => sum + each.transferSize, 0)"
    sent = await browser.run(to_first)
    await browser.until(f"{counter} === '{count:,} of {count:,} samples'")
    loaded = time.perf_counter() - begun
    found: dict[str, float] = {"first_row_s": first, "bytes_by_then": sent, "all_columns_s": loaded}
    for kind, queries in QUERIES.items():
        found[f"{kind}_p95_ms"] = await _timed(browser, [f"box.value = {query!r}" for query in queries] * 5)
    await browser.run("performance.clearMeasures()")
    for _ in range(6):
        for name in ("output tokens", "status", "problem"):
            await _chosen(browser, f"document.querySelector('[title=\"sort by {name}\"]').click()")
    found["sort_p95_ms"] = await _p95(browser)
    return found


async def _timed(browser: Browser, changes: list[str]) -> float:
    await browser.run("performance.clearMeasures()")
    for change in changes:
        await _chosen(
            browser, f"(box => {{ {change}; box.dispatchEvent(new Event('input')) }})(document.querySelector('input'))"
        )
    return await _p95(browser)


async def _chosen(browser: Browser, script: str) -> None:
    measures = "performance.getEntriesByName('choose').length"
    before = await browser.run(measures)
    await browser.run(script)
    await browser.until(f"{measures} > {before}")


async def _p95(browser: Browser) -> float:
    taken: list[float] = await browser.run("performance.getEntriesByName('choose').map(each => each.duration)")
    return statistics.quantiles(taken, n=20)[-1]


async def run_size(count: int) -> None:
    """Measure a run of this number of samples, served by the command and as a static site."""
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        write_rows(run, count)
        begun = time.perf_counter()
        build_index(StoredRun.open(str(run)), run / ".view")
        built = time.perf_counter() - begun
        size = sum(file.stat().st_size for file in (run / ".view").iterdir())
        print(f"{count:,} samples: indexed in {built:.1f} s, {size / 1e6:.1f} MB", flush=True)
        export_view([str(run)], Path(scratch) / "site")
        for name, served in (("served", view_served(run)), ("static", directory_served(Path(scratch) / "site"))):
            async with served as address, open_browser(Path(scratch) / name) as browser:
                await browser.look(1280)
                for figure, value in (await measure(browser, address, count)).items():
                    ratio = f"  {value / AIMS[figure]:6.2f} of the aim" if figure in AIMS else ""
                    print(f"  {name}  {figure:15} {value:12,.2f}{ratio}", flush=True)


if __name__ == "__main__":
    for each in sys.argv[1:] or ["1000", "100000"]:
        asyncio.run(run_size(int(each)))
