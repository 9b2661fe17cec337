"""Every command in a base install: it works, or it says which extra it needs."""

import subprocess
import sys
from pathlib import Path

import pytest
from builders.base_install import ROOT

PROGRAM = ROOT / "tests" / "builders" / "base_install.py"
NEEDS_CLUSTER = "pip install '.[cluster]'"


def run_in_base_install(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, cwd=cwd)


def test_help_of_every_command_in_base_install_works() -> None:
    ended = run_in_base_install("--every-help")
    assert ended.returncode == 0, ended.stderr
    assert {"help works: plan", "help works: data audit-tests", "help works: schedule run"} <= set(
        ended.stdout.splitlines()
    )


@pytest.mark.parametrize("sample", ["evalrun-phase0.yaml", "demo.yaml"])
@pytest.mark.parametrize("command", ["plan", "validate"])
def test_offline_command_in_base_install_succeeds(command: str, sample: str) -> None:
    ended = run_in_base_install(command, f"k8s/samples/{sample}")
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "x"),
        ("logs", "x"),
        ("results", "x"),
        ("history", "x"),
        ("schedule", "run", "x"),
        ("run", "k8s/samples/demo.yaml"),
    ],
)
def test_cluster_command_in_base_install_names_the_extra(arguments: tuple[str, ...]) -> None:
    ended = run_in_base_install(*arguments)
    assert ended.returncode == 2
    assert NEEDS_CLUSTER in ended.stderr
    assert "Traceback" not in ended.stderr
