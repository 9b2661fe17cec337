"""Measures questions over many runs: making the catalogue, each query of docs/sql.md, and a bucket.

.venv/bin/python benchmarks/catalogue.py queries --runs 10000 --samples 1000
.venv/bin/python benchmarks/catalogue.py bucket --runs 1000

Beside each query: DuckDB over one table that holds all results sorted by run, without views, in memory of its own size:
what the data and two threads allow.
"""

import argparse
import asyncio
import json
import os
import re
import resource
import shutil
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evalrun_cli.catalogue.database import OF_THE_CATALOGUE, open_catalogue, open_database
from evalrun_results.catalogue.location import FOLDER
from evalrun_results.outputs.result_table import RESULT_SCHEMA

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from builders.catalogued_runs import write_checkpoint
from builders.command_line import COMMAND
from builders.s3_server import S3Server, find_program

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "sql.md"
DATASETS: Final = ("humaneval", "mbpp", "code_contests")
STATUSES: Final = ["success", "wrong_answer", "timeout", "runtime_error"]
AIM_QUERY_S: Final = 1.0
AIM_MEMORY_GIB: Final = 1.0
AIM_BUCKET_S: Final = 3.0
THREADS: Final = 2
TIMES: Final = 3
PEAK: Final = "peak of memory, GiB"
BUCKET: Final = "s3://results/runs"
STEP: Final = 10
"""Training steps between two checkpoints of a schedule."""
OF_A_SCHEDULE: Final = 100


def write_runs(root: Path, count: int, samples: int) -> None:
    """Write runs as the aggregator does: documents and results, with one sample per problem."""
    pattern = write_checkpoint(root / "pattern", 1, [True, False, None, True])
    summary = json.loads((pattern / "summary.json").read_text())
    run_info = json.loads((pattern / "run_info.json").read_text())
    (figures,) = summary["datasets"].values()
    shutil.rmtree(root / "pattern")
    for number in range(count):
        draws = np.random.default_rng(number)
        dataset = DATASETS[number % len(DATASETS)]
        place = root / f"nightly-{number // OF_A_SCHEDULE}" / f"run-{number}"
        place.mkdir(parents=True)
        table = results(draws, dataset, samples)
        solved = float(np.mean(table.column("accepted").to_numpy(zero_copy_only=False)))
        one = {**figures, "metrics": {**figures["metrics"]}}
        one["metrics"]["accepted_at_1"] = {**one["metrics"]["accepted_at_1"], "value": solved}
        lineage = {"schedule": f"nightly-{number // OF_A_SCHEDULE}", "step": STEP * (number % OF_A_SCHEDULE)}
        spec = {"model": {"path": f"org/model-{number // 1000}"}, "lineage": {**lineage, "phase": "grpo"}}
        known = {dataset: {"records_sha256": f"{number % 7:064x}", "role": "benchmark"}}
        info = {**run_info, "run": f"run-{number}", "spec": spec, "datasets": known}
        (place / "run_info.json").write_text(json.dumps(info))
        (place / "summary.json").write_text(json.dumps({**summary, "datasets": {dataset: one}}))
        pq.write_table(table, place / "results.parquet", compression="zstd")


def results(draws: np.random.Generator, dataset: str, samples: int) -> pa.Table:
    """Return results with the catalogue's columns. Problems differ in difficulty, runs in their random draws."""
    numbers = np.arange(samples)
    hard = numbers / samples
    accepted = draws.random(samples) > hard
    status = np.where(accepted, 0, draws.integers(1, len(STATUSES), samples))
    judged = draws.random(samples) > 0.01
    values: dict[str, Any] = {
        "dataset": pa.array([dataset] * samples),
        "problem_id": pa.array([f"{dataset}/{each:05}" for each in numbers]),
        "sample": numbers * 0,
        "turn": numbers * 0,
        "repeat": numbers * 0,
        "judged": judged,
        "accepted": accepted & judged,
        "pass_ratio": np.where(accepted, 1.0, draws.random(samples)),
        "final_status": pa.array([STATUSES[each] for each in status]),
        "not_judged_reason": pa.array([None if each else "sandbox unavailable" for each in judged], pa.string()),
        "language": pa.array(["python"] * samples),
        "finish_reason": pa.array(["stop"] * samples),
        "output_tokens": draws.integers(20, 2000, samples),
        "gen_time": draws.random(samples) * 20,
        "total_judge_time": draws.random(samples),
    }
    values["tests"] = [[]] * samples
    fields = [field for field in RESULT_SCHEMA if field.name in values]
    return pa.table([pa.array(values[field.name], field.type) for field in fields], schema=pa.schema(fields))


def queries() -> Iterator[tuple[str, str]]:
    """Yield title and text of each query of the page."""
    page = PAGE.read_text(encoding="utf-8")
    for title, text in re.findall(r"\n([^\n]+):\n```sql\n(.*?)```", page, re.DOTALL):
        yield title, text.strip()


def ask_ours(root: str) -> dict[str, float]:
    """Return the seconds for opening the catalogue and for each query, and the peak memory of this process."""
    start = time.monotonic()
    with open_database(root) as connection:
        opening = time.monotonic() - start
        return {"opening it": opening, **seconds_of_queries(connection)}


def ask_peer(root: str) -> dict[str, float]:
    """Return the seconds of each query over tables that DuckDB holds in memory, without files, views or a bound."""
    with open_database(root) as ours, duckdb.connect(config={"threads": THREADS}) as connection:
        for name in OF_THE_CATALOGUE:
            view = ours.sql(f"SELECT * FROM {name}").to_arrow_reader(100_000)
            connection.register("view_of_ours", view)
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM view_of_ours")
        return seconds_of_queries(connection)


def seconds_of_queries(connection: duckdb.DuckDBPyConnection) -> dict[str, float]:
    """Return the median seconds of each query, and the peak memory of this process."""
    found = {}
    for title, text in queries():
        times = []
        for _ in range(TIMES):
            start = time.monotonic()
            connection.sql(text).to_arrow_table()
            times.append(time.monotonic() - start)
        found[title] = statistics.median(times)
    return found | {PEAK: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}


def measure_queries(root: Path, runs: int, samples: int) -> None:
    """Print the cost of indexing the runs, and of each query beside the peer."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    write_runs(root, runs, samples)
    for name in ("index of new runs", "index without news"):
        start = time.monotonic()
        changes = open_catalogue(str(root)).update()
        print(f"{name}: {time.monotonic() - start:.2f} s ({changes.added} added, {changes.unchanged} unchanged)")
    size = sum(path.stat().st_size for path in (root / FOLDER).rglob("*.parquet"))
    print(f"{runs} runs of {samples} results: a catalogue of {size / 2**20:.0f} MiB")
    found = []
    # Each side runs in a separate process, so that its peak memory is measured alone.
    for ask in (ask_ours, ask_peer):
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            found.append(process.submit(ask, str(root)).result())
    ours, peer = found
    print("| query | s | DuckDB in memory, s | ratio |")
    print("|---|--:|--:|--:|")
    for title, seconds in ours.items():
        if title in peer and title != PEAK:
            print(f"| {title} | {seconds:.3f} | {peer[title]:.3f} | {seconds / peer[title]:.1f} |")
        else:
            print(f"| {title} | {seconds:.3f} | {peer.get(title, float('nan')):.3f} | |")
    print(f"aims: each query {AIM_QUERY_S} s, the process {AIM_MEMORY_GIB} GiB")


async def measure_bucket(root: Path, runs: int, samples: int) -> None:
    """Print the cost of indexing and of listing runs in a bucket, each as a command."""
    write_runs(root / "buckets" / "results" / "runs", runs, samples)
    server = S3Server(find_program(), root / "buckets", root / "server.log")
    await server.start()
    try:
        environment = {**os.environ, **server.environment()}
        for name, command in (
            ("index of new runs", ("index", BUCKET)),
            ("index without news", ("index", BUCKET)),
            ("find", ("find", "--where", "step = 10", "--runs", BUCKET, "--format", "csv")),
            ("start of a command", ("--version",)),
        ):
            start = time.monotonic()
            process = await asyncio.create_subprocess_exec(*COMMAND, *command, env=environment, stdout=DEVNULL)
            if await process.wait():
                raise RuntimeError(f"{name} failed")
            print(f"{name}: {time.monotonic() - start:.2f} s")
    finally:
        await server.stop()
    print(f"{runs} runs in a bucket; aim of the list: {AIM_BUCKET_S} s")


def main() -> None:
    """Measure queries or a bucket."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("queries", "bucket"))
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="evalrun-catalogue-") as folder:
        if options.part == "queries":
            measure_queries(Path(folder), options.runs, options.samples)
        else:
            asyncio.run(measure_bucket(Path(folder), options.runs, options.samples))


if __name__ == "__main__":
    main()
