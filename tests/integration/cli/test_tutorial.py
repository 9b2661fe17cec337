"""The tutorial's commands, page after page in one directory, as a reader would type them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from builders.command_line import PROJECT, demo_as_filed, verdicts

pytestmark = pytest.mark.timeout(240)

PAGES = PROJECT / "docs" / "tutorial"


def commands(page: str) -> list[str]:
    """Return the page's blocks of commands that need nothing but evalrun."""
    return re.findall(r"^```sh\n(.*?)^```", (PAGES / page).read_text(), re.DOTALL | re.MULTILINE)


def typed(page: str, directory: Path) -> str:
    script = "\n".join(["set -euo pipefail", *commands(page)])
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=directory, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_commands_of_each_page_print_the_documented_output(tmp_path: Path) -> None:
    first = typed("first-judgement.md", tmp_path)
    assert "50.0 %  9.5 % to 90.5 %  75.0 %   100.0 %" in first
    assert first.endswith("two success 1.0\nhalf wrong_answer 0.5\n")
    comparing = typed("comparing.md", tmp_path)
    assert "half: wrong_answer -> success" in comparing
    assert comparing.endswith("exit code 5\n")
    assert "sums: 2 problems judged in both" in typed("../comparing.md", tmp_path)
    typed("your-model.md", tmp_path)
    assert verdicts(tmp_path / "out" / "demo") == demo_as_filed()
