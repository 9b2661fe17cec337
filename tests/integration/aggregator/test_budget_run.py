"""EVAL@budget through the real process, killed in the middle: a worker whose every answer takes up to 10 tokens."""

import json
import signal
from pathlib import Path

from builders.aggregator.process import Worker, read_results, running, write_run_config

from evalrun_client.fake_judge import FakeJudge, FakeJudgeServer
from evalrun_proto.ledger.v1 import ledger_pb2

PROBLEMS = 6


async def test_each_problem_is_sampled_until_its_tokens_are_spent(tmp_path: Path) -> None:
    protocol = {
        "name": "EVAL@budget", "temperature": "0.8", "maxNewTokens": 20, "budget": {"outputTokensPerProblem": 45},
    }  # fmt: skip
    path = write_run_config(tmp_path, problems=PROBLEMS, protocol=protocol)
    server = FakeJudgeServer(FakeJudge())
    arguments = ["--work-order", str(path), "--ledger", str(tmp_path / "l.sqlite3"), "--judge", await server.start()]
    async with running(*arguments) as process:
        worker = Worker(process.address)
        first = await worker.take(100)
        # Two longest answers fit beside each other; the third waits for what they leave.
        assert [(i.key.sample, i.sampling.max_tokens) for i in first.items] == [(0, 20), (1, 20)] * PROBLEMS
        await worker.submit(first.items[:5])
        await worker.close()
        await process.end(signal.SIGKILL)
    async with running(*arguments) as process:
        worker = Worker(process.address)
        await worker.work()
        status = await worker.wait_for(ledger_pb2.RUN_STATE_SUCCEEDED, ledger_pb2.RUN_STATE_FAILED)
        await worker.close()
        assert await process.end() == 0
    await server.stop()
    assert (status.state, status.output_tokens) == (ledger_pb2.RUN_STATE_SUCCEEDED, 45 * PROBLEMS)
    assert [(d.total, d.generated, d.judged) for d in status.datasets] == [(5 * PROBLEMS,) * 3]
    tokens: dict[str, list[int]] = {}
    for result in read_results(tmp_path / "out"):
        tokens.setdefault(result["problem_id"], []).append(result["output_tokens"])
    assert tokens == {f"p{number}": [10, 10, 10, 10, 5] for number in range(PROBLEMS)}
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    metrics = summary["datasets"]["first"]["metrics"]
    assert metrics["solved_within_budget"]["value"] == 4 / 6
    assert not [name for name in metrics if name.startswith("pass_at_")]
