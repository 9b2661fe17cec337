"""`evalrun data check` runs references and programs that do nothing, contained."""

import json
import subprocess
import sys
from pathlib import Path

ASSERTED = {
    "right": (["assert right(2) == 4"], "def right(x):\n    return 2 * x\n"),
    "wrong": (["assert wrong(2) == 4", "assert wrong(3) == 7"], "def wrong(x):\n    return 2 * x\n"),
    "weak": (["assert weak(2) is None or True"], None),
}


def test_data_check_names_references_that_fail_and_tests_that_accept_nothing(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    rows = []
    for name, (tests, reference) in ASSERTED.items():
        row = {"dataset": "ours", "problem_id": name, "prompt": f"Write {name}.", "ground_truth": {"test_list": tests}}
        rows.append(row if reference is None else {**row, "canonical_solution": reference})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "evalrun_cli", "data", "check", str(file)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (2, "")
    assert sorted(checked.stdout.splitlines()) == sorted(
        [
            f"{file}:2: problem 'wrong': its reference fails: test 1: wrong answer, the assertion failed",
            f"{file}:3: problem 'weak': its tests accept a program that does nothing, so wrong answers pass",
            f"{file}: 3 of 3 problems can be read, 2 mistakes",
        ]
    )
    read = subprocess.run([*command, "--read-only"], capture_output=True, text=True, check=False)
    assert (read.returncode, read.stdout) == (0, f"{file}: 3 of 3 problems can be read, 0 mistakes\n")
