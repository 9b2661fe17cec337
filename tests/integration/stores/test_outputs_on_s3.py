"""The real aggregator writes its outputs through a real S3 API, and meets the faults that last."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.aggregator.process import AggregatorProcess, Worker, running, write_problems, write_run_config
from builders.results.samples import sample_result
from builders.results.stored_runs import write_run
from builders.s3_server import CuttingProxy, S3Server
from builders.tools import missing

from evalrun_client.fake_judge import FakeJudge, FakeJudgeServer
from evalrun_proto.ledger.v1 import ledger_pb2

DONE = (ledger_pb2.RUN_STATE_SUCCEEDED, ledger_pb2.RUN_STATE_FAILED)
PROBLEMS = 60


@pytest.fixture
async def judge() -> AsyncIterator[str]:
    server = FakeJudgeServer(FakeJudge())
    try:
        yield await server.start()
    finally:
        await server.stop()


def arguments(directory: Path, judge: str) -> list[str]:
    order, ledger = str(directory / "work_order.json"), str(directory / "ledger.sqlite3")
    return ["--work-order", order, "--ledger", ledger, "--judge", judge]


def order(directory: Path, **changes: Any) -> None:
    write_run_config(directory, problems=PROBLEMS, output_dir="s3://results/run-1", **changes)


def check_outputs(server: S3Server) -> None:
    """Assert that everything is there once, and came before summary.json."""
    directory = server.directory / "results" / "run-1"
    rows = [json.loads(line) for line in (directory / "results.jsonl").read_text().splitlines()]
    assert sorted(row["problem_id"] for row in rows) == sorted(f"p{number}" for number in range(PROBLEMS))
    assert sum(row["accepted"] for row in rows) == PROBLEMS * 2 // 3
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["state"] == "Succeeded"
    written = {path.name: path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}
    assert written["summary.json"] == max(written.values())
    assert {"results.parquet", "metrics.json", "run_info.json", "report.html"} <= set(written)


async def finish(process: AggregatorProcess) -> None:
    """Wait for the end of the run, and end the process."""
    worker = Worker(process.address)
    status = await worker.wait_for(*DONE)
    await worker.close()
    assert status.state == ledger_pb2.RUN_STATE_SUCCEEDED, status.message
    assert await process.end() == 0


async def test_problems_come_from_a_bucket_and_results_go_there_summary_last(
    tmp_path: Path, s3: S3Server, judge: str
) -> None:
    order(tmp_path, dataset={"source": "s3://results/data/first.jsonl"})
    (s3.directory / "results" / "data").mkdir()
    write_problems(s3.directory / "results" / "data" / "first.jsonl", "first", PROBLEMS)
    async with running(*arguments(tmp_path, judge), **s3.environment()) as process:
        worker = Worker(process.address)
        await worker.work(batch=PROBLEMS)
        await worker.close()
        await finish(process)
    check_outputs(s3)
    assert not (s3.directory / "results" / "run-1" / ".evalrun-probe").exists()


def evalrun_on(server: S3Server, *arguments: str) -> str:
    command = [sys.executable, "-m", "evalrun_cli", *arguments]
    environment = os.environ | server.environment()
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


async def test_a_run_adds_itself_to_the_catalogue_of_its_bucket(tmp_path: Path, s3: S3Server, judge: str) -> None:
    (s3.directory / "results" / "nightly").mkdir()
    (s3.directory / "results" / "nightly" / "notes.txt").write_text("")
    evalrun_on(s3, "index", "s3://results/nightly")
    write_run_config(tmp_path, problems=PROBLEMS, output_dir="s3://results/nightly/7/run-1")
    async with running(*arguments(tmp_path, judge), **s3.environment()) as process:
        worker = Worker(process.address)
        await worker.work(batch=PROBLEMS)
        await worker.close()
        await finish(process)
    # A bucket's catalogue is read as it is: only `index` looks for runs.
    query = "SELECT place, state, (SELECT count(*) FROM results) AS answers FROM runs"
    rows = json.loads(evalrun_on(s3, "sql", query, "--runs", "s3://results/nightly", "--format", "json"))
    assert rows == [{"place": "7/run-1", "state": "Succeeded", "answers": PROBLEMS}]
    assert evalrun_on(s3, "index", "s3://results/nightly").startswith("0 added, 0 changed, 0 removed, 1 unchanged")


@pytest.mark.parametrize("best", [range(PROBLEMS), range(0)], ids=["worse", "better"])
async def test_a_checkpoint_of_a_race_is_compared_with_the_best_one_in_the_bucket(
    tmp_path: Path, s3: S3Server, judge: str, best: range
) -> None:
    statuses = [["success"] if place in best else ["wrong_answer"] for place in range(PROBLEMS)]
    rows = (sample_result(f"p{place}", 0, each, dataset="first") for place, each in enumerate(statuses))
    write_run(s3.directory / "results" / "step-10", rows)
    gate = {
        "baseline": "s3://results/step-10",
        "dataset": "first",
        "maxRegression": "0",
        "sequential": True,
        "keepPassing": True,
    }
    order(tmp_path)
    file = tmp_path / "work_order.json"
    config = json.loads(file.read_text())
    config["spec"]["gates"] = [gate]
    file.write_text(json.dumps(config))
    async with running(*arguments(tmp_path, judge), **s3.environment()) as process:
        worker = Worker(process.address)
        await worker.work()
        await worker.close()
        await finish(process)
    summary = json.loads((s3.directory / "results" / "run-1" / "summary.json").read_text())
    assert summary["gate"]["decision"] == ("FAIL" if best else "PASS")
    # A better one is measured whole, since the next checkpoint is compared with it.
    assert (summary["counts"]["samples"] == PROBLEMS) == (not best)


@pytest.mark.parametrize(
    ("url", "key", "words"),
    [
        ("s3://resutls/run-1", "first-key", "there is no such bucket: create it, or correct the URL"),
        ("s3://results/run-1", "no-such-key", "the store does not accept these credentials: correct the access key"),
    ],
    ids=["no such bucket", "wrong key"],
)
async def test_unwritable_output_is_named_before_anything_is_generated(
    tmp_path: Path, s3: S3Server, judge: str, url: str, key: str, words: str
) -> None:
    write_run_config(tmp_path, output_dir=url)
    process = AggregatorProcess(arguments(tmp_path, judge), s3.environment(key))
    with pytest.raises(AssertionError, match="exit code 2"):
        await process.start()
    assert f"evalrun: output {url}: cannot be written: {words}" in process.stderr
    assert [path.name for path in s3.directory.iterdir() if not path.name.startswith(".")] == ["results"]


async def test_run_with_an_unreachable_store_at_its_start_ends_with_the_retryable_code_1(
    tmp_path: Path, s3: S3Server, judge: str
) -> None:
    order(tmp_path)
    await s3.stop()
    process = AggregatorProcess(arguments(tmp_path, judge), s3.environment())
    with pytest.raises(AssertionError, match="exit code 1"):  # not 2: that would end the EvalRun as invalid
        await process.start()
    assert "the store cannot be reached: check AWS_ENDPOINT_URL" in process.stderr


async def test_uploads_that_are_cut_and_a_store_that_is_lost_only_delay_the_results(
    tmp_path: Path, s3: S3Server, judge: str
) -> None:
    order(tmp_path)
    proxy = CuttingProxy(s3.port)
    port = await proxy.start()
    async with running(*arguments(tmp_path, judge), **s3.environment(port=port)) as process:
        worker = Worker(process.address)
        proxy.cut_after = 20_000
        await worker.work(batch=PROBLEMS)
        said = await worker.message("the outputs cannot be written yet", "results/run-1")
        assert "tried again for up to 30 minutes" in said
        assert proxy.cuts
        assert not (s3.directory / "results" / "run-1" / "summary.json").exists()
        await s3.stop()
        proxy.cut_after = None
        await s3.start()
        await worker.close()
        await finish(process)
    await proxy.stop()
    check_outputs(s3)


async def test_credentials_that_expire_are_named_and_renewed_ones_finish_the_run(
    tmp_path: Path, s3: S3Server, judge: str
) -> None:
    order(tmp_path)
    async with running(*arguments(tmp_path, judge), **s3.environment()) as process:
        await s3.stop()
        await s3.start("second-key", "second-secret")
        worker = Worker(process.address)
        await worker.work(batch=PROBLEMS)
        said = await worker.message("the outputs cannot be written yet")
        assert "the store does not accept these credentials: correct the access key" in said
        assert not (s3.directory / "results" / "run-1" / "summary.json").exists()
        await worker.close()
        assert await process.end() == 0  # at once: the pause ends with the process
    async with running(*arguments(tmp_path, judge), **s3.environment("second-key", "second-secret")) as process:
        await finish(process)
    check_outputs(s3)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        missing("a small disk needs root and mount")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", directory], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        missing(f"no tmpfs can be mounted: {mounted.stderr}")
    yield directory
    subprocess.run(["umount", "--lazy", directory], check=True)


async def test_a_full_bucket_is_named_and_gets_the_rest_once_there_is_room(
    tmp_path: Path, s3: S3Server, judge: str, small_disk: Path
) -> None:
    await s3.stop()
    s3.directory = small_disk
    (small_disk / "results").mkdir()
    await s3.start()
    order(tmp_path)
    async with running(*arguments(tmp_path, judge), **s3.environment()) as process:
        worker = Worker(process.address)
        ballast = small_disk / "results" / "ballast"
        ballast.write_bytes(bytes(1008 << 10))
        await worker.work(batch=PROBLEMS)
        await worker.message("the store is full: free space in it, or raise its quota")
        assert not (small_disk / "results" / "run-1" / "summary.json").exists()
        ballast.unlink()
        await worker.close()
        await finish(process)
    check_outputs(s3)
