"""`evalrun data check` runs references and programs that do nothing, contained."""

import json
import subprocess
import sys
from pathlib import Path

ASSERTED = {
    "right": (["assert right(2) == 4"], "def right(x):\n    return 2 * x\n"),
    "wrong": (["assert wrong(2) == 4", "assert wrong(3) == 7"], "def wrong(x):\n    return 2 * x\n"),
    "weak": (["assert weak(2) is None or True"], None),
    "broken": (["assert broken(2 == 4"], "def broken(x):\n    return 2 * x\n"),
    "late": (["assert late(2) == 5"], "def late(x):\n    return 2 * x\n"),
}


def test_data_check_names_references_that_fail_and_tests_that_accept_nothing(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    rows = []
    for name, (tests, reference) in ASSERTED.items():
        truth = {"test_list": tests, "entry_point": name}
        row = {"dataset": "ours", "problem_id": name, "prompt": f"Write {name}.", "ground_truth": truth}
        rows.append(row if reference is None else {**row, "canonical_solution": reference})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "evalrun_cli", "data", "check", str(file)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (2, "")
    does_not_compile = f"{file}:4: problem 'broken': the test does not compile: line 1: '(' was never closed"
    assert checked.stdout.splitlines() == [
        f"{file}:2: problem 'wrong': its reference fails: test 1: wrong answer, the assertion failed",
        f"{file}:3: problem 'weak': its tests accept a program that does nothing, so wrong answers pass",
        does_not_compile,
        f"{file}:5: problem 'late': its reference fails: wrong answer, the assertion failed",
        f"{file}: 5 of 5 problems can be read, 4 mistakes",
    ]
    read = subprocess.run([*command, "--read-only"], capture_output=True, text=True, check=False)
    assert read.stdout.splitlines() == [does_not_compile, f"{file}: 5 of 5 problems can be read, 1 mistake"]
