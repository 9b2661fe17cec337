"""EVAL@turns through the real process, killed between turns: a worker whose answer of turn t is scripted."""

import asyncio
import json
import signal
from collections.abc import Sequence
from pathlib import Path

from builders.aggregator.process import Worker, completion_for, read_results, running, write_run_config

from evalrun_aggregator.turns.feedback import WRONG
from evalrun_client.fake_judge import FakeJudge, FakeJudgeServer
from evalrun_proto.ledger.v1 import ledger_pb2

ACCEPTED_IN = {"p0": 0, "p1": 1, "p2": 2, "p3": None}
"""Turn whose answer is accepted."""
ROWS = [("p0", 0), ("p1", 0), ("p1", 1), ("p2", 0), ("p2", 1), ("p2", 2), ("p3", 0), ("p3", 1), ("p3", 2)]
"""What the protocol asks for, each once: 3 turns at most, and none after an accepted answer."""
BY_HAND = {
    "accepted_at_1": 1 / 4,
    "accepted_by_turn_1": 1 / 4,
    "accepted_by_turn_2": 2 / 4,
    "accepted_by_turn_3": 3 / 4,
    "recovery_rate_by_turn_2": 1 / 3,  # p1, p2 and p3 failed at first; p1 recovered
    "recovery_rate_by_turn_3": 2 / 3,
    "recovery_rate": 2 / 3,
    "turns_to_accept": (1 + 2 + 3) / 3,
    "zero_reward_rate_by_turn_1": 3 / 4,
    "zero_reward_rate_by_turn_3": 1 / 4,
    "avg_gen_tokens_turn_2": 10.0,
    "avg_total_gen_tokens": 90 / 4,
}


class TurnWorker(Worker):
    async def submit(self, items: Sequence[ledger_pb2.WorkItem]) -> int:
        completions = [completion_for(item, answer(item.key)) for item in items]
        request = ledger_pb2.SubmitCompletionsRequest(worker_id=self.name, completions=completions)
        return (await self.stub.SubmitCompletions(request, timeout=60)).stored

    async def take_all(self, count: int) -> list[ledger_pb2.WorkItem]:
        """Take work until there are as many items: verdicts open them."""
        taken: list[ledger_pb2.WorkItem] = []
        async with asyncio.timeout(60):
            while len(taken) < count:
                response = await self.take()
                assert response.remaining, "the ledger said that nothing may follow while a turn could open"
                taken += response.items
                self.seen += response.items
                await asyncio.sleep(0.01)
        return sorted(taken, key=lambda item: item.key.problem_id)


def answer(key: ledger_pb2.WorkKey) -> str:
    said = "accept" if ACCEPTED_IN[key.problem_id] == key.turn else "no"
    return f"<think>hm</think>\n{key.problem_id} turn {key.turn}: {said}"


def chat(item: ledger_pb2.WorkItem) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in item.messages]


def order(directory: Path, **dataset: str) -> list[str]:
    protocol = {"name": "EVAL@turns", "turns": {"limit": 3, "shownTests": 4}}
    path = write_run_config(directory, problems=4, protocol=protocol, dataset=dataset)
    records = [json.loads(line) for line in (directory / "first.jsonl").read_text().splitlines()]
    for record in records:
        record["ground_truth"] = {
            "inputs": ["7\n", "private in\n"], "outputs": ["8\n", "private out\n"], "groups": ["public", "private"],
        }  # fmt: skip
    (directory / "first.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return ["--work-order", str(path), "--ledger", str(directory / "ledger.sqlite3")]


async def test_aggregator_killed_between_turns_loses_and_repeats_no_turn(tmp_path: Path) -> None:
    server = FakeJudgeServer(FakeJudge())
    arguments = [*order(tmp_path), "--judge", await server.start()]
    messages: list[list[tuple[str, str]]] = []
    async with running(*arguments) as process:
        worker = TurnWorker(process.address)
        first = await worker.take_all(4)
        assert {(item.key.turn, len(item.messages)) for item in first} == {(0, 1)}
        assert await worker.submit(first) == 4
        second = await worker.take_all(3)
        assert [(item.key.problem_id, item.key.turn) for item in second] == [("p1", 1), ("p2", 1), ("p3", 1)]
        messages = [chat(item) for item in second]
        await worker.close()
        await process.end(signal.SIGKILL)  # turn 2 is out, and nothing of it stored
    async with running(*arguments) as process:
        worker = TurnWorker(process.address)
        again = await worker.take_all(3)
        assert [chat(item) for item in again] == messages
        assert await worker.submit(again[1:]) == 2
        await worker.close()
        await process.end(signal.SIGKILL)  # their verdicts are on disk, or are not
    async with running(*arguments) as process:
        worker = TurnWorker(process.address)
        await worker.work()
        status = await worker.wait_for(ledger_pb2.RUN_STATE_SUCCEEDED, ledger_pb2.RUN_STATE_FAILED)
        await worker.close()
        assert await process.end() == 0
    await server.stop()
    assert status.state == ledger_pb2.RUN_STATE_SUCCEEDED, status.message
    assert [(d.total, d.generated, d.judged) for d in status.datasets] == [(len(ROWS),) * 3]
    prompt, said, feedback = messages[0]
    assert said == ("assistant", "p1 turn 0: no")
    assert feedback[0] == "user"
    assert "7" in feedback[1]
    assert "private" not in json.dumps(messages)
    results = read_results(tmp_path / "out")
    assert [(row["problem_id"], row["turn"]) for row in results] == ROWS
    metrics = json.loads((tmp_path / "out" / "summary.json").read_text())["datasets"]["first"]["metrics"]
    assert {name: metrics[name]["value"] for name in BY_HAND} == BY_HAND
    records = [json.loads(line) for line in (tmp_path / "out" / "qa_logs" / "first_qa.jsonl").read_text().splitlines()]
    last = {record["problem_id"]: record for record in records}
    assert {name: record["turn"] for name, record in last.items()} == {"p0": 0, "p1": 1, "p2": 2, "p3": 2}
    assert [(m["role"], m["content"]) for m in last["p1"]["messages"]] == [prompt, said, feedback]
    assert "By turn" in (tmp_path / "out" / "report.html").read_text()


async def test_feedback_wrong_says_only_that_the_answer_is_wrong(tmp_path: Path) -> None:
    server = FakeJudgeServer(FakeJudge())
    arguments = [*order(tmp_path, feedback="Wrong"), "--judge", await server.start()]
    async with running(*arguments) as process:
        worker = TurnWorker(process.address)
        await worker.work()
        await worker.wait_for(ledger_pb2.RUN_STATE_SUCCEEDED)
        await worker.close()
    await server.stop()
    replies = {content for item in worker.seen for role, content in chat(item)[1:] if role == "user"}
    assert replies == {WRONG}
    assert len(worker.seen) == len(ROWS)
