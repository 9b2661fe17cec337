"""`evalrun reward-check` with real parts and, where it is installed, the published verl."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from builders.command_line import evalrun_started, processes_with

from evalrun_cli.reward_check.ways import WAYS
from evalrun_runtime.process import die_with_parent
from evalrun_trainers import check_process

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).resolve().parents[3]
HANGING_TRAINER = """
import subprocess, time
process = subprocess.Popen(["sleep", "600"])
class SingleTurnAgentExecutor:
    def __init__(self, url): pass
    async def _fetch_rewards_via_http(self, queries, prompts, labels):
        time.sleep(600)
"""
"""A trainer in OpenRLHF's place, which starts a process of its own and then blocks."""
GONE_SECONDS = 20.0


async def check(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "evalrun_cli", "reward-check", *arguments, stdout=-1, stderr=-1,
        env={**os.environ, "PYTHONPATH": str(ROOT / "libs" / "trainers" / "src"), "CUDA_VISIBLE_DEVICES": ""},
        preexec_fn=die_with_parent,
    )  # fmt: skip
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


def by_pass(given: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["way"], each["trouble"]): each for each in given["passes"]}


def test_command_lists_the_same_ways_as_the_check_process() -> None:
    assert {name: set(ways) for name, ways in WAYS.items()} == {
        name: set(ways) for name, ways in check_process.WAYS.items()
    }


async def test_no_evalrun_reward_is_wrong_or_lost_under_broken_calls_and_killed_parts() -> None:
    code, out, err = await check("--trainer", "none", "--answers", "150", "--faults", "0.3", "--json")
    assert code == 0, err
    passes = by_pass(json.loads(out))
    assert passes["evalrun", "broken calls"]["calls_broken"] > 10
    assert "sandbox was ended by SIGKILL" in err
    assert "judge was ended by SIGKILL" in err
    assert [(each["wrong"], each["without_reward"]) for each in passes.values()] == [(0, 0)] * 3


async def test_broken_calls_make_rewards_of_verl_wrong_and_leave_ours_right(gen_cpu: Path) -> None:
    code, out, err = await check(
        "--trainer", "verl", "--python", str(gen_cpu), "--answers", "60", "--faults", "0.2", "--json"
    )
    assert code == 0, err
    given = json.loads(out)
    passes = by_pass(given)
    assert given["version"] == "0.9.1"
    assert passes["own", "none"]["wrong"] == 0
    assert passes["own", "broken calls"]["wrong"] > 0
    assert passes["own", "broken calls"]["without_reward"] == 0
    for trouble in ("none", "broken calls", "killed parts"):
        assert (passes["evalrun", trouble]["wrong"], passes["evalrun", trouble]["without_reward"]) == (0, 0)


async def test_no_reward_that_trls_trainer_gets_is_wrong_or_lost() -> None:
    python = os.environ.get("EVALRUN_TEST_TRAINERS_PYTHON")
    if not python:
        pytest.skip("EVALRUN_TEST_TRAINERS_PYTHON names no interpreter with trl (docs/testing.md)")
    code, out, err = await check("--trainer", "trl", "--python", python, "--answers", "60", "--faults", "0.3", "--json")
    assert code == 0, err
    given = json.loads(out)
    passes = by_pass(given)
    assert given["version"] == "1.16.0"
    assert passes["evalrun", "broken calls"]["calls_broken"] > 0
    assert [(each["wrong"], each["without_reward"]) for each in passes.values()] == [(0, 0)] * 3


@pytest.mark.timeout(180)
def test_a_command_that_is_killed_in_mid_check_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "openrlhf" / "utils"
    package.mkdir(parents=True)
    (package / "agent.py").write_text(HANGING_TRAINER)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'libs' / 'trainers' / 'src'}:{tmp_path}")
    monkeypatch.setenv("TMPDIR", marker := str(tmp_path))
    with evalrun_started("reward-check", "--trainer", "openrlhf", "--answers", "2") as command:
        while "sleep" not in {name_of(process) for process in processes_with(marker)}:
            assert command.poll() is None
            time.sleep(0.1)
        command.kill()
    deadline = time.monotonic() + GONE_SECONDS
    while left := processes_with(marker):
        assert time.monotonic() < deadline, [name_of(process) for process in left]
        time.sleep(0.1)


def name_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:  # it has ended
        return ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trainer", "openrlhf"], "openrlhf is not installed there: install openrlhf in it"),
        (["--trainer", "none", "--python", "/no/python"], "name the trainer's interpreter"),
        (["--trainer", "none", "--python", "/bin/false"], "evalrun_trainers is not installed there"),
        (["--trainer", "none", "--sandbox-fusion", "http://127.0.0.1:1"], "--sandbox-fusion"),
    ],
)
async def test_unusable_check_arguments_are_refused_with_a_remedy(arguments: list[str], message: str) -> None:
    code, out, err = await check(*arguments, "--answers", "2")
    assert (code, out) == (2, "")
    assert message in err
