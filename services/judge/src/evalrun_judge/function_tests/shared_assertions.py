"""Combines several assertion requests into one process, and splits the result. Pure.

A fork, the pages that a child touches first and its end cost three times as much as HumanEval's tests themselves. Tests
whose text shows that they change nothing outside their own namespace (the harness decides that while it records) can
share a process, and end as they would alone. All other requests run alone afterwards: those that the harness sends
back, and those without a reply because the process was stopped or died.
"""

import json
from collections.abc import Sequence
from typing import Final

from evalrun_executor.api import ProgramRun

MAX_SHARED_BYTES: Final = 64 * 1024
"""Maximum size of a request that may share: a program's results must not use up the memory of the next test."""


def together(requests: Sequence[bytes]) -> bytes:
    """Return the stdin of a process that serves all of these requests."""
    head = json.dumps({"shared": [len(request) for request in requests]}).encode()
    return b"".join([head, b"\n", *requests])


def apart(run: ProgramRun, count: int) -> list[ProgramRun | None]:
    """Return the result of each of `count` requests; None for a request that has to run alone.

    CPU and wall seconds are divided evenly.
    """
    found: list[ProgramRun | None] = []
    answers: list[bytes] = []
    for line in run.stdout.splitlines(keepends=True):
        if line == b"end\n":
            cpu, wall = run.cpu_seconds / count, run.wall_seconds / count
            found.append(ProgramRun("exited", 0, b"".join(answers), b"", cpu, wall, run.peak_memory_mib))
        elif line == b"alone\n":
            found.append(None)
        else:
            answers.append(line)
            continue
        answers = []
    return (found + [None] * count)[:count]
