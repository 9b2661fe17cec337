"""The page of a running EvalRun, as `evalrun view er/NAME` serves it."""

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from builders.command_line import COMMAND

REQUEST_SECONDS = 60


@contextmanager
def run_viewed(run: str, namespace: str) -> Iterator[str]:
    """Serve the page, and give the address of the run's data."""
    process = subprocess.Popen(
        [*COMMAND, "view", f"er/{run}", "--namespace", namespace], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield f"{process.stdout.readline().strip()}data/{run}"
    finally:
        process.terminate()
        process.communicate(timeout=REQUEST_SECONDS)


def read_page(url: str) -> Any:
    """Return what the page reads from an address."""
    with urllib.request.urlopen(url, timeout=REQUEST_SECONDS) as answer:
        return json.load(answer)


def count_rows(description: dict[str, Any]) -> int:
    """Return how many samples a run's description has."""
    return sum(segment["rows"] for segment in description["segments"])
