"""A finished run that the release before left behind, in the hands of this one."""

import json
import subprocess
import tarfile
from pathlib import Path

import archive_formats
import pytest
from builders.command_line import COMMAND

import evalrun

pytestmark = pytest.mark.timeout(300)
ACCEPTED = {"right": True, "wrong": False, "call": True}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The run's directory, brought here: its work order names the place where it was made."""
    with tarfile.open(archive_formats.RUN) as archive:
        archive.extractall(tmp_path, filter="data")
    order = tmp_path / "run" / "work_order.json"
    order.write_text(order.read_text().replace(json.loads(order.read_text())["base_dir"], str(tmp_path)))
    return tmp_path / "run"


def test_results_of_the_release_before_are_read(run: Path) -> None:
    result = evalrun.load(run)
    assert {verdict.problem_id: verdict.accepted for verdict in result.verdicts()} == ACCEPTED
    assert result.metric("sums") == pytest.approx(2 / 3)


def test_ledger_of_the_release_before_is_rejudged_with_the_same_verdicts(run: Path) -> None:
    again = run.parent / "again"
    ended = subprocess.run(
        [*COMMAND, "rejudge", str(run), "--quiet", "--output", str(again)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert {verdict.problem_id: verdict.accepted for verdict in evalrun.load(again).verdicts()} == ACCEPTED
