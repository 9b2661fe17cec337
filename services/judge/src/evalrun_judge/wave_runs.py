"""Runs a program's tests in the sandboxes: all at once, or in waves where the first failure decides."""

from collections.abc import Awaitable, Callable

from msgspec import structs

from evalrun_executor.api import LEVELS, Level, RunReply, RunRequest
from evalrun_judge.cache.verdict_cache import Judged, is_stable
from evalrun_judge.pool.pool import SandboxPool
from evalrun_judge.short_runs import left_out, merge_short_runs, short_request
from evalrun_judge.submission import JudgeRequest
from evalrun_judge.verdict import TestRecord
from evalrun_judge.waves import count_decided, has_failed, make_waves

JudgePart = Callable[[range], Awaitable[tuple[list[TestRecord], Level]]]
"""Judges the tests at these indices. Returns their records and the lowest containment level that was used."""


async def judge_in_waves(count: int, request: JudgeRequest, judge_part: JudgePart) -> Judged:
    """Judge all tests of a program, or up to the wave of the first failure if the request stops there."""
    waves = make_waves(count, request.submission.language) if request.stop_at_failure else [range(count)]
    records: list[TestRecord] = []
    levels: list[Level] = []
    for wave in waves:
        found, level = await judge_part(wave)
        records += found
        levels.append(level)
        if has_failed(record.status for record in records):
            break
    level = min(levels, key=LEVELS.index)
    return Judged(tuple(records), level, stable=is_stable(records), complete=len(records) == count)


async def run_part(
    pool: SandboxPool, asked: RunRequest, request: JudgeRequest, on_begin: Callable[[], None], *, begun: bool
) -> RunReply:
    """Run tests, then run with the short limit those that a stop after timeouts left out.

    Where a failure decides and one of the runs has failed, the reply ends before the first run that was left out.
    """
    reply = await pool.run(asked, run=request.run, begun=begun, on_slot=on_begin)
    if request.stop_at_failure and (decided := count_decided(reply)) is not None:
        return structs.replace(reply, runs=reply.runs[:decided])
    if left := left_out(reply):
        short = await pool.run(short_request(asked, left), run=request.run, begun=True)
        reply = merge_short_runs(reply, left, short)
    return reply
