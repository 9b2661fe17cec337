"""The published openreward serves our environment, and its client gets the judge's rewards. Needs one that holds it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from builders.other_interpreter import ask_script
from builders.ports import free_port
from builders.reward.stack import reward_stack

TRUTH = {"inputs": ["1\n", "2\n"], "outputs": ["1\n", "4\n"]}
WANTED = {"print(int(input()) ** 2)": 1.0, "print(1)": 0.5, "print('no')": 0.0, "print(": 0.0}


async def test_an_episode_gets_the_judges_reward_or_fails_and_never_a_zero_instead(tmp_path: Path) -> None:
    python = os.environ.get("EVALRUN_TEST_OPENREWARD")
    if not python:
        pytest.skip("EVALRUN_TEST_OPENREWARD names no interpreter with openreward (docs/testing.md)")
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"prompt": "Square it.", "ground_truth": TRUTH}) + "\n")
    async with reward_stack(tmp_path) as (service,):
        asked: dict[str, Any] = {
            "url": service.address,
            "nobody": f"http://127.0.0.1:{free_port()}",
            "tasks": str(tasks),
            "answers": [f"```python\n{code}\n```" for code in WANTED],
        }
        given = await ask_script(python, "reward/openreward_side.py", asked)
    assert given["seen"] == [{"task": 0}]  # a client is not told the ground truth
    calls = [call for (call,) in given["answers"]]
    assert [call["reward"] for call in calls] == list(WANTED.values())
    assert all(call["finished"] and call["prompt"] == "Square it." for call in calls)
    assert [call["final_status"] for call in calls][::3] == ["success", "syntax_error"]
    first, second = given["twice"]
    assert first["reward"] == 1.0
    assert "episode has finished" in second["error"]
    (gone,) = given["gone"]
    assert "ToolFailed" in gone["error"]
