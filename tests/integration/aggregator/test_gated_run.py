"""A run with a gate, through the real process: decided at its end, told to whoever asks, also after a restart."""

import json
from pathlib import Path

import pytest
from builders.aggregator.process import Worker, running, write_run_config
from builders.results.samples import sample_result
from builders.results.stored_runs import write_run

from evalrun_client.fake_judge import FakeJudge, FakeJudgeServer
from evalrun_proto.ledger.v1 import ledger_pb2

PROBLEMS = 60
"""The scripted worker has every third of them rejected: 40 are accepted."""


@pytest.mark.parametrize(
    ("baseline", "decision", "word", "says"),
    [
        (range(PROBLEMS), ledger_pb2.GATE_DECISION_FAILED, "FAIL", "first accepted_at_1: -0.3333 ["),
        (range(0), ledger_pb2.GATE_DECISION_PASSED, "PASS", "first accepted_at_1: +0.6667 ["),
        (range(42), ledger_pb2.GATE_DECISION_INCONCLUSIVE, "INCONCLUSIVE", "to decide it needs about"),
        (None, ledger_pb2.GATE_DECISION_NO_BASELINE, "INCONCLUSIVE", "the baseline cannot be read: "),
    ],
    ids=["failed", "passed", "inconclusive", "no baseline"],
)
async def test_gate_is_decided_at_the_end_and_run_succeeds_whatever_the_decision(
    tmp_path: Path, baseline: range | None, decision: "ledger_pb2.GateDecision.ValueType", word: str, says: str
) -> None:
    if baseline is not None:
        solved = [["success"] if place in baseline else ["wrong_answer"] for place in range(PROBLEMS)]
        rows = (sample_result(f"p{place}", 0, statuses, dataset="first") for place, statuses in enumerate(solved))
        write_run(tmp_path / "main", rows)
    path = write_run_config(tmp_path, problems=PROBLEMS)
    order = json.loads(path.read_text())
    order["spec"]["gate"] = {"baseline": "./main", "dataset": "first", "maxRegression": "0.02"}
    path.write_text(json.dumps(order))
    server = FakeJudgeServer(FakeJudge())
    arguments = ["--work-order", str(path), "--ledger", str(tmp_path / "l.sqlite3"), "--judge", await server.start()]
    answers = []
    for _ in range(2):  # the second process only answers from the ledger
        async with running(*arguments) as process:
            worker = Worker(process.address)
            await worker.work()
            answers.append(await worker.wait_for(ledger_pb2.RUN_STATE_SUCCEEDED, ledger_pb2.RUN_STATE_FAILED))
            await worker.close()
            assert await process.end() == 0
    await server.stop()
    for status in answers:
        assert (status.state, status.gate) == (ledger_pb2.RUN_STATE_SUCCEEDED, decision)
        assert says in status.gate_message
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["state"], summary["gate"]["decision"]) == ("Succeeded", word)
    assert summary["gate"]["message"] == answers[0].gate_message
    assert word in (tmp_path / "out" / "report.html").read_text()
