"""What the aggregator refuses at start, and what it says of itself; in this process, with a judge in memory."""

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from builders.aggregator.process import MemoryJudge, Worker, completion_for, write_run_config
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from evalrun_aggregator.app import Aggregator
from evalrun_aggregator.finish.run_info import git_revision
from evalrun_aggregator.settings import AggregatorSettings
from evalrun_client.judge_client import JudgeRefusedError
from evalrun_proto.ledger.v1 import ledger_pb2
from evalrun_runtime.exits import BadInputError


@asynccontextmanager
async def started(
    directory: Path, judge: MemoryJudge | None = None, registry: CollectorRegistry | None = None, **settings: Any
) -> AsyncIterator[str]:
    given = AggregatorSettings(
        work_order=directory / "work_order.json", ledger=directory / "l.db", judge=["memory"], **settings
    )
    asked = judge or MemoryJudge()
    aggregator = Aggregator(
        given, open_judge=lambda _address, _token, _tls: asked, registry=registry or CollectorRegistry()
    )
    address = await aggregator.start()
    try:
        yield address
    finally:
        await aggregator.stop(0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protocol": {"maxNewTokens": 5}}, "made with another model, protocol, prompts"),
        ({"dataset": {"limits": {"timeSeconds": 1}}}, "made with other tests, limits, comparators or graders"),
        ({"problems": 5}, "made with another model, protocol, prompts"),
        ({"run": "another"}, "of run 'test-run', not 'another'"),
        ({"dataset": {"judgeMode": "Submit"}}, "problem 'p0': judgeMode: Submit needs sandbox_dataset and sandbox_id"),
        ({"dataset": {"judgeMode": "Submit", "tests": ["public"]}}, "spec.datasets[0].tests: with judgeMode: Submit"),
        ({"dataset": {"source": "nowhere.jsonl"}}, "nowhere.jsonl"),
        ({"responses": ["nowhere.jsonl"]}, "nowhere.jsonl"),
        ({"output_dir": "nowhere://bucket/x"}, "output nowhere://bucket/x"),
        ({"output_dir": "/proc/nothing/here"}, "output /proc/nothing/here"),
    ],
)
async def test_unusable_start_is_refused_in_one_line_and_releases_the_ledger(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    write_run_config(tmp_path)
    async with started(tmp_path):
        pass
    write_run_config(tmp_path, **change)
    with pytest.raises(BadInputError) as error:
        async with started(tmp_path):
            pass
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    write_run_config(tmp_path)
    async with started(tmp_path):
        pass


async def test_rejudge_of_empty_ledger_is_refused(tmp_path: Path) -> None:
    write_run_config(tmp_path, rejudge="again")
    with pytest.raises(BadInputError, match="nothing to judge again"):
        async with started(tmp_path):
            pass


async def test_a_judge_that_refuses_the_token_fails_the_run_with_the_reason(tmp_path: Path) -> None:
    write_run_config(tmp_path)
    judge = MemoryJudge(refuse=[JudgeRefusedError("judge memory: UNAUTHENTICATED: send the token")])
    async with started(tmp_path, judge) as address:
        worker = Worker(address)
        await worker.work()
        status = await worker.wait_for(ledger_pb2.RUN_STATE_FAILED)
        await worker.close()
    assert status.message == "judge memory: UNAUTHENTICATED: send the token"
    async with started(tmp_path) as address:  # and goes on with the right one
        worker = Worker(address)
        status = await worker.wait_for(ledger_pb2.RUN_STATE_SUCCEEDED)
        await worker.close()
    assert status.datasets[0].judged == 4


async def test_submit_run_with_a_judge_without_datasets_fails_before_any_request(tmp_path: Path) -> None:
    order = write_run_config(tmp_path, dataset={"judgeMode": "Submit"})
    rows = [json.loads(line) for line in (tmp_path / "first.jsonl").read_text().splitlines()]
    named = [{**row, "sandbox_dataset": "mbpp", "sandbox_id": str(number)} for number, row in enumerate(rows)]
    (tmp_path / "first.jsonl").write_text("".join(json.dumps(row) + "\n" for row in named))
    assert order.exists()
    wrong, right = MemoryJudge(), MemoryJudge(submits=True)
    async with started(tmp_path, wrong) as address:
        worker = Worker(address)
        await worker.work()
        status = await worker.wait_for(ledger_pb2.RUN_STATE_FAILED)
        await worker.close()
    assert "its backend memory has no datasets of its own, which judgeMode: Submit needs" in status.message
    assert wrong.asked == []
    async with started(tmp_path, right) as address:  # and goes on with another
        worker = Worker(address)
        status = await worker.wait_for(ledger_pb2.RUN_STATE_SUCCEEDED)
        await worker.close()
    assert status.datasets[0].judged == 4
    assert {(asked.submit.dataset, asked.submit.id) for asked in right.asked} == {("mbpp", str(n)) for n in range(4)}


async def test_callers_need_the_runs_token(tmp_path: Path) -> None:
    write_run_config(tmp_path)
    async with started(tmp_path, token=SecretStr("secret")) as address:
        worker = Worker(address)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await worker.status()
        await worker.close()
    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


async def test_reported_replicas_are_exported_as_metrics_and_gpu_seconds_are_kept(tmp_path: Path) -> None:
    write_run_config(tmp_path)
    registry = CollectorRegistry()
    async with started(tmp_path, registry=registry) as address:
        worker = Worker(address)
        replica = ledger_pb2.Replica(
            name="r0", address="http://r0", up=True, in_flight=7, models=["some/model"], gpus=2, started_at=100.0
        )
        await worker.stub.ReportReplicas(
            ledger_pb2.ReportReplicasRequest(worker_id="w", replicas=[replica], gpu_seconds=33.0, reported_at=110.0)
        )
        status = await worker.status()
        assert (list(status.replicas), status.gpu_seconds) == ([replica], 53.0)
        await worker.close()
    labels = {"run": "test-run", "namespace": "default"}
    assert registry.get_sample_value("evalrun_replica_inflight", {**labels, "replica": "0"}) == 7
    registry = CollectorRegistry()
    async with started(tmp_path, registry=registry):
        assert registry.get_sample_value("evalrun_gpu_seconds_total", labels) == 53


async def test_completions_of_other_weights_are_refused_also_after_a_restart(tmp_path: Path) -> None:
    write_run_config(tmp_path, problems=4)

    async def submit(worker: Worker, item: ledger_pb2.WorkItem, version: str) -> int:
        completion = completion_for(item)
        completion.weights_version = version
        request = ledger_pb2.SubmitCompletionsRequest(worker_id="w", completions=[completion])
        return (await worker.stub.SubmitCompletions(request)).stored

    for first in (True, False):
        async with started(tmp_path) as address:
            worker = Worker(address)
            one, other, *_ = (await worker.take(4, fresh=True)).items
            if first:
                assert await submit(worker, one, "aaa") == 1
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await submit(worker, other, "bbb")
            assert refused.value.code() == grpc.StatusCode.ABORTED
            assert "weights bbb, and this run's are of aaa" in (refused.value.details() or "")
            assert (await worker.status()).datasets[0].generated == 1
            if not first:  # of a worker that never says it
                await worker.work()
                await worker.wait_for(ledger_pb2.RUN_STATE_SUCCEEDED)
            await worker.close()
    assert run_info_below(tmp_path)["weights_version"] == "aaa"


def run_info_below(directory: Path) -> dict[str, Any]:
    (file,) = directory.rglob("run_info.json")
    content: dict[str, Any] = json.loads(file.read_bytes())
    return content


async def test_failed_export_is_a_warning_of_a_successful_run(tmp_path: Path) -> None:
    order = write_run_config(tmp_path)
    content = json.loads(order.read_text())
    content["spec"]["exports"] = {"mlflow": {"trackingURI": "http://127.0.0.1:9"}}  # discard: nobody answers there
    order.write_text(json.dumps(content))
    for _ in range(2):  # the second start only answers
        async with started(tmp_path, export_seconds=0.5) as address:
            worker = Worker(address)
            await worker.work()
            status = await worker.wait_for(ledger_pb2.RUN_STATE_SUCCEEDED)
            await worker.close()
        assert status.message.startswith("export to mlflow failed: not done after 0.5 s")
        assert status.wandb_url == ""
    exports = json.loads((tmp_path / "out" / "run_info.json").read_text())["exports"]
    assert exports["mlflow"]["state"] == "failed"
    assert (tmp_path / "out" / "summary.json").exists()


async def test_counters_continue_after_a_restart(tmp_path: Path) -> None:
    write_run_config(tmp_path)
    labels = {"run": "test-run", "namespace": "default"}
    for _ in range(2):
        registry = CollectorRegistry()
        async with started(tmp_path, registry=registry) as address:
            worker = Worker(address)
            await worker.work()
            status = await worker.wait_for(ledger_pb2.RUN_STATE_SUCCEEDED)
            await worker.close()
            assert registry.get_sample_value("evalrun_generated_tokens_total", labels) == status.output_tokens == 40
            accepted = {**labels, "dataset": "first", "state": "accepted"}
            assert registry.get_sample_value("evalrun_problems", accepted) == status.datasets[0].accepted == 2


def test_git_revision_is_none_outside_a_repository_and_marks_changes(tmp_path: Path) -> None:
    assert git_revision(tmp_path) is None
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    (tmp_path / "f").write_text("1")
    for command in (["init", "-q"], ["add", "f"], [*identity, "commit", "-qm", "m"]):
        subprocess.run(["git", "-C", tmp_path, *command], check=True)
    clean = git_revision(tmp_path)
    (tmp_path / "f").write_text("2")
    assert clean is not None
    assert len(clean) == 40
    assert git_revision(tmp_path) == f"{clean}+changes"
