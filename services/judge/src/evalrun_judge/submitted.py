"""From a server's verdict on its own tests to ours. Pure."""

from evalrun_judge.sandboxes import ServerTest, SubmitReply
from evalrun_judge.status import TestStatus
from evalrun_judge.verdict import TestOutcome, TestRecord, compile_status, cut_text, failure_of


def records_of_submission(reply: SubmitReply) -> list[TestRecord]:
    """Give the record of each test that the server told of."""
    return [_record(index, test) for index, test in enumerate(reply.tests)]


def outcome_of(test: ServerTest) -> TestOutcome:
    """Say what a test's result means: the server decides whether it passed, what the program did says how it failed."""
    if test.passed:
        return TestOutcome(TestStatus.SUCCESS)
    uncompiled = compile_status(test.compile)
    if uncompiled is not None:
        return TestOutcome(uncompiled)
    if test.run is None:
        return TestOutcome(TestStatus.WRONG_ANSWER, "the server ran nothing: it found no program")
    failure = failure_of(test.run)
    if failure is None:
        return TestOutcome(TestStatus.WRONG_ANSWER)
    if test.case is None and failure.status is TestStatus.RUNTIME_ERROR and _assertion_failed(test.run.stderr):
        # Program and assertions are one file to the server: whose assertion it was cannot be told.
        return TestOutcome(TestStatus.WRONG_ANSWER, "an assertion failed")
    return failure


def _assertion_failed(stderr: bytes) -> bool:
    """Say whether an AssertionError ended the program; its message may go over several lines."""
    return any(line.startswith(b"AssertionError") for line in stderr.splitlines())


def _record(index: int, test: ServerTest) -> TestRecord:
    outcome, run = outcome_of(test), test.run
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
    )
