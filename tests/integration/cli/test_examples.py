"""The programs of `examples/`, started as their first lines say. The notebooks have a test of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from builders.command_line import PROJECT

pytestmark = pytest.mark.timeout(300)

EXAMPLES = PROJECT / "examples"


@pytest.mark.parametrize(
    ("name", "code", "printed"),
    [
        ("judge_own_answers.py", 0, ["pass@1 of 50%", "b: expected '12\\n', printed '3\\n'"]),
        ("decide_a_gate.py", 4, ["FAIL: "]),
        ("pick_checkpoint.sh", 0, ["out/step-200 is best at these 60 problems of next"]),
        ("ask_for_rewards.py", 0, ["right judged 1.0", "half judged 0.5"]),
        ("run_code.py", 0, ["Success 42"]),
        ("compare_three_models.py", 0, ["B - A: +42 points, differs", "C - B: +5 points, cannot be told apart"]),
        ("rank_models.sh", 0, ["1-2   judge · birch", "4   judge · dogwood"]),
        ("sample_several_times.py", 0, ["accepted_at_1: 0.400", "pass_at_10: 1.000"]),
        ("repair_in_turns.py", 0, ["accepted_at_1: 0.00", "recovery_rate: 1.00"]),
        ("own_grader.py", 0, ["mean score 0.75"]),
        ("find_failures.sh", 0, ["wrong answer", "expected:"]),
        ("sign_a_run.sh", 0, ["out/signed.bundle: verified"]),
        ("own_comparator.py", 0, ["other pair: accepted", "wrong sum: rejected"]),
        ("agent_in_turns.py", 0, ["turn 1: TypeError", "turn 2: printed: 1.5", "reward 1.0: 3 of 3 tests"]),
        ("rewards_in_verl.py", 0, ["half right: score 0.5, judged 1.0", "path=pkg://evalrun_trainers.verl_reward\n"]),
        ("rewards_in_trl.py", 0, ["1.0 for print(sum(", "0.5 for print(3)", "0.0 for no program"]),
        ("nightly_schedule.sh", 0, ["EvalSchedule nightly is valid", "results: "]),
    ],
)
def test_example_prints_its_expected_output(tmp_path: Path, name: str, code: int, printed: list[str]) -> None:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["sh" if name.endswith(".sh") else sys.executable, str(EXAMPLES / name)],
        env={**os.environ, "PATH": path}, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    for each in printed:
        assert each in done.stdout


def test_the_tables_of_examples_name_every_file() -> None:
    named = re.findall(r"^\| \[([^]]+)\]\(\1\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(file.name for file in EXAMPLES.iterdir() if file.suffix != ".md" and file.is_file())
