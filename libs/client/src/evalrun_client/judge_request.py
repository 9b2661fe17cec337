"""Builds the judge request for an answer to a problem. Pure.

Limits and comparator come from the problem's record, or else from the dataset's spec, or else from the defaults of
docs/verdicts.md.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from evalrun_api.v1alpha1 import Dataset
from evalrun_data.records import Problem, ServerTests, StdioTests
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_registry.limits import CONTEST_LIMITS, DEFAULT_LIMITS, UNSET_LIMITS

LARGE_SUITE = 64 * 1024
"""Characters from which a problem's tests are named by digest once the judge has them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer to a problem."""

    text: str
    mode: judge_pb2.SubmissionMode.ValueType = judge_pb2.SUBMISSION_MODE_AUTO
    language: str = ""
    """Empty: the problem's."""
    truncated: bool = False
    """The model was cut off at its token limit."""


def judge_request(run: str, dataset: Dataset, problem: Problem, answer: Answer) -> judge_pb2.JudgeRequest:
    """Return the request for a completion; the sender chooses its `request_id`."""
    request = judge_pb2.JudgeRequest(
        run=run,
        submission=judge_pb2.Submission(
            text=answer.text,
            mode=answer.mode,
            language=answer.language or problem.language,
            truncated=answer.truncated,
            max_characters=dataset.max_answer_characters or 0,
        ),
        limits=test_limits(dataset, problem),
        stop_after_timeouts=dataset.stop_after_timeouts,
        function_tests="" if dataset.function_tests == "auto" else dataset.function_tests,
    )
    if dataset.judge_mode == "Submit":
        request.submit.dataset = problem.sandbox_dataset
        request.submit.id = problem.sandbox_id
        return request
    truth = problem.ground_truth
    if truth.form:
        tests = getattr(request, truth.form)
        tests.CopyFrom(type(tests)(**truth.to_message()))
    if isinstance(truth, StdioTests):
        request.submission.prelude = truth.prelude
        if sum(map(len, truth.inputs)) + sum(map(len, truth.outputs)) >= LARGE_SUITE:
            request.suite_digest = suite_digest(truth.inputs, truth.outputs)
        comparator = choose_comparator(dataset, problem)
        if comparator is not None:
            request.comparator.CopyFrom(comparator)
    return request


def dense_score(verdict: judge_pb2.Verdict) -> float | None:
    """Return the share of tests passed, verl's score of a program; None if it is not known."""
    if not verdict.judged:
        return None
    if verdict.final_status == judge_pb2.FINAL_STATUS_EMPTY_OUTPUT:
        # A completion without a program passes nothing, whatever an empty program would print.
        return 0.0
    return verdict.pass_ratio if verdict.HasField("pass_ratio") else None


def suite_digest(inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """Return the digest of stdin/stdout tests as `judge.proto` defines it."""
    whole = hashlib.sha256()
    for case in zip(inputs, outputs, strict=True):
        for text in case:
            data = text.encode("utf-8", "surrogatepass")
            whole.update(len(data).to_bytes(8, "little"))
            whole.update(data)
    return whole.digest()


def test_limits(dataset: Dataset, problem: Problem) -> judge_pb2.Limits:
    """Return the limits of a test."""
    asked = UNSET_LIMITS if dataset.limits is None else dataset.limits.partial
    # The tests of a server problem may have a contest's form.
    contest = isinstance(problem.ground_truth, StdioTests | ServerTests)
    limits = problem.limits.or_else(asked).complete(CONTEST_LIMITS if contest else DEFAULT_LIMITS)
    return judge_pb2.Limits(
        time_seconds=limits.time_seconds, memory_mib=limits.memory_mib, output_kib=limits.output_kib
    )


def choose_comparator(dataset: Dataset, problem: Problem) -> judge_pb2.Comparator | None:
    """Return the comparator of a stdin/stdout problem; None means the judge's default, `standard`."""
    own = problem.comparator
    if own is not None and not (own.by_format and dataset.comparator is not None):
        comparator = judge_pb2.Comparator(name=own.name, case_sensitive=own.case_sensitive, abs=own.abs, rel=own.rel)
        if own.checker is not None:
            checker = own.checker
            comparator.checker.CopyFrom(
                judge_pb2.Checker(protocol=checker.protocol, language=checker.language, source=checker.source)
            )
        return comparator
    asked = dataset.comparator
    if asked is None:
        return None
    return judge_pb2.Comparator(
        name=asked.name,
        case_sensitive=asked.case_sensitive,
        abs=asked.absolute_tolerance,
        rel=asked.relative_tolerance,
    )
