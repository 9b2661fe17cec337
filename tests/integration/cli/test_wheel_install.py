"""The wheel alone, in an environment that has the locked packages and nothing else of the checkout."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NAME = "kube-evalrun"
pytestmark = pytest.mark.timeout(600)


def run_program(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(each) for each in command], cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel. Its other packages are this one's: tests reach no package index."""
    directory = tmp_path_factory.mktemp("wheel")
    for target in ("wheel", "sdist"):
        built = run_program(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", directory, cwd=ROOT)
        assert built.returncode == 0, built.stderr
    (wheel,) = directory.glob("kube_evalrun-*.whl")
    assert [*directory.glob("kube_evalrun-*.tar.gz")]
    place = directory / "environment"
    venv.create(place, with_pip=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    # The path is taken as it is: .pth files below it, such as the checkout's editable install, are not read.
    (site / "locked.pth").write_text(sysconfig.get_path("purelib") + "\n")
    installed = run_program(
        place / "bin" / "python", "-m", "pip", "install", "--no-index", "--no-deps", "--quiet", wheel, cwd=directory
    )
    assert installed.returncode == 0, installed.stderr
    return place


def test_wheel_in_empty_directory_runs_demo(environment: Path, tmp_path: Path) -> None:
    ended = run_program(environment / "bin" / "evalrun", "run", "--endpoint", "builtin:demo", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "Succeeded" in ended.stdout


def test_wheel_in_empty_directory_judges_files(environment: Path, tmp_path: Path) -> None:
    tests = {"inputs": ["1 2\n"], "outputs": ["3\n"]}
    problem = {"dataset": "sums", "problem_id": "a", "prompt": "Add.", "ground_truth": tests}
    answer = {"problem_id": "a", "response": "```python\nprint(sum(map(int, input().split())))\n```"}
    for name, row in (("problems.jsonl", problem), ("answers.jsonl", answer)):
        (tmp_path / name).write_text(json.dumps(row) + "\n")
    files = ("--problems", "problems.jsonl", "--responses", "answers.jsonl")
    ended = run_program(environment / "bin" / "evalrun", "judge", *files, "--output", "out", "--json", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["sums"]["accepted_at_1"] == 1.0


def test_wheel_in_empty_directory_executes_notebook_example(environment: Path, tmp_path: Path) -> None:
    """The kernel is a process of the environment's own interpreter."""
    pytest.importorskip("nbclient", reason="nbclient is not installed: make unit installs it")
    script = (
        "import sys, nbclient, nbformat, evalrun; notebook = nbformat.read(sys.argv[1], as_version=4); "
        "nbclient.NotebookClient(notebook, timeout=240, kernel_name='python3').execute(); "
        "print(evalrun.__file__, len(notebook.cells))"
    )
    example = ROOT / "examples" / "compare_models.ipynb"
    ended = run_program(environment / "bin" / "python", "-c", script, example, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(str(environment))


def test_wheel_imports_come_from_its_environment(environment: Path, tmp_path: Path) -> None:
    script = "import evalrun_cli, importlib.metadata as m; print(evalrun_cli.__file__, m.version('kube-evalrun'))"
    ended = run_program(environment / "bin" / "python", "-c", script, cwd=tmp_path)
    assert ended.stdout.startswith(str(environment)), ended.stderr


def test_wheel_dependencies_are_consistent(environment: Path, tmp_path: Path) -> None:
    ended = run_program(environment / "bin" / "python", "-m", "pip", "check", cwd=tmp_path)
    assert [line for line in ended.stdout.splitlines() if line.startswith(NAME)] == []


def test_command_beside_another_distribution_called_evalrun_names_the_remedy(environment: Path, tmp_path: Path) -> None:
    metadata = tmp_path / "evalrun-0.4.2.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: evalrun\nVersion: 0.4.2\n")
    ended = run_program(environment / "bin" / "evalrun", "--version", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert ended.returncode == 2
    assert f"pip uninstall evalrun {NAME}" in ended.stderr
