"""Judges a function by calls with values: a driver that is added to the program reads arguments and prints results.

The expected values stay here, so that a program can forge nothing: whatever it prints is its own result.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, cast

from msgspec import structs

from evalrun_executor.api import Level, Limits, ProgramRun, RunRequest
from evalrun_judge.cache.verdict_cache import Judged
from evalrun_judge.extraction import Extraction, SubmissionMode
from evalrun_judge.families.family import Family, FormReader, Runners
from evalrun_judge.families.function import program_after
from evalrun_judge.pool.info import PoolInfo
from evalrun_judge.records import records_of_runs
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import InvalidRequestError, JudgeRequest, Tests, refuse_append
from evalrun_judge.suites import Suites
from evalrun_judge.verdict import TestOutcome, TestRecord, compile_status, find_failure
from evalrun_judge.wave_runs import judge_in_waves, run_part
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_registry.call_forms import (
    CALL_FORMS,
    RETURNED,
    Signature,
    SignatureError,
    encode_tests,
    explain_signature,
    is_result,
    parse_signature,
)
from evalrun_runtime.recently_used import RecentlyUsed

KEPT_BYTES: Final = 16 << 20
"""Maximum bytes of encoded tests, which are kept because the completions of a problem come together."""
NOTHING_RETURNED: Final = "the program ended before the function returned"


@dataclass(frozen=True, slots=True)
class CallTests(Tests):
    """Tests of a function with a typed signature, one per call."""

    signature: str
    calls: tuple[str, ...]
    """The arguments of each call, a JSON list."""
    results: tuple[str, ...]
    """The expected result of each call, a JSON value."""

    def texts(self) -> list[tuple[bytes, bytes]]:
        """Return the arguments and the expected value of each call."""
        pairs = zip(self.calls, self.results, strict=True)
        return [
            (call.encode("utf-8", "surrogatepass"), result.encode("utf-8", "surrogatepass")) for call, result in pairs
        ]


@dataclass(frozen=True, slots=True)
class CallPlan:
    """A program with its driver; the runs' inputs come with the encoded tests."""

    run: RunRequest
    signature: Signature


@dataclass(frozen=True, slots=True)
class EncodedTests:
    """Tests in the form that a language's driver reads."""

    inputs: tuple[bytes, ...]
    expected: tuple[bytes, ...]
    size: int
    """Size of the encoded tests, and of the texts that are their key in the cache."""


def read_calls(message: judge_pb2.JudgeRequest, suites: Suites) -> CallTests:
    return CallTests(message.calls.signature, tuple(message.calls.calls), tuple(message.calls.results))


def decide_outcome(signature: Signature, run: ProgramRun, expected: bytes) -> TestOutcome:
    """Return the outcome of a call. Pure."""
    if (failure := find_failure(run)) is not None:
        return failure
    _, found, rest = run.stdout.rpartition(f"\n{RETURNED} ".encode())
    if not found:
        return TestOutcome(TestStatus.WRONG_ANSWER, NOTHING_RETURNED)
    is_right = is_result(signature, rest.partition(b"\n")[0], expected)
    return TestOutcome(TestStatus.SUCCESS if is_right else TestStatus.WRONG_ANSWER)


class CallFamily(Family[CallPlan]):
    """Judges functions by calls with values."""

    FORMS: ClassVar[Mapping[str, FormReader]] = {"calls": read_calls}
    TESTS: ClassVar[tuple[type, ...]] = (CallTests,)
    FORGEABLE: ClassVar[bool] = False

    def __init__(self, runners: Runners) -> None:
        self._pool = runners.pool
        self._encoded: RecentlyUsed[tuple[str, CallTests], EncodedTests] = RecentlyUsed(
            KEPT_BYTES, lambda tests: tests.size
        )
        self._encoding = asyncio.Lock()

    def check(self, request: JudgeRequest, sandboxes: PoolInfo | None) -> None:
        """Refuse functions that cannot be called by values; see `Family.check`."""
        tests = cast(CallTests, request.tests)
        if not tests.calls or len(tests.calls) != len(tests.results):
            raise InvalidRequestError(
                f"calls: {len(tests.calls)} calls with {len(tests.results)} results; send as many, and at least one"
            )
        refuse_append(request)
        if reason := explain_signature(request.submission.language, tests.signature):
            raise InvalidRequestError(f"calls: {reason}")

    def plan(self, request: JudgeRequest, extraction: Extraction) -> CallPlan:
        """Return the runs; see `Family.plan`."""
        tests, limits = cast(CallTests, request.tests), request.limits
        form, signature = CALL_FORMS[request.submission.language], parse_signature(tests.signature)
        program = form.add_driver(extraction.code, signature)
        run = RunRequest(
            language=form.language,
            code=program_after(form.before, program, SubmissionMode.AUTO),
            inputs=[],
            limits=Limits(limits.time_seconds, limits.memory_mib, limits.output_kib),
            stop_after_timeouts=request.stop_after_timeouts,
        )
        return CallPlan(run, signature)

    def key(self, plan: CallPlan, request: JudgeRequest) -> object:
        """Return program and tests; see `Family.key`."""
        tests = cast(CallTests, request.tests)
        return (plan.run.language, plan.run.code, "calls"), (tests.signature, tests.calls, tests.results)

    async def judge(self, plan: CallPlan, request: JudgeRequest, on_begin: Callable[[], None]) -> Judged:
        """Run the program with the arguments of each call, and compare; see `Family.judge`."""
        tests = cast(CallTests, request.tests)
        encoded = await self._encode(plan.run.language, tests)

        async def judge_part(wave: range) -> tuple[list[TestRecord], Level]:
            asked = structs.replace(plan.run, inputs=list(encoded.inputs[wave.start : wave.stop]))
            reply = await run_part(self._pool, asked, request, on_begin, begun=wave.start > 0)
            uncompiled = compile_status(reply.compile)
            ran = slice(wave.start, wave.start + len(reply.runs))
            outcomes = [
                decide_outcome(plan.signature, run, expected) if uncompiled is None else TestOutcome(uncompiled)
                for run, expected in zip(reply.runs, encoded.expected[ran], strict=True)
            ]
            calls, results = zip(*texts[ran], strict=True)
            return records_of_runs(calls, results, reply, outcomes, first=wave.start), reply.level

        texts = tests.texts()
        return await judge_in_waves(len(texts), request, judge_part)

    async def _encode(self, language: str, tests: CallTests) -> EncodedTests:
        """Return the tests encoded for a language, shared by all completions. Raises InvalidRequestError."""
        key = language, tests
        if (found := self._encoded.get(key)) is not None:
            # This check comes before the lock, so that encoded tests do not wait for the encoding of other tests.
            return found
        async with self._encoding:
            if (found := self._encoded.get(key)) is not None:
                return found
            try:
                words = await asyncio.to_thread(encode_tests, language, tests.signature, tests.calls, tests.results)
            except SignatureError as error:
                raise InvalidRequestError(f"calls: {error}") from error
            texts = (*words[0], *words[1], *tests.calls, *tests.results)
            encoded = EncodedTests(*words, size=sum(map(len, texts)))
            self._encoded.put(key, encoded)
            return encoded
