"""Converts between the RPC's messages and domain types, and refuses invalid fields by name. Pure."""

from evalrun_judge.extraction import ExtractionMethod, Guardrail, SubmissionMode
from evalrun_judge.families.registry import read_tests
from evalrun_judge.pool.info import PoolInfo
from evalrun_judge.status import TestCause, TestStatus
from evalrun_judge.submission import (
    STANDARD,
    CheckerProgram,
    FunctionTestMode,
    InvalidRequestError,
    JudgeRequest,
    Submission,
)
from evalrun_judge.suites import Suites
from evalrun_judge.verdict import CutText, FinalStatus, TestRecord, Verdict
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_registry.comparators import COMPARATORS, Comparator
from evalrun_registry.judging_rules import JUDGING_RULES
from evalrun_registry.limits import DEFAULT_LIMITS, PartialLimits, TestLimits
from evalrun_runtime.unicode_text import replace_surrogates

_MODES = {
    judge_pb2.SUBMISSION_MODE_UNSPECIFIED: SubmissionMode.AUTO,
    judge_pb2.SUBMISSION_MODE_AUTO: SubmissionMode.AUTO,
    judge_pb2.SUBMISSION_MODE_APPEND: SubmissionMode.APPEND,
    judge_pb2.SUBMISSION_MODE_STANDALONE: SubmissionMode.STANDALONE,
}
_TEST_STATUS = {status: judge_pb2.TestStatus.Value(f"TEST_STATUS_{status.name}") for status in TestStatus}
_CAUSES = {cause: judge_pb2.TestCause.Value(f"TEST_CAUSE_{cause.name}") for cause in TestCause}
_FINAL_STATUS = {status: judge_pb2.FinalStatus.Value(f"FINAL_STATUS_{status.name}") for status in FinalStatus}
_METHODS = {method: judge_pb2.ExtractionMethod.Value(f"EXTRACTION_METHOD_{method.name}") for method in ExtractionMethod}
_GUARDRAILS = {guardrail: judge_pb2.Guardrail.Value(f"GUARDRAIL_{guardrail.name}") for guardrail in Guardrail}


def request_from(message: judge_pb2.JudgeRequest, suites: Suites | None = None) -> JudgeRequest:
    """Read a request; tests named by digest come from `suites`. Raises InvalidRequestError, UnknownSuiteError."""
    submission = message.submission
    mode = _MODES.get(submission.mode)
    if mode is None:
        raise InvalidRequestError(f"submission.mode: {submission.mode} is none that this gateway knows")
    comparator, checker = _read_comparator(message)
    return JudgeRequest(
        submission=Submission(
            text=submission.text,
            mode=mode,
            language=submission.language or "python",
            truncated=submission.truncated,
            max_characters=submission.max_characters,
            prelude=submission.prelude,
        ),
        tests=read_tests(message, suites or Suites(0)),
        limits=_read_limits(message),
        comparator=comparator,
        checker=checker,
        stop_after_timeouts=message.stop_after_timeouts,
        stop_at_failure=message.stop_at_failure,
        function_tests=_read_function_tests(message.function_tests),
        request_id=message.request_id,
        run=message.run,
        fresh=message.fresh,
        size=message.ByteSize(),
    )


def _read_function_tests(name: str) -> FunctionTestMode:
    try:
        return FunctionTestMode(name or FunctionTestMode.AUTO)
    except ValueError:
        known = ", ".join(FunctionTestMode)
        raise InvalidRequestError(f"function_tests: {name!r} is not one of {known}") from None


def _read_limits(message: judge_pb2.JudgeRequest) -> TestLimits:
    """Read the limits. 0 means that a limit was not set."""
    if not message.HasField("limits"):
        return DEFAULT_LIMITS
    given = message.limits
    return PartialLimits(given.time_seconds, given.memory_mib, given.output_kib).complete(DEFAULT_LIMITS)


def _read_comparator(message: judge_pb2.JudgeRequest) -> tuple[Comparator, CheckerProgram | None]:
    if not message.HasField("comparator"):
        return STANDARD, None
    given = message.comparator
    name = given.name or STANDARD.name
    if name not in COMPARATORS:
        raise InvalidRequestError(f"comparator.name: {name!r} is not one of {', '.join(COMPARATORS)}")
    comparator = Comparator(
        name,
        case_sensitive=given.case_sensitive if given.HasField("case_sensitive") else True,
        abs=given.abs if given.HasField("abs") else None,
        rel=given.rel if given.HasField("rel") else None,
    )
    checker = given.checker
    if not given.HasField("checker"):
        return comparator, None
    return comparator, CheckerProgram(checker.protocol, checker.language, checker.source)


def fill_verdict(message: judge_pb2.Verdict, verdict: Verdict) -> None:
    """Write a verdict into an existing empty message, because embedding a finished message would copy it."""
    message.final_status = _FINAL_STATUS[verdict.final_status]
    message.judged = verdict.judged
    message.accepted = verdict.accepted
    if verdict.pass_ratio is not None:
        message.pass_ratio = verdict.pass_ratio
    if verdict.pass_ratio_high is not None:
        message.pass_ratio_high = verdict.pass_ratio_high
    message.assumed_timeouts = verdict.assumed_timeouts
    for test in verdict.tests:
        _fill_test(message.tests.add(), test)
    message.code = replace_surrogates(verdict.code)
    message.extraction = _METHODS[verdict.extraction]
    message.guardrails.extend([_GUARDRAILS[guardrail] for guardrail in verdict.guardrails])
    message.containment_level = verdict.containment_level
    if verdict.forgeable is not None:
        message.forgeable = True
        message.forgeable_cause = verdict.forgeable
    message.permanent = verdict.permanent
    message.cached = verdict.cached
    message.disagreeing_comparators.extend(verdict.disagreeing)
    message.rests_on.extend(verdict.rests_on)
    message.queue_seconds = verdict.queue_seconds


def _fill_test(message: judge_pb2.TestResult, test: TestRecord) -> None:
    """Write a test's record, setting only present fields: keyword arguments would take four times as long."""
    message.case_index = test.case_index
    message.status = _TEST_STATUS[test.status]
    message.ran = test.ran
    if test.input.full_length:
        _fill_cut(message.input, test.input)
    if test.expected_output.full_length:
        _fill_cut(message.expected_output, test.expected_output)
    if test.stdout.full_length:
        _fill_cut(message.stdout, test.stdout)
    if test.stderr.full_length:
        _fill_cut(message.stderr, test.stderr)
    if test.exit_code is not None:
        message.exit_code = test.exit_code
    message.duration = test.duration
    message.cpu_time = test.cpu_time
    message.compile_duration = test.compile_duration
    if test.compile_stderr.full_length:
        _fill_cut(message.compile_stderr, test.compile_stderr)
    if test.reason:
        message.reason = replace_surrogates(test.reason)
    if test.cause is not None:
        message.cause = _CAUSES[test.cause]
    if test.missing_module:
        message.missing_module = test.missing_module
    if test.disagreeing:
        message.disagreeing_comparators.extend(test.disagreeing)


def _fill_cut(message: judge_pb2.CutText, text: CutText) -> None:
    message.text = text.text
    message.full_length = text.full_length


def describe_message(info: PoolInfo, judge_version: str, slowness: float) -> judge_pb2.DescribeResponse:
    """Return the capabilities of the gateway as a message."""
    return judge_pb2.DescribeResponse(
        judge_version=judge_version,
        backend=info.backend,
        containment_level=info.level,
        slots=info.slots,
        languages=info.languages,
        python_version=info.python_version,
        submits=info.submits,
        slowness=slowness,
        judging_rules=JUDGING_RULES,
    )
