"""A command whose output goes nowhere: a run keeps its results, a report says that it was lost."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from builders.command_line import COMMAND, DEMO

PROBLEM = {
    "problem_id": "sum",
    "prompt": "Add two numbers.",
    "ground_truth": {"type": "stdio", "inputs": ["1 2\n"], "outputs": ["3\n"]},
}
ANSWER = {"problem_id": "sum", "response": "print(sum(map(int, input().split())))"}


@pytest.mark.parametrize("gone", ["the reader of stdout and stderr", "every standard stream"])
def test_run_continues_without_reader_of_its_output(gone: str, tmp_path: Path) -> None:
    (tmp_path / "problems.jsonl").write_text(json.dumps(PROBLEM) + "\n")
    (tmp_path / "answers.jsonl").write_text(json.dumps(ANSWER) + "\n")
    command = [*COMMAND, "judge", "--problems=problems.jsonl", "--responses=answers.jsonl", "--output=out"]
    if gone == "every standard stream":
        command = ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *command]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(command, cwd=tmp_path, stdout=writing, stderr=writing, timeout=150, check=False)
    finally:
        os.close(writing)
    assert ended.returncode == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["state"] == "Succeeded"


def test_a_report_that_does_not_fit_on_the_disk_is_an_error_of_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*COMMAND, "validate", DEMO], stdout=full, stderr=subprocess.PIPE, text=True, timeout=150, check=False
        )
    assert (ended.returncode, ended.stderr) == (1, "evalrun: stdout: No space left on device\n")
