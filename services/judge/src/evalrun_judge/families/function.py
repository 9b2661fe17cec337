"""Function tests: calls in the sandboxes, assertions in the gateway's contained child.

The module runs each step of a `FunctionTestSession` where it belongs, and decides nothing about a test.
"""

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, cast

from evalrun_executor.api import LEVELS, Limits, ProgramRun, RunRequest
from evalrun_judge.cache.verdict_cache import Judged, is_stable
from evalrun_judge.extraction import Extraction, SubmissionMode
from evalrun_judge.families.family import Family, FormReader, Runners
from evalrun_judge.function_tests.session import (
    OUTPUT_KIB,
    Finished,
    FunctionTestOutcome,
    FunctionTestSession,
    RunAssertions,
    RunTogether,
    recording_key,
)
from evalrun_judge.pool.info import PoolInfo
from evalrun_judge.short_runs import short_limits
from evalrun_judge.submission import AssertTests, CheckTest, InvalidRequestError, JudgeRequest, refuse_append
from evalrun_judge.suites import Suites
from evalrun_judge.verdict import CutText, TestRecord, cut_text
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_runtime.recently_used import RecentlyUsed
from evalrun_runtime.tracing import past_span
from evalrun_runtime.unicode_text import replace_surrogates

SEED = 0
"""Seed of `random` on the assertions' side: the same for every program and every run."""

RECORDINGS_BYTES = 64 * 1024 * 1024
"""Maximum bytes of cached recordings: HumanEval's 164 take 0.5 MB in all."""

LARGE_BYTES = 256 * 1024
"""Larger replies are read in a thread, so that other requests continue meanwhile."""


Recordings = RecentlyUsed[str, bytes]
"""Known calls of problems. A lost recording costs one run of the assertions."""


FUTURE_IMPORT = re.compile(r"from __future__ import [\w, ]+")


@dataclass(frozen=True, slots=True)
class FunctionPlan:
    """A program that defines functions, for a session of calls and assertions."""

    program: str
    """The program, after the problem's prompt if it belongs there."""


def read_check(message: judge_pb2.JudgeRequest, suites: Suites) -> CheckTest:
    """Read HumanEval's form."""
    return CheckTest(message.check.prompt, message.check.test, message.check.entry_point)


def read_asserts(message: judge_pb2.JudgeRequest, suites: Suites) -> AssertTests:
    """Read MBPP's form."""
    given = message.asserts
    return AssertTests(list(given.asserts), given.setup_code, given.entry_point, given.prelude)


def program_after(prompt: str, code: str, mode: SubmissionMode) -> str:
    """Combine the problem's prompt and the code, according to the mode.

    An extracted program always comes after the prompt, even if it restates the function: prompts hold imports and
    helpers. `from __future__` lines are legal only at the top, and move there.
    """
    if mode is SubmissionMode.STANDALONE or not prompt:
        return code
    if mode is SubmissionMode.APPEND:
        return prompt + code
    gap = "" if prompt.endswith("\n") else "\n"
    if "__future__" not in code:
        return prompt + gap + code
    lines = code.split("\n")
    futures = [line.rstrip() for line in lines if FUTURE_IMPORT.fullmatch(line.rstrip())]
    kept = "\n".join("" if FUTURE_IMPORT.fullmatch(line.rstrip()) else line for line in lines)
    return "".join(f"{line}\n" for line in futures) + prompt + gap + kept


def plan_function(request: JudgeRequest, extraction: Extraction) -> FunctionPlan:
    """Return the program with its problem's prompt. Pure."""
    if isinstance(request.tests, AssertTests):
        return FunctionPlan(program_after(request.tests.prelude, extraction.code, SubmissionMode.AUTO))
    prompt = request.tests.prompt if isinstance(request.tests, CheckTest) else ""
    return FunctionPlan(program_after(prompt, extraction.code, request.submission.mode))


class FunctionFamily(Family[FunctionPlan]):
    """Judges function tests.

    Args:
        runners: run programs and assertions.
        recordings: known calls of problems; None: no calls are known yet.
        secret: returns another text at each call, which a program cannot know.
    """

    FORMS: ClassVar[Mapping[str, FormReader]] = {"check": read_check, "asserts": read_asserts}
    TESTS: ClassVar[tuple[type, ...]] = (CheckTest, AssertTests)
    FORGEABLE: ClassVar[bool] = False

    def __init__(
        self,
        runners: Runners,
        recordings: Recordings | None = None,
        secret: Callable[[], str] = secrets.token_hex,
    ) -> None:
        self._pool = runners.pool
        self._assertions = runners.assertions
        self._secret = secret
        self._recordings = Recordings(RECORDINGS_BYTES, len) if recordings is None else recordings

    def check(self, request: JudgeRequest, sandboxes: PoolInfo | None) -> None:
        """Refuse tests that assert nothing, or name no function; see `Family.check`."""
        tests = cast(CheckTest | AssertTests, request.tests)
        if isinstance(tests, AssertTests):
            if not tests.asserts:
                raise InvalidRequestError("asserts.asserts: there are none; a problem needs at least one")
            refuse_append(request)
        elif not tests.test.strip():
            raise InvalidRequestError("check.test: it is empty; send the code that defines check(candidate)")
        if not tests.entry_point.isidentifier():
            raise InvalidRequestError(f"entry_point: {tests.entry_point!r} is not a name that a program can define")
        if (language := request.submission.language) != "python":
            raise InvalidRequestError(f"submission.language: function tests are judged in python, not in {language!r}")

    def plan(self, request: JudgeRequest, extraction: Extraction) -> FunctionPlan:
        """Return the program; see `Family.plan`."""
        return plan_function(request, extraction)

    def key(self, plan: FunctionPlan, request: JudgeRequest) -> object:
        """Return program and tests; see `Family.key`."""
        return ("python", plan.program, "calls"), request.tests, request.function_tests

    async def judge(self, plan: FunctionPlan, request: JudgeRequest, on_begin: Callable[[], None]) -> Judged:
        """Drive a session of calls and assertions to its end; see `Family.judge`."""
        tests = cast(CheckTest | AssertTests, request.tests)
        key = recording_key(tests, SEED)
        recorded = self._recordings.get(key)
        stop_after, mode = request.stop_after_timeouts, request.function_tests
        session = FunctionTestSession(
            tests,
            plan.program,
            SEED,
            recorded,
            stop_after,
            self._secret(),
            mode,
            stop_at_failure=request.stop_at_failure,
        )
        limits = Limits(request.limits.time_seconds, request.limits.memory_mib, OUTPUT_KIB)
        level = self._assertions.level
        compile_seconds, compile_stderr = 0.0, b""
        begun = False
        while not isinstance(step := session.next_step(), Finished):
            if isinstance(step, RunAssertions):
                run = await self._assertions.run(step.stdin, limits, on_begin, shareable=step.shareable)
                # The wait for a slot is not counted.
                past_span("compare", run.wall_seconds)
                await _tell(partial(session.assertions_done, run), run)
                if recorded is None and session.recording is not None:
                    recorded = session.recording
                    self._recordings.put(key, recorded)
            elif isinstance(step, RunTogether):
                together = RunRequest("python", step.code, list(step.inputs), limits)
                reply = await self._pool.run(together, run=request.run, begun=begun, on_slot=on_begin)
                level = min(level, reply.level, key=LEVELS.index)
                session.together_done(reply.runs, reply.compile)
            else:
                time_limits = short_limits(limits) if step.short else limits
                calls = RunRequest("python", step.code, [step.stdin], time_limits, mode="calls")
                reply = await self._pool.run(calls, run=request.run, begun=begun, on_slot=on_begin)
                level = min(level, reply.level, key=LEVELS.index)
                compile_seconds += reply.compile.seconds
                compile_stderr = reply.compile.stderr
                await _tell(partial(session.calls_done, reply.runs[0], reply.compile), reply.runs[0])
            begun = True
        records = [
            _record(index, test, compile_seconds, compile_stderr)
            for index, test in zip(step.indices, step.tests, strict=True)
        ]
        return Judged(tuple(records), level, stable=is_stable(records), complete=step.complete)


async def _tell(take: Callable[[], None], run: ProgramRun) -> None:
    """Pass a run's output to the session, in a thread if it is large."""
    if len(run.stdout) <= LARGE_BYTES:
        take()
    else:
        await asyncio.to_thread(take)


def _text(text: str) -> CutText:
    return cut_text(replace_surrogates(text).encode())


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
        # The reason may quote the program.
        reason=replace_surrogates(outcome.reason),
        permanent=outcome.permanent,
        cause=outcome.cause,
        missing_module=outcome.missing_module,
        forgeable=outcome.forgeable,
    )
