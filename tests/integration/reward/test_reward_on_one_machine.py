"""`evalrun serve reward`: a real sandbox and judge behind it, started and ended by one command."""

import select
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders.command_line import child_running, evalrun, evalrun_started
from builders.judge.sandbox import state_of
from builders.reward.service import ECHO, WRONG, batch, post

from evalrun_data.demo import problems
from evalrun_runtime.ready_line import parse_ready_line

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the default session store out of the user's state directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "evalrun"


def ready(process: "subprocess.Popen[str]") -> str:
    """Wait for the ready line; returns the address."""
    if process.stdout is None:
        raise RuntimeError("no stdout")
    while line := process.stdout.readline():
        if address := parse_ready_line(line):
            return address
        select.select([process.stdout], [], [], 1)
    raise AssertionError(f"it ended with {process.wait()}")


async def rewards(address: str, *answers: str) -> list[dict[str, Any]]:
    status, body, _ = await post(address, "/v1/rewards", batch(*answers))
    assert status == 200, body
    results: list[dict[str, Any]] = body["results"]
    return results


async def test_one_command_serves_judged_rewards_and_ends_every_part(state: Path) -> None:
    demo = problems()[0]
    with evalrun_started("serve", "reward", "--problems", "builtin:demo", "--log-level", "warning") as process:
        address = ready(process)
        parts = [child_running(process.pid, f"evalrun_{part}") for part in ("sandbox", "judge", "reward")]
        right, wrong, half = await rewards(address, ECHO, WRONG, "```python\nprint(1)\n```")
        assert (right["reward"], right["codes"], right["final_status"]) == (1.0, [True, True], "success")
        assert (wrong["reward"], wrong["codes"]) == (0.0, [False, False])
        assert (half["reward"], half["accepted"], half["codes"]) == (0.5, False, [True, False])
        named = {"response": "no code", "dataset": demo.dataset, "problem_id": demo.problem_id}
        (known,) = (await post(address, "/v1/rewards", {"samples": [named]}))[1]["results"]
        assert (known["outcome"], known["reward"]) == ("judged", 0.0)
        status, started, _ = await post(address, "/start_instance", {"instance_hash": demo.problem_id})
        assert status == 200, started
        process.terminate()
        assert process.wait(60) == 0
    assert None not in parts
    assert [part for part in parts if part and state_of(part) != "Z"] == []
    assert [file.suffix for file in sorted(state.iterdir())][:1] == [".sqlite3"]  # noqa: ASYNC240 - nothing else runs


def test_refusal_of_a_part_is_printed_and_ends_with_code_2() -> None:
    ended = evalrun("serve", "reward", "--problems", "/nowhere.jsonl", "--slots", "1")
    assert ended.returncode == 2
    assert "/nowhere.jsonl" in ended.stderr
    ended = evalrun("serve", "reward", "--judge", "grpc://127.0.0.1:1", "--slots", "1")
    assert ended.returncode == 2
    assert "--slots: only for a judge that is started here" in ended.stderr
