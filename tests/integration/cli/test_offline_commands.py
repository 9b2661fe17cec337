"""Offline commands need no service: they run where none can be imported."""

import subprocess
import sys
from pathlib import Path

import pytest
from builders.results.stored_runs import verdicts_of, write_run

WITHOUT_SERVICES = """\
import sys
for part in ("aggregator", "generator", "judge", "operator", "sandbox", "cluster", "executor"):
    sys.modules[f"evalrun_{part}"] = None
from evalrun_cli.__main__ import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize("command", ["compare", "gate", "report"])
def test_an_offline_command_runs_without_any_service(command: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name, verdicts_of([True] * 60 + [False] * 20, dataset="mbpp_reg"), run=name)
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        f'- {{baseline: {tmp_path / "a"}, dataset: mbpp_reg, metric: accepted_at_1, maxRegression: "0.2"}}'
    )
    arguments: dict[str, list[str | Path]] = {
        "compare": [tmp_path / "a", tmp_path / "b"],
        "gate": [tmp_path / "b", "--policy", policy],
        "report": [tmp_path / "a"],
    }
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_SERVICES, command, *map(str, arguments[command])],
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
