"""The real aggregator writes its outputs with the real gcsfs to a double of Google's store, and meets its faults."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from builders.aggregator.process import AggregatorProcess, Worker, running, write_run_config
from builders.gcs_double import EXPIRED, NO_BILLING, OVER_QUOTA, GcsDouble

from evalrun_client.fake_judge import FakeJudge, FakeJudgeServer
from evalrun_proto.ledger.v1 import ledger_pb2

PROBLEMS = 6


@pytest.fixture
async def judge() -> AsyncIterator[str]:
    server = FakeJudgeServer(FakeJudge())
    yield await server.start()
    await server.stop()


@pytest.fixture
async def gcs() -> AsyncIterator[GcsDouble]:
    double = GcsDouble()
    await double.start()
    yield double
    await double.stop()


def arguments(directory: Path, judge: str, url: str) -> list[str]:
    order = write_run_config(directory, problems=PROBLEMS, output_dir=url)
    return ["--work-order", str(order), "--ledger", str(directory / "ledger.sqlite3"), "--judge", judge]


async def test_refusals_and_cut_uploads_only_delay_the_results_which_end_with_the_summary(
    tmp_path: Path, gcs: GcsDouble, judge: str
) -> None:
    flags, environment = arguments(tmp_path, judge, "gs://results/run-1"), gcs.environment(tmp_path)
    async with running(*flags, **environment) as process:
        assert gcs.objects == {}  # what tried the place is gone
        worker = Worker(process.address)
        gcs.refusal = EXPIRED
        await worker.work(batch=PROBLEMS)
        said = await worker.message("the outputs cannot be written yet", "or have expired", EXPIRED.message)
        assert "tried again for up to 30 minutes" in said
        gcs.refusal = OVER_QUOTA
        await worker.message("the store is full: free space in it, or raise its quota", OVER_QUOTA.message)
        assert "run-1/summary.json" not in gcs.objects
        gcs.refusal, gcs.cuts, gcs.busy = None, 1, 1  # gcsfs itself tries these again
        status = await worker.wait_for(ledger_pb2.RUN_STATE_SUCCEEDED, ledger_pb2.RUN_STATE_FAILED)
        assert status.state == ledger_pb2.RUN_STATE_SUCCEEDED, status.message
        await worker.close()
    assert (gcs.cuts, gcs.busy) == (0, 0)
    names = [name.removeprefix("run-1/") for name in gcs.objects]
    assert names[-1] == "summary.json"
    assert {"results.jsonl", "results.parquet", "metrics.json", "run_info.json", "report.html"} <= set(names)
    rows = [json.loads(line) for line in gcs.objects["run-1/results.jsonl"].splitlines()]
    assert sorted(row["problem_id"] for row in rows) == sorted(f"p{number}" for number in range(PROBLEMS))
    assert json.loads(gcs.objects["run-1/summary.json"])["state"] == "Succeeded"
    assert gcs.objects["run-1/results.parquet"][-4:] == b"PAR1"


async def test_unwritable_output_is_named_before_anything_is_generated(
    tmp_path: Path, gcs: GcsDouble, judge: str
) -> None:
    gcs.refusal = NO_BILLING
    process = AggregatorProcess(arguments(tmp_path, judge, "gs://results/run-1"), gcs.environment(tmp_path))
    with pytest.raises(AssertionError, match="exit code 2"):
        await process.start()
    assert "evalrun: output gs://results/run-1: cannot be written: the project's billing is disabled" in process.stderr
