"""What becomes of an item after the judge answered, or did not."""

import grpc
import pytest

from evalrun_aggregator.judging.retry_policy import (
    Decision,
    ItemHistory,
    NotJudged,
    Outage,
    Retry,
    RetryPolicy,
    Store,
    decide_failure,
    decide_loss,
    decide_verdict,
    explain_not_judged,
)
from evalrun_proto.judge.v1 import judge_pb2

POLICY = RetryPolicy(attempts=3, losses=2, patience=100, first_delay=1, max_delay=5)
ALIVE = Outage(judged_meanwhile=True, failing_seconds=0)
OUTAGE = Outage(judged_meanwhile=False, failing_seconds=10)
LONG_OUTAGE = Outage(judged_meanwhile=False, failing_seconds=101)


def failure(code: grpc.StatusCode, retry_after_ms: int = 0) -> judge_pb2.StreamFailure:
    return judge_pb2.StreamFailure(code=code.value[0], message="why", retry_after_ms=retry_after_ms)


@pytest.mark.parametrize(
    ("code", "history", "outage", "decision"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, ItemHistory(), ALIVE, NotJudged("INVALID_ARGUMENT: why")),
        (grpc.StatusCode.INVALID_ARGUMENT, ItemHistory(), OUTAGE, NotJudged("INVALID_ARGUMENT: why")),
        (grpc.StatusCode.UNAVAILABLE, ItemHistory(), ALIVE, Retry(1, ItemHistory(failures=1))),
        (grpc.StatusCode.CANCELLED, ItemHistory(), ALIVE, Retry(1, ItemHistory(failures=1))),
        (grpc.StatusCode.UNAVAILABLE, ItemHistory(1), ALIVE, Retry(2, ItemHistory(failures=2))),
        (grpc.StatusCode.UNAVAILABLE, ItemHistory(2), ALIVE, NotJudged("UNAVAILABLE: why")),
        # a queue that is too long: as a stream that was given up, which waits as long
        (grpc.StatusCode.DEADLINE_EXCEEDED, ItemHistory(2), ALIVE, Retry(0, ItemHistory(2, losses=1))),
        (grpc.StatusCode.DEADLINE_EXCEEDED, ItemHistory(losses=1), OUTAGE, Retry(0, ItemHistory(losses=1))),
        (grpc.StatusCode.DEADLINE_EXCEEDED, ItemHistory(losses=1), ALIVE, NotJudged("DEADLINE_EXCEEDED: why")),
        (grpc.StatusCode.INTERNAL, ItemHistory(), ALIVE, Retry(1, ItemHistory(failures=1))),
        (grpc.StatusCode.UNAVAILABLE, ItemHistory(2), OUTAGE, Retry(4, ItemHistory(2, uncounted=1))),
        (grpc.StatusCode.UNAVAILABLE, ItemHistory(2, uncounted=9), OUTAGE, Retry(5, ItemHistory(2, uncounted=10))),
        (grpc.StatusCode.UNAVAILABLE, ItemHistory(2), LONG_OUTAGE, NotJudged("UNAVAILABLE: why")),
    ],
)
def test_decide_failure_retries_or_gives_up_by_code_history_and_outage(
    code: grpc.StatusCode, history: ItemHistory, outage: Outage, decision: Decision
) -> None:
    assert decide_failure(failure(code), history, outage, POLICY) == decision


def test_decide_failure_busy_judge_is_retried_after_its_delay_without_counting_a_failure() -> None:
    history = ItemHistory(2, 1, 3)
    busy = failure(grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after_ms=1500)
    assert decide_failure(busy, history, LONG_OUTAGE, POLICY) == Retry(1.5, history)
    at_once = decide_failure(failure(grpc.StatusCode.RESOURCE_EXHAUSTED), history, ALIVE, POLICY)
    assert at_once == Retry(POLICY.min_busy_delay, history)


@pytest.mark.parametrize(
    ("history", "outage", "decision"),
    [
        (ItemHistory(), ALIVE, Retry(0, ItemHistory(losses=1))),
        (ItemHistory(losses=1), ALIVE, NotJudged("the judge's stream broke 2 times: gone")),
        (ItemHistory(losses=1), OUTAGE, Retry(0, ItemHistory(losses=1))),
        (ItemHistory(losses=1), LONG_OUTAGE, NotJudged("the judge's stream broke 2 times: gone")),
    ],
)
def test_decide_loss_retries_the_first_loss_then_gives_up(
    history: ItemHistory, outage: Outage, decision: Decision
) -> None:
    assert decide_loss("gone", history, outage, POLICY) == decision


def test_decide_verdict_undecided_is_retried_before_being_stored() -> None:
    told = judge_pb2.Verdict(judged=True)
    untold = judge_pb2.Verdict(judged=False)
    assert decide_verdict(told, ItemHistory(9, 9, 9), LONG_OUTAGE, POLICY) == Store()
    assert decide_verdict(untold, ItemHistory(), ALIVE, POLICY) == Retry(1, ItemHistory(failures=1))
    assert decide_verdict(untold, ItemHistory(2), ALIVE, POLICY) == Store()


@pytest.mark.parametrize(
    ("verdict", "named"),
    [
        (judge_pb2.Verdict(judged=True, score=float("nan")), "score is nan"),
        (judge_pb2.Verdict(judged=True, pass_ratio=float("-inf")), "pass_ratio is -inf"),
        (judge_pb2.Verdict(judged=True, tests=[judge_pb2.TestResult(case_index=4, duration=float("inf"))]), "test 4"),
    ],
)
def test_a_verdict_whose_numbers_are_not_finite_is_asked_for_again_then_not_judged(
    verdict: judge_pb2.Verdict, named: str
) -> None:
    assert decide_verdict(verdict, ItemHistory(), ALIVE, POLICY) == Retry(1, ItemHistory(failures=1))
    last = decide_verdict(verdict, ItemHistory(2), ALIVE, POLICY)
    assert isinstance(last, NotJudged)
    assert last.reason.startswith("INTERNAL: the judge's answer is malformed: ")
    assert named in last.reason


def test_permanent_judge_failure_is_stored_at_once() -> None:
    """Asked again as in an outage, one problem that cannot be judged held a run for ten minutes."""
    permanent = judge_pb2.Verdict(judged=False, permanent=True)
    for outage in (ALIVE, OUTAGE, LONG_OUTAGE):
        assert decide_verdict(permanent, ItemHistory(), outage, POLICY) == Store()


def test_the_reason_is_the_first_test_that_could_not_be_judged() -> None:
    tests = [
        judge_pb2.TestResult(status=judge_pb2.TEST_STATUS_SUCCESS, reason="fine"),
        judge_pb2.TestResult(status=judge_pb2.TEST_STATUS_API_ERROR, reason="sandbox 500"),
    ]
    assert explain_not_judged(judge_pb2.Verdict(tests=tests)) == "api_error: sandbox 500"
    assert explain_not_judged(judge_pb2.Verdict()) == "api_error"
