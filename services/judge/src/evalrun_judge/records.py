"""The tests' records: what ran and what came of it, with long texts cut. Pure."""

from collections.abc import Sequence

from evalrun_judge.comparison import Comparator
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import AssertTests, CheckTest, StdioTests, SubmitTests
from evalrun_judge.verdict import TestOutcome, TestRecord, cut_text, stdio_outcome
from evalrun_sandbox.api import RunReply


def compared(expected: Sequence[bytes], reply: RunReply, comparator: Comparator) -> list[TestOutcome]:
    """Judge a program's runs by a comparator that is a pure function.

    Raises:
        ValueError: the numbers of expected outputs and runs differ.
    """
    return [stdio_outcome(run, wanted, comparator) for run, wanted in zip(reply.runs, expected, strict=True)]


def records_of_runs(
    inputs: Sequence[bytes], expected: Sequence[bytes], reply: RunReply, outcomes: Sequence[TestOutcome]
) -> list[TestRecord]:
    """Give the record of each run.

    Raises:
        ValueError: the numbers of inputs, expected outputs, runs and outcomes differ.
    """
    compile_stderr = cut_text(reply.compile.stderr)
    return [
        TestRecord(
            case_index=index,
            status=outcome.status,
            ran=run.end != "not_run",
            input=cut_text(data),
            expected_output=cut_text(wanted),
            stdout=cut_text(run.stdout),
            stderr=cut_text(run.stderr),
            exit_code=run.exit_code,
            duration=run.wall_seconds,
            cpu_time=run.cpu_seconds,
            compile_duration=reply.compile.seconds,
            compile_stderr=compile_stderr,
            reason=outcome.reason,
            confirmed=run.confirmed,
            disagreeing=outcome.disagreeing,
        )
        for index, (data, wanted, run, outcome) in enumerate(zip(inputs, expected, reply.runs, outcomes, strict=True))
    ]


def records_without_run(
    tests: StdioTests | CheckTest | AssertTests | SubmitTests, status: TestStatus, reason: str
) -> list[TestRecord]:
    """Give every test the same status, none of them having run."""
    return [
        TestRecord(index, status, ran=False, input=cut_text(data), expected_output=cut_text(wanted), reason=reason)
        for index, (data, wanted) in enumerate(texts_of(tests))
    ]


def texts_of(tests: StdioTests | CheckTest | AssertTests | SubmitTests) -> list[tuple[bytes, bytes]]:
    """Give each test's input and expected output; a function test's input is the code that asserts.

    Of a server's own tests neither text nor number is known: they stand as one.
    """
    match tests:
        case StdioTests():
            return [*zip(tests.inputs, tests.expected, strict=True)]
        case CheckTest():
            return [(_bytes(f"{tests.test}\n\ncheck({tests.entry_point})"), b"")]
        case AssertTests():
            return [(_bytes(test), b"") for test in tests.asserts]
        case SubmitTests():
            return [(b"", b"")]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
