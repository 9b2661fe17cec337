"""The published verifiers scores traces by our reward. Needs an environment that holds it."""

import os
from pathlib import Path
from typing import Any

import pytest
from builders.other_interpreter import ask_script
from builders.ports import free_port
from builders.reward.stack import reward_stack

TRUTH = {"inputs": ["1\n", "2\n"], "outputs": ["1\n", "4\n"]}
WANTED = {"print(int(input()) ** 2)": 1.0, "print(1)": 0.5, "print('no')": 0.0, "print(": 0.0}


async def test_a_trace_gets_the_judges_reward_or_an_error_and_never_a_zero_instead(tmp_path: Path) -> None:
    python = os.environ.get("EVALRUN_TEST_VERIFIERS")
    if not python:
        pytest.skip("EVALRUN_TEST_VERIFIERS names no interpreter with verifiers (docs/testing.md)")
    rows: list[dict[str, Any]] = [{"ground_truth": TRUTH, "solution": f"```python\n{code}\n```"} for code in WANTED]
    rows.append({"ground_truth": None, "solution": "print(1)"})
    async with reward_stack(tmp_path) as (service,):
        asked = {"url": service.address, "nobody": f"http://127.0.0.1:{free_port()}", "rows": rows}
        given = await ask_script(python, "reward/verifiers_side.py", asked)
    *judged, without_tests = given["scored"]
    assert [trace["reward"] for trace in judged] == list(WANTED.values())
    assert all(trace["errors"] == [] for trace in judged)
    assert without_tests == {"reward": None, "stop": "task_error", "errors": ["TaskError"]}
    assert given["gone"] == [{"reward": None, "stop": "sandbox_error", "errors": ["SandboxError"]}]
