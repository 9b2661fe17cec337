"""Drives function tests: the steps of a `FunctionTestSession`, each where it belongs. Decides nothing about a test."""

import asyncio
from collections.abc import Callable
from functools import partial

from evalrun_judge.assertions import AssertionRunner
from evalrun_judge.function_tests import (
    OUTPUT_KIB,
    Finished,
    FunctionTestOutcome,
    FunctionTestSession,
    RunAssertions,
    recording_key,
)
from evalrun_judge.plan import FunctionPlan
from evalrun_judge.pool import SandboxPool
from evalrun_judge.submission import JudgeRequest, StdioTests, SubmitTests
from evalrun_judge.verdict import CutText, TestRecord, cut_text
from evalrun_runtime.recently_used import RecentlyUsed
from evalrun_runtime.tracing import past_span
from evalrun_sandbox.api import LEVELS, Level, Limits, ProgramRun, RunRequest

SEED = 0
"""Of `random` on the assertions' side: the same for every program and every run."""

RECORDINGS_BYTES = 64 * 1024 * 1024
"""Kept recordings: HumanEval's 164 take 0.5 MB in all."""

LARGE_BYTES = 256 * 1024
"""Answers above this are read in a thread, so that other requests go on meanwhile."""


Recordings = RecentlyUsed[str, bytes]
"""What is known of problems' calls. One lost costs one run of the assertions."""


class FunctionJudge:
    """Judges function tests: calls in the sandboxes, assertions in the gateway's contained child."""

    def __init__(self, pool: SandboxPool, assertions: AssertionRunner, recordings: Recordings | None = None) -> None:
        self._pool = pool
        self._assertions = assertions
        self._recordings = Recordings(RECORDINGS_BYTES, len) if recordings is None else recordings

    async def start(self) -> None:
        """Make the assertions' child ready."""
        await self._assertions.start()

    async def close(self) -> None:
        """End it."""
        await self._assertions.close()

    async def judge(
        self, plan: FunctionPlan, request: JudgeRequest, on_begin: Callable[[], None]
    ) -> tuple[list[TestRecord], Level]:
        """Give the tests' records; see `judging.FunctionTests`."""
        tests = request.tests
        if isinstance(tests, StdioTests | SubmitTests):
            raise TypeError(f"{type(tests).__name__} are no function tests")
        key = recording_key(tests, SEED)
        recorded = self._recordings.get(key)
        session = FunctionTestSession(tests, plan.program, SEED, recorded, request.stop_after_timeouts)
        limits = Limits(request.limits.time_seconds, request.limits.memory_mib, OUTPUT_KIB)
        level = self._assertions.level
        compile_seconds, compile_stderr = 0.0, b""
        begun = False
        while not isinstance(step := session.next_step(), Finished):
            if isinstance(step, RunAssertions):
                run = await self._assertions.run(step.stdin, limits, on_begin, shareable=step.shareable)
                past_span("compare", run.wall_seconds)  # without the wait for a place
                await _tell(partial(session.assertions_done, run), run)
                if recorded is None and session.recording is not None:
                    recorded = session.recording
                    self._recordings.put(key, recorded)
            else:
                calls = RunRequest("python", step.code, [step.stdin], limits, mode="calls")
                reply = await self._pool.run(calls, run=request.run, begun=begun, on_slot=on_begin)
                level = min(level, reply.level, key=LEVELS.index)
                compile_seconds += reply.compile.seconds
                compile_stderr = reply.compile.stderr
                await _tell(partial(session.calls_done, reply.runs[0], reply.compile), reply.runs[0])
            begun = True
        return [_record(n, test, compile_seconds, compile_stderr) for n, test in enumerate(step.tests)], level


async def _tell(take: Callable[[], None], run: ProgramRun) -> None:
    """Let the session read what a run printed, in a thread where that is much."""
    if len(run.stdout) <= LARGE_BYTES:
        take()
    else:
        await asyncio.to_thread(take)


def _text(text: str) -> CutText:
    return cut_text(text.encode("utf-8", "surrogatepass"))


def _record(index: int, outcome: FunctionTestOutcome, compile_seconds: float, compile_stderr: bytes) -> TestRecord:
    return TestRecord(
        case_index=index,
        status=outcome.status,
        ran=outcome.ran,
        input=_text(outcome.input),
        expected_output=_text(outcome.expected),
        stdout=_text(outcome.actual or outcome.stdout),
        stderr=_text(outcome.stderr),
        exit_code=outcome.exit_code,
        duration=outcome.wall_seconds,
        cpu_time=outcome.cpu_seconds,
        compile_duration=compile_seconds,
        compile_stderr=cut_text(compile_stderr),
        reason=outcome.reason,
        confirmed=outcome.confirmed,
    )
