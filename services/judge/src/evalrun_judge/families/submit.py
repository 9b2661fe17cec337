"""Judges by tests that a SandboxFusion server owns: builds the calls and converts the verdicts."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from evalrun_client.fusion_names import is_dataset_name, is_row_id
from evalrun_judge.cache.verdict_cache import Judged
from evalrun_judge.cpython_texts import parse_missing_package
from evalrun_judge.extraction import Extraction, SubmissionMode
from evalrun_judge.families.family import Family, FormReader, Runners
from evalrun_judge.pool.info import PoolInfo
from evalrun_judge.sandboxes import ServerTest, SubmitCall, SubmitReply
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import STANDARD, InvalidRequestError, JudgeRequest, Tests
from evalrun_judge.suites import Suites
from evalrun_judge.verdict import TestOutcome, TestRecord, compile_status, cut_text, find_failure
from evalrun_proto.judge.v1 import judge_pb2


@dataclass(frozen=True, slots=True)
class SubmitTests(Tests):
    """A row of a SandboxFusion server's dataset. Only the server has its tests."""

    dataset: str
    id: str

    def texts(self) -> list[tuple[bytes, bytes]]:
        """Return a single empty test, because the server's tests are not known."""
        return [(b"", b"")]


@dataclass(frozen=True, slots=True)
class SubmitPlan:
    """A program for a server that owns the tests."""

    call: SubmitCall


_FENCE = re.compile(r"^\s*```", re.MULTILINE)
"""Matches the end of a code block according to SandboxFusion, also within a program."""

_NUMBER = re.compile(r"0|-?[1-9]\d{0,17}")


def plan_submit(request: JudgeRequest, tests: SubmitTests, extraction: Extraction) -> SubmitPlan | None:
    """Return the call of the server. The only block that the server finds holds the program that our rule extracts.

    The server's own rule takes the first block of a completion, even inside the model's thoughts.

    Raises:
        InvalidRequestError: the server would cut the program.
    """
    append = request.submission.mode is SubmissionMode.APPEND
    language = request.submission.language
    completion = extraction.code if append else f"```{language}\n{extraction.code.rstrip()}\n```\n"
    if not append and _FENCE.search(extraction.code):
        if extraction.must_compile:
            return None
        raise InvalidRequestError(
            "submission.text: the program holds a line that begins with ```, at which SandboxFusion would cut it"
        )
    call = SubmitCall(
        dataset=tests.dataset,
        row=int(tests.id) if _NUMBER.fullmatch(tests.id) else tests.id,
        completion=completion,
        language=language,
        time_seconds=request.limits.time_seconds,
        free_form=not append,
        after_timeouts=request.stop_after_timeouts == 0,
    )
    return SubmitPlan(call)


def read_submit(message: judge_pb2.JudgeRequest, suites: Suites) -> SubmitTests:
    """Read the name of the row."""
    return SubmitTests(message.submit.dataset, message.submit.id)


class SubmitFamily(Family[SubmitPlan]):
    """Sends the completion to a server that owns the tests and judges it."""

    FORMS: ClassVar[Mapping[str, FormReader]] = {"submit": read_submit}
    TESTS: ClassVar[tuple[type, ...]] = (SubmitTests,)
    FORGEABLE: ClassVar[bool] = True

    def __init__(self, runners: Runners) -> None:
        self._pool = runners.pool

    def check(self, request: JudgeRequest, sandboxes: PoolInfo | None) -> None:
        """Refuse names that mean something other than a dataset's row to the server; see `Family.check`."""
        tests = cast(SubmitTests, request.tests)
        if not is_dataset_name(tests.dataset):
            raise InvalidRequestError(
                f"submit.dataset: {tests.dataset[:100]!r} is no dataset's name; send one of the server's /list_datasets"
            )
        if not is_row_id(tests.id):
            raise InvalidRequestError(
                f"submit.id: {tests.id[:100]!r} is no row's id; send one of the server's /list_ids, without quotes, "
                "backslashes, control characters or '..'"
            )
        if request.comparator != STANDARD:
            raise InvalidRequestError("comparator: with submit the server compares, by its own rules; send none")
        if sandboxes is not None and not sandboxes.submits:
            raise InvalidRequestError(
                f"tests.submit: this gateway's sandboxes ({sandboxes.backend}) have no datasets of their own: ask one "
                "with backend SandboxFusion, or send the tests"
            )

    def plan(self, request: JudgeRequest, extraction: Extraction) -> SubmitPlan | None:
        """Return the call; see `Family.plan`."""
        return plan_submit(request, cast(SubmitTests, request.tests), extraction)

    def key(self, plan: SubmitPlan, request: JudgeRequest) -> None:
        """Disable the verdict cache: the server may change its tests unnoticed."""
        return

    async def judge(self, plan: SubmitPlan, request: JudgeRequest, on_begin: Callable[[], None]) -> Judged:
        """Ask the server; see `Family.judge`."""
        reply = await self._pool.submit(plan.call, run=request.run, on_slot=on_begin)
        return Judged(tuple(records_of_submission(reply)), reply.level, complete=reply.complete, code=reply.code)


def records_of_submission(reply: SubmitReply) -> list[TestRecord]:
    """Return a record per test that the server reported."""
    return [_record(index, test) for index, test in enumerate(reply.tests)]


def decide_outcome(test: ServerTest) -> TestOutcome:
    """Return the outcome of a test. The server decides whether it passed; the program's end shows how it failed."""
    if test.passed:
        return TestOutcome(TestStatus.SUCCESS)
    uncompiled = compile_status(test.compile)
    if uncompiled is not None:
        return TestOutcome(uncompiled)
    if test.run is None:
        return TestOutcome(TestStatus.WRONG_ANSWER, "the server ran nothing: it found no program")
    failure = find_failure(test.run)
    if failure is None:
        return TestOutcome(TestStatus.WRONG_ANSWER)
    if test.case is None and failure.status is TestStatus.RUNTIME_ERROR and _assertion_failed(test.run.stderr):
        # Program and assertions are a single file for the server, so the owner of a failed assertion is unknown.
        return TestOutcome(TestStatus.WRONG_ANSWER, "an assertion failed")
    return failure


def _assertion_failed(stderr: bytes) -> bool:
    """Return whether an AssertionError ended the program; its message may go over several lines."""
    return any(line.startswith(b"AssertionError") for line in stderr.splitlines())


def _record(index: int, test: ServerTest) -> TestRecord:
    outcome, run = decide_outcome(test), test.run
    given, wanted = test.case or (b"", b"")
    return TestRecord(
        index,
        outcome.status,
        ran=run is not None,
        input=cut_text(given),
        expected_output=cut_text(wanted),
        stdout=cut_text(b"" if run is None else run.stdout),
        stderr=cut_text(b"" if run is None else run.stderr),
        exit_code=None if run is None else run.exit_code,
        duration=0.0 if run is None else run.wall_seconds,
        cpu_time=0.0 if run is None else run.cpu_seconds,
        compile_duration=test.compile.seconds,
        compile_stderr=cut_text(test.compile.stderr),
        reason=outcome.reason,
        cause=outcome.cause,
        missing_module=parse_missing_package(run.stderr) if run and outcome.status is TestStatus.RUNTIME_ERROR else "",
    )
