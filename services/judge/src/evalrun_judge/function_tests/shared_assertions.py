"""Several assertion requests in one process: how they are put together, and what each came to. Pure.

A fork, the pages that a child touches first and its end cost three times what HumanEval's tests themselves do. Those
whose text shows that they change nothing outside their own namespace (the harness decides that, while it records) can
share a process, and end as they would alone. All else goes alone afterwards: what the harness sends back, and whatever
had no answer, because the process was stopped or died.
"""

import json
from collections.abc import Sequence
from typing import Final

from evalrun_executor.api import ProgramRun

MAX_SHARED_BYTES: Final = 64 * 1024
"""Of a request that may share: what a program returned must not use up the memory of the next one's test."""


def together(requests: Sequence[bytes]) -> bytes:
    """Return the stdin of a process that serves them all."""
    head = json.dumps({"shared": [len(request) for request in requests]}).encode()
    return b"".join([head, b"\n", *requests])


def apart(run: ProgramRun, count: int) -> list[ProgramRun | None]:
    """Return what each of `count` requests came to; None where it has to run alone. Seconds are shared out."""
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
