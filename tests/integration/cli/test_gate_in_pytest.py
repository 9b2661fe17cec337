"""The fixture `evalrun_gate`, in a pytest of its own."""

import subprocess
import sys
from pathlib import Path

import pytest
from builders.results.stored_runs import verdicts_of, write_run

CONFTEST = 'pytest_plugins = ["evalrun.pytest_plugin"]\n'
TEST = """
def test_candidate_may_ship(evalrun_gate):
    evalrun_gate({run!r}, [{{"baseline": {baseline!r}, "dataset": "humaneval", "maxRegression": {margin!r}}}])
"""


@pytest.mark.parametrize(
    ("solved", "margin", "code", "said"),
    [
        (80, "0.05", 0, ["1 passed"]),
        (50, "0.02", 1, ["FAIL: ", "1 failed"]),
        (80, "0", 1, ["INCONCLUSIVE: ", "1 failed"]),
        (None, "0.05", 1, ["BadInputError", "1 failed"]),
    ],
)
def test_gate_in_pytest_fails_the_test_unless_the_decision_is_pass(
    tmp_path: Path, solved: int | None, margin: str, code: int, said: list[str]
) -> None:
    dev = {"humaneval": {"role": "dev"}}
    write_run(tmp_path / "main", verdicts_of([True] * 80 + [False] * 20), run="main", datasets=dev)
    if solved is not None:
        verdicts = verdicts_of([True] * solved + [False] * (100 - solved))
        write_run(tmp_path / "new", verdicts, run="new", datasets=dev)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    test = TEST.format(run=str(tmp_path / "new"), baseline=str(tmp_path / "main"), margin=margin)
    (tmp_path / "test_ships.py").write_text(test)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    for each in said:
        assert each in done.stdout
