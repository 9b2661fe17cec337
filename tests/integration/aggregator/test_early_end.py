"""A run that is told to end before everything is decided: what there is is written and marked, once and for good."""

import json
from pathlib import Path

import grpc
import pytest
from builders.aggregator.process import Worker, read_results, running, write_run_config
from builders.results.samples import sample_result
from builders.results.stored_runs import write_run

from evalrun_client.fake_judge import Answer, FakeJudge, FakeJudgeServer, make_scripted_verdict, unavailable
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_proto.ledger.v1 import ledger_pb2

REASON = "activeDeadlineSeconds (60) have passed"


def some_verdicts(request: judge_pb2.JudgeRequest) -> Answer:
    """Judge the first five problems; the others wait forever."""
    return (
        make_scripted_verdict(request) if request.submission.text[:2] in {f"p{n}" for n in range(5)} else unavailable()
    )


async def test_early_end_writes_existing_results_marked_partial_and_survives_a_restart(tmp_path: Path) -> None:
    write_run(tmp_path / "main", [sample_result("p0", 0, ["success"], dataset="first")])
    path = write_run_config(tmp_path, problems=20)
    order = json.loads(path.read_text())
    order["spec"]["gate"] = {"baseline": "./main", "dataset": "first", "maxRegression": "0.02"}
    path.write_text(json.dumps(order))
    judge = FakeJudge()
    judge.script = some_verdicts
    server = FakeJudgeServer(judge)
    arguments = ["--work-order", str(path), "--ledger", str(tmp_path / "l.sqlite3"), "--judge", await server.start()]
    end = ledger_pb2.EndRunRequest(reason=REASON)
    async with running(*arguments) as process:
        worker = Worker(process.address)
        with pytest.raises(grpc.aio.AioRpcError) as nothing_yet:
            await worker.stub.EndRun(end)
        with pytest.raises(grpc.aio.AioRpcError) as without_reason:
            await worker.stub.EndRun(ledger_pb2.EndRunRequest())
        items = list((await worker.take(12)).items)
        await worker.submit(items[:8])
        while (status := await worker.status()).datasets[0].judged < 5:
            continue
        await worker.stub.EndRun(end)
        await worker.stub.EndRun(ledger_pb2.EndRunRequest(reason="another"))
        status = await worker.wait_for(ledger_pb2.RUN_STATE_DEGRADED)
        work = await worker.take(100)
        assert (list(work.items), work.remaining) == ([], 0)  # a generator that still asks may go
        assert await worker.submit(items[8:]) == 0
        await worker.close()
        assert await process.end() == 0
    assert nothing_yet.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert without_reason.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert (status.ended_early, status.output_url) == (REASON, str(tmp_path / "out"))
    async with running(*arguments) as process:  # it only answers: nothing is judged or written again
        worker = Worker(process.address)
        again = await worker.status()
        await worker.close()
    await server.stop()
    assert (again.state, again.ended_early) == (ledger_pb2.RUN_STATE_DEGRADED, REASON)
    assert (again.datasets[0].generated, again.datasets[0].judged) == (8, 5)
    assert again.gate == ledger_pb2.GATE_DECISION_INCONCLUSIVE
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["state"], summary["partial"]) == ("Degraded", REASON)
    counts = summary["datasets"]["first"]["counts"]
    assert (counts["problems"], counts["judged"], counts["not_judged"]) == (20, 5, 15)
    assert summary["datasets"]["first"]["coverage"] == 0.25
    assert summary["warnings"][0] == (
        f"these results are partial: {REASON}: 15 answers have no verdict and count neither way"
    )
    assert f"the run ended early, so nothing was compared: {REASON}" in summary["gate"]["message"]
    results = read_results(tmp_path / "out")
    assert [row["judged"] for row in results] == [True] * 5 + [False] * 15
    assert {row["not_judged_reason"] for row in results[5:]} == {f"the run ended early: {REASON}"}
    assert [bool(row["response"]) for row in results] == [True] * 8 + [False] * 12
    info = json.loads((tmp_path / "out" / "run_info.json").read_text())
    assert info["partial"] == REASON
    assert [(event["act"], event["detail"]) for event in info["events"]] == [("end", REASON)]
