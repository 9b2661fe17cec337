"""Short limits for the remaining tests after too many timeouts: they run with a short limit first. Pure.

Running each at the full limit may take hours (an endless loop, 200 tests, 30 s each); counting each as failed without a
run is wrong for a program that is slow on a few tests. A test that ends within the short limit is decided exactly. Any
other is an `assumed_timeout`: it counts as failed, and the verdict contains the pass ratio if all of them had passed.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from evalrun_executor.api import LEVELS, Limits, ProgramRun, RunReply, RunRequest

SHORT_SECONDS: Final = 1.0
"""Maximum CPU seconds of the short limit."""
SHORT_SHARE: Final = 0.1
"""Maximum share of the test's own limit."""


def short_seconds(time_seconds: float) -> float:
    """Return the short limit of tests with this time limit; CPU seconds."""
    return min(SHORT_SECONDS, SHORT_SHARE * time_seconds)


def short_limits(limits: Limits) -> Limits:
    """Return a test's limits with the short time limit."""
    return structs.replace(limits, time_seconds=short_seconds(limits.time_seconds))


def left_out(reply: RunReply) -> list[int]:
    """Return the indices of the inputs that a stop after timeouts left out."""
    if reply.compile.status != "ok":
        return []
    return [index for index, run in enumerate(reply.runs) if run.end == "not_run"]


def short_request(request: RunRequest, indices: Sequence[int]) -> RunRequest:
    """Return the request that runs the inputs at these indices with the short limit."""
    return structs.replace(
        request,
        inputs=[request.inputs[index] for index in indices],
        inputs_digest=b"",
        limits=short_limits(request.limits),
        stop_after_timeouts=0,
    )


def merge_short_runs(reply: RunReply, indices: Sequence[int], short: RunReply) -> RunReply:
    """Return the reply with the short runs that decide. The others stay `not_run`, with their time and output.

    Args:
        reply: the reply to the first request.
        indices: indices of the inputs in `short`.
        short: the reply to `short_request`; if the program did not compile this time, no run in it counts.
    """
    runs = list(reply.runs)
    for index, run in zip(indices, short.runs, strict=True):
        runs[index] = run if run.end != "timeout" else mark_not_run(run)
    return structs.replace(reply, runs=runs, level=min(reply.level, short.level, key=LEVELS.index))


def mark_not_run(run: ProgramRun) -> ProgramRun:
    """Mark a run that the short limit stopped as `not_run`."""
    return structs.replace(run, end="not_run", exit_code=None)
