"""A problem and an answer -> what the judge is asked. Pure.

What a problem's record says wins over what the dataset's spec says, which wins over the defaults of evaluation.md
section 6.
"""

import hashlib
from collections.abc import Sequence

from evalrun.judge.v1 import judge_pb2
from evalrun_aggregator.rows import StoredCompletion
from evalrun_data.records import AssertTests, CheckTest, Problem, ServerTests, StdioTests
from evalrun_operator.api.v1alpha1 import Dataset

DEFAULT_TIME_SECONDS = 10.0
CONTEST_TIME_SECONDS = 30.0
"""Of stdin/stdout problems."""
DEFAULT_MEMORY_MIB = 1024
DEFAULT_OUTPUT_KIB = 1024
LARGE_SUITE = 64 * 1024
"""Characters from which a problem's tests are named by digest once the judge has them."""


def judge_request(run: str, dataset: Dataset, problem: Problem, completion: StoredCompletion) -> judge_pb2.JudgeRequest:
    """Give the request for one answer; its `request_id` is the sender's to choose."""
    request = judge_pb2.JudgeRequest(
        run=run,
        submission=judge_pb2.Submission(
            text=completion.text,
            mode=judge_pb2.SubmissionMode.ValueType(completion.mode or judge_pb2.SUBMISSION_MODE_AUTO),
            language=completion.language or problem.language,
            truncated=completion.finish_reason == "length",
        ),
        limits=test_limits(dataset, problem),
        stop_after_timeouts=dataset.stop_after_timeouts,
    )
    if dataset.judge_mode == "Submit":
        request.submit.dataset = problem.sandbox_dataset
        request.submit.id = problem.sandbox_id
        return request
    truth = problem.ground_truth
    match truth:
        case StdioTests():
            for given, expected in zip(truth.inputs, truth.outputs, strict=True):
                request.stdio.tests.add(input=given, expected_output=expected)
            if sum(map(len, truth.inputs)) + sum(map(len, truth.outputs)) >= LARGE_SUITE:
                request.suite_digest = suite_digest(truth.inputs, truth.outputs)
            comparator = deciding_comparator(dataset, problem)
            if comparator is not None:
                request.comparator.CopyFrom(comparator)
        case CheckTest():
            request.check.prompt = truth.prompt
            request.check.test = truth.test
            request.check.entry_point = truth.entry_point
        case AssertTests():
            request.asserts.asserts.extend(truth.test_list)
            request.asserts.setup_code = truth.test_setup_code
            request.asserts.entry_point = truth.entry_point
    return request


def suite_digest(inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """Give the digest of stdin/stdout tests as `judge.proto` defines it."""
    whole = hashlib.sha256()
    for case in zip(inputs, outputs, strict=True):
        for text in case:
            data = text.encode("utf-8", "surrogatepass")
            whole.update(len(data).to_bytes(8, "little"))
            whole.update(data)
    return whole.digest()


def test_limits(dataset: Dataset, problem: Problem) -> judge_pb2.Limits:
    """Give the limits of a test."""
    asked = dataset.limits
    contest = isinstance(problem.ground_truth, StdioTests | ServerTests)  # a server's may be a contest's
    default = CONTEST_TIME_SECONDS if contest else DEFAULT_TIME_SECONDS
    return judge_pb2.Limits(
        time_seconds=problem.limits.time_seconds or (asked and asked.time_seconds) or default,
        memory_mib=problem.limits.memory_mib or (asked and asked.memory_mib) or DEFAULT_MEMORY_MIB,
        output_kib=(asked and asked.output_kib) or DEFAULT_OUTPUT_KIB,
    )


def deciding_comparator(dataset: Dataset, problem: Problem) -> judge_pb2.Comparator | None:
    """Give what decides for a stdin/stdout problem; None: the judge's default, `standard`."""
    own = problem.comparator
    if own is not None:
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
