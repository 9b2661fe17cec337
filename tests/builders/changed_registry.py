"""A copy of the registry that a test edits, and the unchanged packages run beside it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from builders.data import PROJECT_ROOT


def copy_registry(packages: Path) -> Path:
    """Copy the registry into a directory of packages; return the copy."""
    return shutil.copytree(PROJECT_ROOT / "libs/registry/src/evalrun_registry", packages / "evalrun_registry")


def run_with_packages(packages: Path, script: str) -> dict[str, Any]:
    """Run a script that finds these packages before ours; return the JSON object that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
