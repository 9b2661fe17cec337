"""The real process, a fake judge over gRPC and a scripted worker on loopback."""

import asyncio
import functools
import json
import random
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from builders.aggregator.process import (
    AggregatorProcess,
    Worker,
    completion_for,
    eventually,
    read_results,
    running,
    write_run_config,
)

from evalrun_client.fake_judge import Answer, FakeJudge, FakeJudgeServer, make_scripted_verdict, unavailable
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_proto.ledger.v1 import ledger_pb2
from evalrun_results.metrics.run_options import metric_options

DONE = (ledger_pb2.RUN_STATE_SUCCEEDED, ledger_pb2.RUN_STATE_DEGRADED, ledger_pb2.RUN_STATE_FAILED)


@pytest.fixture
async def judge() -> AsyncIterator[tuple[FakeJudge, str]]:
    fake = FakeJudge()
    server = FakeJudgeServer(fake)
    try:
        yield fake, await server.start()
    finally:
        await server.stop()


def arguments(directory: Path, judge: str, *more: str) -> list[str]:
    order, ledger = str(directory / "work_order.json"), str(directory / "ledger.sqlite3")
    return ["--work-order", order, "--ledger", ledger, "--judge", judge, *more]


async def test_run_with_a_taken_samples_port_succeeds(tmp_path: Path, judge: tuple[FakeJudge, str]) -> None:
    write_run_config(tmp_path, problems=2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = f"--samples-port={taken.getsockname()[1]}"
        async with running(*arguments(tmp_path, judge[1], port)) as process:
            worker = Worker(process.address)
            await worker.work()
            status = await worker.wait_for(*DONE)
            await worker.close()
    assert status.state == ledger_pb2.RUN_STATE_SUCCEEDED


async def test_a_run_goes_from_work_to_outputs(tmp_path: Path, judge: tuple[FakeJudge, str]) -> None:
    images = {"aggregator": "example.test/aggregator@sha256:12"}
    write_run_config(tmp_path, problems=30, datasets=["first", "second"], images=images)
    async with running(*arguments(tmp_path, judge[1])) as process:
        worker = Worker(process.address)
        assert (await worker.status()).state == ledger_pb2.RUN_STATE_PREPARING
        judge[0].slowness = 2.5  # found out while it judges
        await worker.work()
        status = await worker.wait_for(*DONE)
        await worker.close()
        assert await process.end() == 0
    assert status.state == ledger_pb2.RUN_STATE_SUCCEEDED
    assert [(d.name, d.total, d.generated, d.judged, d.accepted, d.not_judged) for d in status.datasets] == [
        ("first", 30, 30, 30, 20, 0), ("second", 30, 30, 30, 20, 0),
    ]  # fmt: skip
    assert dict(status.datasets[0].final_status) == {"success": 20, "wrong_answer": 10}
    assert (status.output_tokens, status.output_url, status.message) == (600, str(tmp_path / "out"), "")
    results = read_results(tmp_path / "out")
    assert len({(r["dataset"], r["problem_id"], r["sample"]) for r in results}) == len(results) == 60
    assert sum(r["accepted"] for r in results) == 40
    info = json.loads((tmp_path / "out" / "run_info.json").read_text())
    assert (info["run"], info["judges"][judge[1]]["backend"], info["images"]) == ("test-run", "fake", images)
    assert info["judges"][judge[1]]["slowness"] == 2.5
    for dataset in status.datasets:
        assert dataset.accepted_at_1.value == pytest.approx(2 / 3)
        assert dataset.accepted_at_1.low < 2 / 3 < dataset.accepted_at_1.high
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["datasets"]["first"]["metrics"]["accepted_at_1"]["value"] == pytest.approx(2 / 3)


async def test_work_holds_prompts_and_sampling_but_never_a_test(tmp_path: Path, judge: tuple[FakeJudge, str]) -> None:
    protocol = {"name": "EVAL@k", "temperature": "0.8", "samples": 3, "k": [1, 3], "seed": 100, "maxNewTokens": 77}
    write_run_config(tmp_path, problems=2, protocol=protocol)
    async with running(*arguments(tmp_path, judge[1])) as process:
        worker = Worker(process.address)
        work = await worker.take(100)
        await worker.close()
    assert [(i.key.problem_id, i.key.sample, i.sampling.seed) for i in work.items] == [
        (problem, sample, 100 + sample) for problem in ("p0", "p1") for sample in range(3)
    ]
    assert {(i.sampling.temperature, i.sampling.max_tokens) for i in work.items} == {(0.8, 77)}
    assert "Solve number 1." in work.items[-1].messages[0].content
    assert b"secret" not in work.SerializeToString()


async def test_noise_floor_repeats_are_kept_apart(tmp_path: Path, judge: tuple[FakeJudge, str]) -> None:
    write_run_config(tmp_path, problems=6, protocol={"noiseFloorRepeats": 2})
    fresh: list[bool] = []
    script = judge[0].script

    def noted(request: judge_pb2.JudgeRequest) -> Answer:
        fresh.append(request.fresh)
        return script(request)

    judge[0].script = noted
    async with running(*arguments(tmp_path, judge[1])) as process:
        worker = Worker(process.address)
        await worker.work()
        status = await worker.wait_for(*DONE)
        await worker.close()
    assert (status.datasets[0].total, status.datasets[0].judged) == (6, 6)
    assert {item.key.repeat for item in worker.seen} == {0, 1, 2}
    assert len(worker.seen) == 18
    assert (fresh.count(False), fresh.count(True)) == (6, 12)  # what the judge does by chance must show


async def test_64_concurrent_submissions_of_the_same_work_are_stored_once(
    tmp_path: Path, judge: tuple[FakeJudge, str]
) -> None:
    write_run_config(tmp_path, problems=50)
    async with running(*arguments(tmp_path, judge[1])) as process:
        worker = Worker(process.address)
        items = (await worker.take(100)).items
        stored = await asyncio.gather(*(worker.submit(items) for _ in range(64)))
        status = await worker.wait_for(*DONE)
        await worker.close()
    assert sum(stored) == 50
    assert (status.datasets[0].generated, status.datasets[0].judged) == (50, 50)
    assert judge[0].requests == 50


async def test_bad_calls_get_the_documented_status_codes(tmp_path: Path, judge: tuple[FakeJudge, str]) -> None:
    write_run_config(tmp_path, problems=3)
    async with running(*arguments(tmp_path, judge[1])) as process:
        worker = Worker(process.address)
        items = list((await worker.take()).items)
        stranger = ledger_pb2.WorkItem(key=ledger_pb2.WorkKey(dataset="first", problem_id="p77"))
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await worker.submit([items[0], stranger])
        with pytest.raises(grpc.aio.AioRpcError) as nameless:
            await Worker(process.address, name="").take()
        endless = completion_for(items[0])
        endless.generation_seconds = float("inf")
        with pytest.raises(grpc.aio.AioRpcError) as infinite:
            await worker.stub.SubmitCompletions(
                ledger_pb2.SubmitCompletionsRequest(worker_id="w", completions=[completion_for(items[1]), endless])
            )
        unlikely = completion_for(items[0])
        unlikely.log_probs.append(float("-inf"))
        with pytest.raises(grpc.aio.AioRpcError, match="log_probs: send finite numbers"):
            await worker.stub.SubmitCompletions(
                ledger_pb2.SubmitCompletionsRequest(worker_id="w", completions=[unlikely])
            )
        undated = ledger_pb2.Replica(name="replica-0", gpus=1, started_at=float("nan"))
        report = ledger_pb2.ReportReplicasRequest(worker_id="w", replicas=[undated], gpu_seconds=1.0)
        with pytest.raises(grpc.aio.AioRpcError) as nan:
            await worker.stub.ReportReplicas(report)
        status = await worker.status()
        await worker.close()
    assert unknown.value.code() == grpc.StatusCode.NOT_FOUND
    assert "first p77 sample 0" in (unknown.value.details() or "")
    assert nameless.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert infinite.value.code() == nan.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert infinite.value.details() == (
        "completion of first p0 sample 0: generation_seconds is inf: send a finite number"
    )
    assert nan.value.details() == "replica replica-0: started_at is nan: send a finite number"
    assert (status.message, status.gpu_seconds) == ("", 0.0)
    assert status.datasets[0].generated == 0  # nothing of the batch was stored


@pytest.mark.parametrize("seed", range(3))
async def test_kill_9_at_random_moments_loses_and_duplicates_no_answer(
    tmp_path: Path, judge: tuple[FakeJudge, str], seed: int
) -> None:
    chance = random.Random(seed)
    judge[0].delay = 0.01
    write_run_config(tmp_path, problems=120, datasets=["first", "second"])
    moments = [chance.uniform(0.05, 0.6) for _ in range(4)]
    print(f"seed {seed}: killed after {moments} s")
    process = AggregatorProcess(arguments(tmp_path, judge[1], "--judge-in-flight", "8"))
    await process.start()
    worker = Worker(process.address)
    working = asyncio.create_task(worker.work(batch=5, pause=0.01))
    try:
        for moment in moments:
            await asyncio.sleep(moment)
            await process.end(signal.SIGKILL)
            await process.start()
        await working
        status = await worker.wait_for(*DONE)
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await worker.close()
        await process.end(signal.SIGKILL)
    assert status.state == ledger_pb2.RUN_STATE_SUCCEEDED
    assert [(d.total, d.generated, d.judged, d.accepted, d.not_judged) for d in status.datasets] == [
        (120, 120, 120, 80, 0)
    ] * 2
    results = read_results(tmp_path / "out")
    assert len({(r["dataset"], r["problem_id"]) for r in results}) == len(results) == 240
    assert {r["response"].split(" ")[0] == r["problem_id"] for r in results} == {True}
    assert status.output_tokens == 2400


def asked_for(judge: FakeJudge, requests: int) -> bool:
    return judge.requests >= requests


async def test_run_succeeds_although_the_judge_starts_late_and_restarts(tmp_path: Path) -> None:
    write_run_config(tmp_path, problems=60)
    fake = FakeJudge(delay=0.02)
    first = FakeJudgeServer(fake)
    address = await first.start()
    await first.stop()
    async with running(*arguments(tmp_path, address, "--judge-in-flight", "4")) as process:
        worker = Worker(process.address)
        await worker.work()
        waiting = await worker.wait_for(ledger_pb2.RUN_STATE_JUDGING)
        while "waiting for the judge" not in waiting.message:
            waiting = await worker.status()
        for _ in range(2):
            server = FakeJudgeServer(fake, port=int(address.rpartition(":")[2]))
            await server.start()
            await eventually(functools.partial(asked_for, fake, fake.requests + 20))
            await server.stop()
        server = FakeJudgeServer(fake, port=int(address.rpartition(":")[2]))
        await server.start()
        status = await worker.wait_for(*DONE)
        await server.stop()
        await worker.close()
    assert status.state == ledger_pb2.RUN_STATE_SUCCEEDED
    assert (status.datasets[0].judged, status.datasets[0].not_judged, status.datasets[0].accepted) == (60, 0, 40)
    assert fake.max_in_flight <= 4


async def test_a_full_disk_answers_resource_exhausted_and_the_run_resumes(
    tmp_path: Path, judge: tuple[FakeJudge, str]
) -> None:
    write_run_config(tmp_path, problems=40)
    long = "accept " + "x" * 60_000
    async with running(*arguments(tmp_path, judge[1], "--ledger-max-mib", "1")) as process:
        worker = Worker(process.address)
        items = list((await worker.take(100)).items)
        acknowledged, code = 0, None
        for item in items:
            completion = ledger_pb2.Completion(key=item.key, text=long, finish_reason="stop")
            request = ledger_pb2.SubmitCompletionsRequest(worker_id="w", completions=[completion])
            try:
                acknowledged += (await worker.stub.SubmitCompletions(request, timeout=60)).stored
            except grpc.aio.AioRpcError as error:
                code = error.code()
                break
        status = await worker.status()
        await worker.close()
        await process.end(signal.SIGKILL)
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert 0 < status.datasets[0].generated == acknowledged < 40
    assert "ledger.sqlite3: the disk is full" in status.message
    async with running(*arguments(tmp_path, judge[1])) as process:
        worker = Worker(process.address)
        assert (await worker.status()).datasets[0].generated == acknowledged
        await worker.work()
        status = await worker.wait_for(*DONE)
        await worker.close()
    assert status.state == ledger_pb2.RUN_STATE_SUCCEEDED
    assert status.datasets[0].judged == 40


async def test_answers_not_judged_degrade_run_and_retry_judges_them(
    tmp_path: Path, judge: tuple[FakeJudge, str]
) -> None:
    write_run_config(tmp_path, problems=9)
    judge[0].script = lambda request: (
        unavailable() if request.submission.text.startswith("p4 ") else make_scripted_verdict(request)
    )
    options = ["--judge-attempts", "2", "--judge-patience-seconds", "0"]
    async with running(*arguments(tmp_path, judge[1], *options)) as process:
        worker = Worker(process.address)
        await worker.work()
        status = await worker.wait_for(*DONE)
        await worker.close()
    assert status.state == ledger_pb2.RUN_STATE_DEGRADED
    assert (status.datasets[0].judged, status.datasets[0].not_judged) == (8, 1)
    (left,) = [r for r in read_results(tmp_path / "out") if not r["judged"]]
    assert (left["problem_id"], left["accepted"]) == ("p4", None)
    assert left["not_judged_reason"] == "UNAVAILABLE: no sandbox answered"
    judge[0].script = make_scripted_verdict
    async with running(*arguments(tmp_path, judge[1], *options)) as process:  # a restart alone answers questions only
        worker = Worker(process.address)
        assert (await worker.status()).state == ledger_pb2.RUN_STATE_DEGRADED
        await worker.close()
    asked = judge[0].requests
    async with running(*arguments(tmp_path, judge[1], *options, "--retry-not-judged")) as process:
        worker = Worker(process.address)
        status = await worker.wait_for(ledger_pb2.RUN_STATE_SUCCEEDED)
        await worker.close()
    assert (status.datasets[0].judged, status.datasets[0].not_judged) == (9, 0)
    assert judge[0].requests == asked + 1


async def test_rejudge_needs_no_generation_and_survives_a_kill(tmp_path: Path, judge: tuple[FakeJudge, str]) -> None:
    write_run_config(tmp_path, problems=40)
    async with running(*arguments(tmp_path, judge[1])) as process:
        worker = Worker(process.address)
        await worker.work()
        await worker.wait_for(*DONE)
        await worker.close()
    write_run_config(
        tmp_path, problems=40, rejudge="second look", output_dir=str(tmp_path / "again"),
        dataset={"comparator": {"name": "exact"}},
    )  # fmt: skip
    judge[0].script = lambda request: (
        make_scripted_verdict(request) if request.comparator.name == "exact" else unavailable()
    )
    judge[0].delay = 0.05
    asked = judge[0].requests
    async with running(*arguments(tmp_path, judge[1], "--judge-in-flight", "4")) as process:
        await eventually(lambda: judge[0].requests >= asked + 10)
        await process.end(signal.SIGKILL)
    judge[0].delay = 0
    async with running(*arguments(tmp_path, judge[1])) as process:
        worker = Worker(process.address)
        assert (await worker.take()).remaining == 0
        status = await worker.wait_for(*DONE)
        await worker.close()
    assert status.state == ledger_pb2.RUN_STATE_SUCCEEDED
    assert (status.datasets[0].judged, status.datasets[0].accepted) == (40, 26)
    assert 40 <= judge[0].requests - asked < 60  # what was rejudged before the kill is not judged again
    assert len(read_results(tmp_path / "again")) == 40
    info, metrics = (
        [json.loads((tmp_path / directory / name).read_text()) for directory in ("out", "again")]
        for name in ("run_info.json", "metrics.json")
    )
    assert info[0]["ended_at"] < info[1]["started_at"]  # it is timed by itself
    assert [each["first"]["throughput"] is None for each in metrics] == [False, True]


async def test_run_of_given_answers_judges_only_the_answers_of_the_file(
    tmp_path: Path, judge: tuple[FakeJudge, str]
) -> None:
    answers = [
        {"problem_id": "p1", "response": "accept"},
        {"problem_id": "p1", "response": "no"},
        {"problem_id": "p3", "response": "accept too", "mode": "append"},
    ]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    write_run_config(tmp_path, problems=9, responses=["answers.jsonl"], answers_per_problem="AsGiven", k=[1, 2])
    async with running(*arguments(tmp_path, judge[1])) as process:
        worker = Worker(process.address)
        assert (await worker.take()).remaining == 0
        status = await worker.wait_for(*DONE)
        await worker.close()
    assert (status.state, status.datasets[0].total) == (ledger_pb2.RUN_STATE_SUCCEEDED, 3)
    summary, info = (json.loads((tmp_path / "out" / name).read_text()) for name in ("summary.json", "run_info.json"))
    assert summary["partial"] == "7 of 9 problems have no answer and count nowhere (--samples as-given)"
    (dataset,) = summary["datasets"].values()
    assert dataset["metrics"]["pass_at_2"]["n"] == 1  # p1 alone has two answers
    assert metric_options(info).ks == (1, 2)
    found = {(r["problem_id"], r["sample"], r["accepted"], r["mode"]) for r in read_results(tmp_path / "out")}
    assert found == {("p1", 0, True, "auto"), ("p1", 1, False, "auto"), ("p3", 0, True, "append")}


async def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path, judge: tuple[FakeJudge, str]) -> None:
    write_run_config(tmp_path, responses=["nowhere.jsonl"])
    process = AggregatorProcess(arguments(tmp_path, judge[1]))
    with pytest.raises(AssertionError, match="exit code 2"):
        await process.start()
    (line,) = process.stderr.splitlines()
    assert line.startswith("evalrun: ")
    assert "nowhere.jsonl" in line
