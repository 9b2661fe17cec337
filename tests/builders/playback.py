"""Serves recorded answers as a model would, by a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evalrun_runtime.ready_line import parse_ready_line


@contextmanager
def playback(problems: Path, answers: Path, *, model: str = "recorded", seconds: float = 0.0) -> Iterator[str]:
    """Serve recorded answers, each after so many seconds; gives the address."""
    arguments = ["--problems", problems, "--responses", answers, "--model", model, "--latency-seconds", seconds]
    command = [sys.executable, "-m", "evalrun_generator.recorded", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield next(address for line in process.stdout if (address := parse_ready_line(line)))
        finally:
            process.kill()
