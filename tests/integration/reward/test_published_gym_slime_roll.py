"""NeMo Gym, slime and ROLL load ours and get the judge's rewards. Needs the published sources (docs/testing.md)."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from builders.generator.rollout import make_tiny_model
from builders.other_interpreter import PATHS, ask_script
from builders.ports import free_port
from builders.reward.stack import reward_stack

pytestmark = pytest.mark.timeout(400)
"""Importing Ray and torch takes some 10 s of CPU."""

TRUTH = json.dumps({"inputs": ["1\n", "2\n"], "outputs": ["1\n", "4\n"]})
WANTED = {"print(int(input()) ** 2)": 1.0, "print(1)": 0.5, "print('no')": 0.0, "print(": 0.0}
ROWS = [{"ground_truth": TRUTH, "solution": f"```python\n{code}\n```"} for code in WANTED]
REWARDS = list(WANTED.values())


async def asked_of(source: str | None, script: str, tmp_path: Path, **asked: str) -> Any:
    """Return what a script says that runs with a trainer's published source."""
    python = os.environ.get("EVALRUN_TEST_TRAINERS_PYTHON")
    if not python or not source:
        pytest.skip("EVALRUN_TEST_TRAINERS_PYTHON or the trainer's own variable names nothing (docs/testing.md)")
    async with reward_stack(tmp_path) as (service,):
        body = {"url": service.address, "nobody": f"http://127.0.0.1:{free_port()}", "rows": ROWS, **asked}
        place = {"PYTHONPATH": f"{PATHS}:{source}", "ROLL_LOG_DIR": str(tmp_path / "logs"), "HF_HUB_OFFLINE": "1"}
        return await ask_script(python, script, body, **place)


async def test_nemo_gym_gets_the_judges_rewards_or_a_status_that_ends_the_run(tmp_path: Path) -> None:
    given = await asked_of(os.environ.get("EVALRUN_TEST_NEMO_GYM"), "reward/nemo_gym_side.py", tmp_path)
    assert [answer["reward"] for answer in given["answers"]] == REWARDS
    assert [answer["final_status"] for answer in given["answers"]][::3] == ["success", "syntax_error"]
    assert given["theirs"] == given["answers"][0]
    assert given["gone"] == 500


async def test_slime_gets_the_judges_rewards_and_drops_a_group_without_one(tmp_path: Path) -> None:
    given = await asked_of(os.environ.get("EVALRUN_TEST_SLIME"), "reward/slime_side.py", tmp_path)
    assert given["group"] == given["alone"] == REWARDS
    assert given["gone"] == "NotJudgedError"
    assert given["kept"] == [[True, None, True], [False, "not_judged", False]]


async def test_roll_gets_the_judges_rewards_or_an_exception(gen_cpu: Path, tmp_path: Path) -> None:
    source = os.environ.get("EVALRUN_TEST_ROLL")
    if not source:
        pytest.skip("EVALRUN_TEST_ROLL names no checkout of ROLL (docs/testing.md)")
    model = await make_tiny_model(gen_cpu, tmp_path / "model")
    # A socket's path has at most 107 characters: pytest's own directory leaves Ray too few.
    with tempfile.TemporaryDirectory(prefix="ray") as directory:
        given = await asked_of(source, "reward/roll_side.py", tmp_path, model=str(model), directory=directory)
    assert given["rewards"] == given["scores"] == REWARDS
    assert given["tokens"] is False
    assert given["gone"] == "NotJudgedError"
