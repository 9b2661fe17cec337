"""When the judge is asked again about a sample."""

import pytest

from evalrun_client.failure_codes import FailureCode as Code
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_reward.retries import (
    PATIENCE_SECONDS,
    Cause,
    GiveUp,
    History,
    RetryAfter,
    decide_after_failure,
    decide_after_verdict,
)

GIVEN_UP = GiveUp("the judge failed 4 times: why")


def failure(code: Code, wait: int = 0) -> judge_pb2.StreamFailure:
    return judge_pb2.StreamFailure(code=code, message="why", retry_after_ms=wait)


@pytest.mark.parametrize(
    ("given", "history", "decision"),
    [
        (failure(Code.INVALID_ARGUMENT), History(1, 0, sent_tests=True), GiveUp("why", invalid=True)),
        (failure(Code.UNIMPLEMENTED), History(1, 0, sent_tests=True), GiveUp("why", invalid=True)),
        (failure(Code.NOT_FOUND), History(1, 0, sent_tests=False), RetryAfter(Cause.TESTS, with_tests=True)),
        (failure(Code.NOT_FOUND), History(1, 0, sent_tests=True), RetryAfter(Cause.FAILED, 0.1)),
        (failure(Code.RESOURCE_EXHAUSTED, 700), History(1, 0, sent_tests=True), RetryAfter(Cause.BUSY, 0.7)),
        (failure(Code.RESOURCE_EXHAUSTED), History(99, 999, sent_tests=True), RetryAfter(Cause.BUSY, 0.05)),
        (failure(Code.UNAVAILABLE), History(1, 0, sent_tests=True), RetryAfter(Cause.FAILED, 0.1)),
        (failure(Code.INTERNAL), History(3, 1, sent_tests=True), RetryAfter(Cause.FAILED, 0.4)),
        (
            failure(Code.CANCELLED),
            History(1, 0, sent_tests=True),
            RetryAfter(Cause.FAILED, 0.1),
        ),  # by a draining server
        (failure(Code.UNAVAILABLE), History(50, PATIENCE_SECONDS - 1, sent_tests=True), RetryAfter(Cause.FAILED, 10.0)),
        (failure(Code.UNAVAILABLE), History(3, PATIENCE_SECONDS, sent_tests=True), RetryAfter(Cause.FAILED, 0.4)),
        (failure(Code.DEADLINE_EXCEEDED), History(4, PATIENCE_SECONDS, sent_tests=True), GIVEN_UP),
    ],
)
def test_decide_after_failure_retries_or_gives_up_by_code_and_history(
    given: judge_pb2.StreamFailure, history: History, decision: RetryAfter | GiveUp
) -> None:
    assert decide_after_failure(given, history, attempts=4) == decision


@pytest.mark.parametrize(
    ("verdict", "failures", "decision"),
    [
        (judge_pb2.Verdict(judged=True), 0, None),
        (judge_pb2.Verdict(judged=False), 1, RetryAfter(Cause.UNDECIDED, 0.1)),
        (judge_pb2.Verdict(judged=False), 4, None),
        (judge_pb2.Verdict(judged=False, permanent=True), 1, None),
    ],
)
def test_decide_after_verdict_retries_an_undecided_verdict_up_to_the_limit(
    verdict: judge_pb2.Verdict, failures: int, decision: RetryAfter | None
) -> None:
    assert decide_after_verdict(verdict, failures, attempts=4) == decision
