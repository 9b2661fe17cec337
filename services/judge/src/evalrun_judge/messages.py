"""Between the RPC's messages and the domain's types; pure. Refuses what has no meaning, naming the field."""

from evalrun.judge.v1 import judge_pb2
from evalrun_judge.comparison import Comparator, ComparatorName
from evalrun_judge.extraction import ExtractionMethod, Guardrail, SubmissionMode
from evalrun_judge.pool import PoolInfo
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import (
    AssertTests,
    CheckerProgram,
    CheckTest,
    InvalidRequestError,
    JudgeRequest,
    StdioTest,
    StdioTests,
    Submission,
    SubmitTests,
    TestLimits,
)
from evalrun_judge.suites import Suites
from evalrun_judge.verdict import CutText, FinalStatus, TestRecord, Verdict

_MODES = {
    judge_pb2.SUBMISSION_MODE_UNSPECIFIED: SubmissionMode.AUTO,
    judge_pb2.SUBMISSION_MODE_AUTO: SubmissionMode.AUTO,
    judge_pb2.SUBMISSION_MODE_APPEND: SubmissionMode.APPEND,
    judge_pb2.SUBMISSION_MODE_STANDALONE: SubmissionMode.STANDALONE,
}
_TEST_STATUS = {status: judge_pb2.TestStatus.Value(f"TEST_STATUS_{status.name}") for status in TestStatus}
_FINAL_STATUS = {status: judge_pb2.FinalStatus.Value(f"FINAL_STATUS_{status.name}") for status in FinalStatus}
_METHODS = {method: judge_pb2.ExtractionMethod.Value(f"EXTRACTION_METHOD_{method.name}") for method in ExtractionMethod}
_GUARDRAILS = {guardrail: judge_pb2.Guardrail.Value(f"GUARDRAIL_{guardrail.name}") for guardrail in Guardrail}


def request_from(message: judge_pb2.JudgeRequest, suites: Suites | None = None) -> JudgeRequest:
    """Read a request; tests named by digest come from `suites`. Raises InvalidRequestError, UnknownSuiteError."""
    submission = message.submission
    mode = _MODES.get(submission.mode)
    if mode is None:
        raise InvalidRequestError(f"submission.mode: {submission.mode} is none that this gateway knows")
    comparator, checker = _comparator_from(message)
    return JudgeRequest(
        submission=Submission(
            text=submission.text,
            mode=mode,
            language=submission.language or "python",
            truncated=submission.truncated,
            max_characters=submission.max_characters,
        ),
        tests=_tests_from(message, suites or Suites(0)),
        limits=_limits_from(message.limits),
        comparator=comparator,
        checker=checker,
        stop_after_timeouts=message.stop_after_timeouts,
        request_id=message.request_id,
        run=message.run,
        fresh=message.fresh,
    )


def _tests_from(message: judge_pb2.JudgeRequest, suites: Suites) -> StdioTests | CheckTest | AssertTests | SubmitTests:
    match message.WhichOneof("tests"):
        case "stdio":
            tests = StdioTests([StdioTest(test.input, test.expected_output) for test in message.stdio.tests])
            if not message.suite_digest:
                return tests
            if message.suite_digest != tests.digest:
                raise InvalidRequestError("suite_digest: it is not that of stdio.tests; send none, or theirs")
            return suites.keep(tests)
        case "check":
            return CheckTest(message.check.prompt, message.check.test, message.check.entry_point)
        case "asserts":
            given = message.asserts
            return AssertTests(list(given.asserts), given.setup_code, given.entry_point)
        case "submit":
            return SubmitTests(message.submit.dataset, message.submit.id)
        case None if message.suite_digest:
            return suites.find(message.suite_digest)
    raise InvalidRequestError("tests: there are none; send stdio, check, asserts or submit")


def _limits_from(message: judge_pb2.Limits) -> TestLimits:
    """Read the limits; what is 0 was not set."""
    default = TestLimits()
    return TestLimits(
        time_seconds=message.time_seconds or default.time_seconds,
        memory_mib=message.memory_mib or default.memory_mib,
        output_kib=message.output_kib or default.output_kib,
    )


def _comparator_from(message: judge_pb2.JudgeRequest) -> tuple[Comparator, CheckerProgram | None]:
    given = message.comparator
    try:
        name = ComparatorName(given.name) if given.name else ComparatorName.STANDARD
    except ValueError as error:
        known = ", ".join(ComparatorName)
        raise InvalidRequestError(f"comparator.name: {given.name!r} is not one of {known}") from error
    comparator = Comparator(
        name,
        case_sensitive=given.case_sensitive,
        abs=given.abs if given.HasField("abs") else None,
        rel=given.rel if given.HasField("rel") else None,
    )
    checker = given.checker
    if not given.HasField("checker"):
        return comparator, None
    return comparator, CheckerProgram(checker.protocol, checker.language, checker.source)


def verdict_message(verdict: Verdict) -> judge_pb2.Verdict:
    """Write a verdict."""
    return judge_pb2.Verdict(
        final_status=_FINAL_STATUS[verdict.final_status],
        judged=verdict.judged,
        accepted=verdict.accepted,
        pass_ratio=verdict.pass_ratio,
        tests=[_test_message(test) for test in verdict.tests],
        code=_valid(verdict.code),
        extraction=_METHODS[verdict.extraction],
        guardrails=[_GUARDRAILS[guardrail] for guardrail in verdict.guardrails],
        containment_level=verdict.containment_level,
        forgeable=verdict.forgeable,
        cached=verdict.cached,
        disagreeing_comparators=verdict.disagreeing,
        queue_seconds=verdict.queue_seconds,
    )


def _test_message(test: TestRecord) -> judge_pb2.TestResult:
    return judge_pb2.TestResult(
        case_index=test.case_index,
        input=_cut_message(test.input),
        expected_output=_cut_message(test.expected_output),
        status=_TEST_STATUS[test.status],
        ran=test.ran,
        stdout=_cut_message(test.stdout),
        stderr=_cut_message(test.stderr),
        exit_code=test.exit_code,
        duration=test.duration,
        cpu_time=test.cpu_time,
        compile_duration=test.compile_duration,
        compile_stderr=_cut_message(test.compile_stderr),
        reason=_valid(test.reason),
        disagreeing_comparators=test.disagreeing,
    )


def _cut_message(text: CutText) -> judge_pb2.CutText | None:
    return judge_pb2.CutText(text=text.text, full_length=text.full_length) if text.full_length else None


def _valid(text: str) -> str:
    """Protobuf strings hold no lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8")


def describe_message(info: PoolInfo, judge_version: str) -> judge_pb2.DescribeResponse:
    """Write what the gateway judges with."""
    return judge_pb2.DescribeResponse(
        judge_version=judge_version,
        backend=info.backend,
        containment_level=info.level,
        slots=info.slots,
        languages=info.languages,
        python_version=info.python_version,
        submits=info.submits,
    )
