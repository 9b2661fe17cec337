"""A run with a sequential gate, through the real process: it stops as soon as the gate has decided."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders.aggregator.process import Worker, running, write_run_config
from builders.results.samples import sample_result
from builders.results.stored_runs import write_run

from evalrun_client.fake_judge import FakeJudge, FakeJudgeServer
from evalrun_proto.ledger.v1 import ledger_pb2
from evalrun_results.sequential.order import order_problems

PROBLEMS = 120
"""The scripted worker has every third of them rejected."""


def a_run(directory: Path, solved: range, **gate: object) -> Path:
    """Write a baseline that solved some problems, and a run configuration that is gated by it."""
    statuses = [["success"] if place in solved else ["wrong_answer"] for place in range(PROBLEMS)]
    rows = (sample_result(f"p{place}", 0, each, dataset="first") for place, each in enumerate(statuses))
    write_run(directory / "main", rows)
    path = write_run_config(directory, problems=PROBLEMS)
    order = json.loads(path.read_text())
    asked = {"baseline": "./main", "dataset": "first", "maxRegression": "0.02", "sequential": True}
    order["spec"]["gate"] = asked | gate
    path.write_text(json.dumps(order))
    return path


async def ended(
    path: Path, directory: Path, *, starts: int = 1
) -> tuple[list[ledger_pb2.GetStatusResponse], dict[str, Any]]:
    """Run a run configuration to its end, and start it again as often; gives what each process said, and
    summary.json."""
    server = FakeJudgeServer(FakeJudge())
    arguments = ["--work-order", str(path), "--ledger", str(directory / "l.sqlite3"), "--judge", await server.start()]
    answers = []
    for _ in range(starts):
        async with running(*arguments) as process:
            worker = Worker(process.address)
            await worker.work()
            answers.append(await worker.wait_for(ledger_pb2.RUN_STATE_SUCCEEDED, ledger_pb2.RUN_STATE_FAILED))
            await worker.close()
            assert await process.end() == 0
    await server.stop()
    return answers, json.loads((directory / "out" / "summary.json").read_text())


async def test_sequential_run_stops_at_the_gate_decision_and_reports_cancelled_answers(tmp_path: Path) -> None:
    answers, summary = await ended(a_run(tmp_path, range(PROBLEMS)), tmp_path, starts=2)
    for status in answers:  # the second process only answers from the ledger
        assert (status.state, status.gate) == (ledger_pb2.RUN_STATE_SUCCEEDED, ledger_pb2.GATE_DECISION_FAILED)
        assert status.datasets[0].cancelled > 0
        assert status.datasets[0].total + status.datasets[0].cancelled == PROBLEMS
        assert status.stopped_early == f"first: {status.datasets[0].cancelled} of {PROBLEMS} answers were not needed"
        assert sum(status.datasets[0].final_status.values()) == status.datasets[0].judged == status.datasets[0].total
    gate, stopped = summary["gate"], summary["stoppedEarly"]["datasets"]["first"]
    assert (gate["decision"], gate["sequential"], gate["of_problems"]) == ("FAIL", True, PROBLEMS)
    assert gate["decided_after"] == stopped["problems"] == summary["counts"]["samples"] < PROBLEMS
    assert stopped["cancelled"] == PROBLEMS - stopped["problems"]
    figure = summary["datasets"]["first"]["metrics"]["accepted_at_1"]
    assert figure["method"] == "betting"
    assert figure["low"] <= figure["value"] <= figure["high"]
    assert {each["method"] for each in summary["datasets"]["first"]["metrics"].values()} <= {"betting", "none"}


async def test_the_results_are_those_of_the_first_problems_in_drawing_order(tmp_path: Path) -> None:
    _, summary = await ended(a_run(tmp_path, range(PROBLEMS)), tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    order = order_problems(0, "first", [f"p{place}" for place in range(PROBLEMS)])
    assert [row["problem_id"] for row in rows] == order[: summary["gate"]["decided_after"]]


@pytest.mark.parametrize("stop", [False, True])
async def test_decision_is_the_same_if_all_problems_are_drawn(tmp_path: Path, stop: bool) -> None:
    """`stopEarly: false` draws everything, and its figures have the usual intervals."""
    _, summary = await ended(a_run(tmp_path, range(PROBLEMS), stopEarly=stop), tmp_path)
    if not stop:
        assert "stoppedEarly" not in summary
        assert summary["counts"]["samples"] == PROBLEMS
        assert summary["datasets"]["first"]["metrics"]["accepted_at_1"]["method"] == "wilson"
    assert (summary["gate"]["decision"], summary["gate"]["decided_after"]) == ("FAIL", DECIDED_AFTER)


@pytest.mark.parametrize(("solved", "decision"), [(range(PROBLEMS), "FAIL"), (range(0), "PASS")])
async def test_keep_passing_gate_stops_only_failing_runs(tmp_path: Path, solved: range, decision: str) -> None:
    _, summary = await ended(a_run(tmp_path, solved, keepPassing=True), tmp_path)
    assert summary["gate"]["decision"] == decision
    assert summary["gate"]["decided_after"] < PROBLEMS
    assert ("stoppedEarly" in summary) == (decision == "FAIL")
    assert (summary["counts"]["samples"] == PROBLEMS) == (decision == "PASS")


async def test_one_failure_stops_a_run_that_another_gate_would_keep(tmp_path: Path) -> None:
    path = a_run(tmp_path, range(PROBLEMS), keepPassing=True)
    order = json.loads(path.read_text())
    passes = {"anchor": "0.0", "dataset": "first", "sequential": True, "keepPassing": True}
    order["spec"]["gates"] = [order["spec"].pop("gate"), passes]
    path.write_text(json.dumps(order))
    _, summary = await ended(path, tmp_path)
    assert [each["decision"] for each in summary["gates"]] == ["FAIL", "PASS"]
    assert summary["counts"]["samples"] < PROBLEMS


DECIDED_AFTER = 9
"""Of the baseline and the worker above: a number that follows from the order and the verdicts alone."""


async def test_gate_changed_after_the_first_results_is_inconclusive_and_names_the_change(tmp_path: Path) -> None:
    path = a_run(tmp_path, range(0, PROBLEMS, 3), population="similar", maxRegression="0.9")
    server = FakeJudgeServer(FakeJudge())
    arguments = ["--work-order", str(path), "--ledger", str(tmp_path / "l.sqlite3"), "--judge", await server.start()]
    async with running(*arguments) as process:
        worker = Worker(process.address)
        assert await worker.submit((await worker.take(2, fresh=True)).items) == 2
        await worker.close()
        assert await process.end() == 0
    order = json.loads(path.read_text())
    order["spec"]["gate"]["maxRegression"] = "0.02"
    path.write_text(json.dumps(order))
    await server.stop()
    answers, summary = await ended(path, tmp_path)
    assert answers[0].gate == ledger_pb2.GATE_DECISION_INCONCLUSIVE
    assert "the gate or its baseline was changed while the run was under way" in answers[0].gate_message
    assert summary["gate"]["low"] is None
