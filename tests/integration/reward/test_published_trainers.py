"""The published TRL and OpenRLHF ask for rewards as they do in training. Needs an environment that holds both."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from builders.generator.rollout import make_tiny_model
from builders.other_interpreter import PATHS, ROOT, ask_script
from builders.reward.stack import reward_stack

from evalrun_runtime.process import die_with_parent

pytestmark = pytest.mark.timeout(400)
"""Importing TRL takes some 20 s of CPU."""

INTERPRETER = "EVALRUN_TEST_TRAINERS_PYTHON"
TRUTH = json.dumps({"inputs": ["1\n", "2\n"], "outputs": ["1\n", "4\n"]})
WANTED = {"print(int(input()) ** 2)": 1.0, "print(1)": 0.5, "print('no')": 0.0, "print(": 0.0}


async def test_trl_and_openrlhf_get_the_judges_rewards(gen_cpu: Path, tmp_path: Path) -> None:
    python = os.environ.get(INTERPRETER)
    if not python:
        pytest.skip(f"{INTERPRETER} names no interpreter with trl and openrlhf (docs/testing.md)")
    rows = [{"ground_truth": TRUTH, "solution": f"```python\n{code}\n```"} for code in WANTED]
    model = await make_tiny_model(gen_cpu, tmp_path / "model")
    async with reward_stack(tmp_path) as (service,):
        asked = {"url": service.address, "rows": rows, "model": str(model)}
        given = await ask_script(python, "reward/trainers_side.py", asked, HF_HUB_OFFLINE="1")
    wanted = list(WANTED.values())
    assert given["trl"] == {"code_reward": wanted, "code_reward_async": wanted}
    assert [answer["rewards"] for answer in given["openrlhf"]] == [[reward] for reward in wanted]
    assert all(answer["extra_logs"]["judged"] == [1.0] for answer in given["openrlhf"])


async def test_example_of_trl_trains_on_the_judges_rewards(gen_cpu: Path, tmp_path: Path) -> None:
    python = os.environ.get(INTERPRETER)
    if not python:
        pytest.skip(f"{INTERPRETER} names no interpreter with trl and openrlhf (docs/testing.md)")
    model = await make_tiny_model(gen_cpu, tmp_path / "model")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))  # the command `evalrun`
    environment = {**os.environ, "PYTHONPATH": PATHS, "PATH": path, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    example = ROOT / "examples" / "rewards_in_trl.py"
    process = await asyncio.create_subprocess_exec(
        python, example, model, "--cpu", cwd=tmp_path, env=environment, stdout=-1, stderr=-1,
        preexec_fn=die_with_parent,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode(errors="replace")[-4000:]
    steps = [line for line in out.decode().splitlines() if line.startswith("step ")]
    assert [step.rpartition(", ")[2] for step in steps] == ["not judged 0.0"] * 2
