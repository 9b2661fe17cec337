"""What failed is run once more and told; what fails again, or fails in numbers, is a failure."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from pytest_level import MAX_RERUN, run_level

PASSES = "def test_{name}():\n    pass\n"
FAILS = "def test_{name}():\n    raise ValueError\n"
PASSES_LATER = """
def test_{name}():
    from pathlib import Path
    mark = Path(__file__).with_suffix(".mark")
    if not mark.exists():
        mark.touch()
        raise ValueError
"""


@pytest.fixture
def ran() -> list[Sequence[str]]:
    return []


def run(folder: Path, ran: list[Sequence[str]], *tests: str) -> int:
    """Run a level of these tests, with pytest's own process, and list the flags of each run."""
    for number, test in enumerate(tests):
        (folder / f"test_{number}.py").write_text(test.format(name=f"level_{number}"))

    def with_pytest(flags: Sequence[str]) -> int:
        ran.append(flags)
        command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(folder), "-c", "/dev/null", *flags]
        own = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        return subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, env=own).returncode

    return run_level("one", [str(folder)], with_pytest, folder / ".cache")


@pytest.mark.parametrize(
    ("tests", "code", "runs"),
    [
        pytest.param([PASSES, PASSES], 0, 1, id="all pass"),
        pytest.param([PASSES, PASSES_LATER], 0, 2, id="one fails beside others"),
        pytest.param([PASSES, FAILS, PASSES_LATER], 1, 2, id="one fails alone too"),
        pytest.param([PASSES_LATER] * (MAX_RERUN + 1), 1, 1, id="too many for a second try"),
        pytest.param(["nonsense("], 2, 1, id="a module that cannot be read"),
    ],
)
def test_a_level_ends(tmp_path: Path, ran: list[Sequence[str]], tests: list[str], code: int, runs: int) -> None:
    assert (run(tmp_path, ran, *tests), len(ran)) == (code, runs)


def test_what_passed_alone_is_named_and_what_failed_in_an_earlier_run_is_forgotten(
    tmp_path: Path, ran: list[Sequence[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, ran, FAILS) == 1
    assert run(tmp_path, ran, PASSES, PASSES_LATER) == 0
    assert "Failed beside others, passed alone: test_1.py::test_level_1" in capfd.readouterr().out
