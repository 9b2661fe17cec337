"""Commands where Linux is absent: those that judge say so in a line, the others work. The system is pretended."""

import subprocess
import sys
from pathlib import Path

from builders.base_install import ROOT
from builders.results.samples import sample_result
from builders.results.stored_runs import write_run

PROGRAM = ROOT / "tests" / "builders" / "other_system.py"


def run_on_darwin(*commands: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), *commands], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )


def test_commands_that_judge_on_another_system_name_linux(tmp_path: Path) -> None:
    commands = [
        f"run k8s/samples/demo.yaml --local --endpoint builtin:demo --output {tmp_path}/run",
        f"judge --problems k8s/samples/demo.yaml --responses k8s/samples/demo.yaml --output {tmp_path}/judged",
        "serve sandbox --port 0",
        "serve judge --sandbox http://127.0.0.1:1 --port 0",
        "serve reward --problems k8s/samples/demo.yaml --port 0",
        "reward-check --trainer verl",
    ]
    ended = run_on_darwin(*commands)
    assert ended.stdout.splitlines() == [f"exit code 2: {command}" for command in commands]
    messages = [line for line in ended.stderr.splitlines() if line.startswith("evalrun")]
    assert len(messages) == len(commands)
    assert all("programs are judged on Linux 5.13 or newer, and this is macOS" in message for message in messages)
    assert "Traceback" not in ended.stderr


def test_commands_that_judge_nothing_on_another_system_work(tmp_path: Path) -> None:
    first, second = (
        write_run(tmp_path / name, [sample_result(0, statuses=[status]), sample_result(1)])
        for name, status in (("a", "wrong_answer"), ("b", "success"))
    )
    commands = [
        "validate k8s/samples/demo.yaml",
        "plan k8s/samples/demo.yaml",
        f"compare {first} {second}",
        f"show {first}",
        f"samples {first}",
    ]
    ended = run_on_darwin(*commands)
    codes = [line for line in ended.stdout.splitlines() if line.startswith("exit code")]
    assert codes == [f"exit code 0: {command}" for command in commands], ended.stderr
