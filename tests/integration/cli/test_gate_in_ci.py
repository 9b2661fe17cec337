"""Gates where CI systems look: the steps of action.yml in a shell of their own, and JUnit's XML."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from builders.results.stored_runs import verdicts_of, write_run

ROOT = Path(__file__).resolve().parents[3]


def run_step(directory: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the action's deciding step as a runner would, on files of `directory`."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    step = next(each for each in action["runs"]["steps"] if each.get("id") == "gate")
    given = {name: str(value.get("default", "")) for name, value in action["inputs"].items()} | inputs
    named = {name: given[text.removeprefix("${{ inputs.").removesuffix(" }}")] for name, text in step["env"].items()}
    files = {name: str(directory / name.lower()) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
        cwd=directory, env={**os.environ, **named, **files, "PATH": path}, capture_output=True, text=True,
        check=False, timeout=240,
    )  # fmt: skip


def write_runs(directory: Path, solved: int, margin: str) -> None:
    dev = {"humaneval": {"role": "dev"}}
    for name, count in (("main", 80), ("new", solved)):
        write_run(directory / name, verdicts_of([True] * count + [False] * (100 - count)), run=name, datasets=dev)
    gate = {"baseline": "main", "dataset": "humaneval", "maxRegression": margin}
    (directory / "policy.yaml").write_text(yaml.safe_dump([gate]))


@pytest.mark.parametrize(
    ("solved", "margin", "inconclusive", "code", "decision", "outcome"),
    [
        (80, "0.05", "fail", 0, "PASS", None),
        (50, "0.02", "pass", 1, "FAIL", "failure"),
        (80, "0", "fail", 1, "INCONCLUSIVE", "error"),
        (80, "0", "pass", 0, "INCONCLUSIVE", "error"),
    ],
)
def test_the_action_ends_as_its_gates(
    tmp_path: Path, solved: int, margin: str, inconclusive: str, code: int, decision: str, outcome: str | None
) -> None:
    write_runs(tmp_path, solved, margin)
    done = run_step(tmp_path, run="new", policy="policy.yaml", inconclusive=inconclusive)
    assert done.returncode == code, done.stderr
    assert (tmp_path / "github_output").read_text() == f"decision={decision}\n"
    assert f"**{decision}**" in (tmp_path / "github_step_summary").read_text()
    (suite,) = ElementTree.parse(tmp_path / "evalrun-gate.xml").getroot()
    (case,) = suite
    assert (case.get("classname"), case.get("name")) == ("humaneval", "accepted_at_1 against main")
    assert [each.tag for each in case] == ([] if outcome is None else [outcome])


def test_what_cannot_be_used_decides_nothing(tmp_path: Path) -> None:
    write_runs(tmp_path, 80, "0.05")
    done = run_step(tmp_path, run="absent", policy="policy.yaml", inconclusive="pass")
    assert done.returncode == 2
    assert "absent" in done.stderr
    assert not (tmp_path / "github_output").exists()


def test_an_input_is_no_code(tmp_path: Path) -> None:
    write_runs(tmp_path, 80, "0.05")
    done = run_step(tmp_path, run='new"; touch broken; echo "', policy="policy.yaml")
    assert done.returncode == 2
    assert not (tmp_path / "broken").exists()
