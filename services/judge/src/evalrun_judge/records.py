"""Builds a record per test: input, output and status, with long texts cut. Pure."""

from collections.abc import Sequence

from evalrun_executor.api import RunReply
from evalrun_judge.cpython_texts import parse_missing_package
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import Tests
from evalrun_judge.verdict import TestOutcome, TestRecord, cut_text, stdio_outcome
from evalrun_registry.comparators import Comparator


def compare_runs(expected: Sequence[bytes], reply: RunReply, comparator: Comparator) -> list[TestOutcome]:
    """Judge a program's runs by a comparator that is a pure function.

    Raises:
        ValueError: the numbers of expected outputs and runs differ.
    """
    return [stdio_outcome(run, wanted, comparator) for run, wanted in zip(reply.runs, expected, strict=True)]


def records_of_runs(
    inputs: Sequence[bytes],
    expected: Sequence[bytes],
    reply: RunReply,
    outcomes: Sequence[TestOutcome],
    *,
    first: int = 0,
) -> list[TestRecord]:
    """Return the record of each run; `first` is the index of the first run's test.

    Raises:
        ValueError: the numbers of inputs, expected outputs, runs and outcomes differ.
    """
    compile_stderr = cut_text(reply.compile.stderr)
    return [
        TestRecord(
            case_index=index,
            status=outcome.status,
            ran=run.end != "not_run" or run.wall_seconds > 0,
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
            permanent=outcome.permanent,
            rests_on=outcome.rests_on,
            cause=outcome.cause,
            missing_module=parse_missing_package(run.stderr) if outcome.status is TestStatus.RUNTIME_ERROR else "",
        )
        for index, (data, wanted, run, outcome) in enumerate(
            zip(inputs, expected, reply.runs, outcomes, strict=True), first
        )
    ]


def records_without_run(tests: Tests, status: TestStatus, reason: str) -> list[TestRecord]:
    """Return a record of each test with the same status, for tests that did not run."""
    return [
        TestRecord(index, status, ran=False, input=cut_text(data), expected_output=cut_text(wanted), reason=reason)
        for index, (data, wanted) in enumerate(tests.texts())
    ]
