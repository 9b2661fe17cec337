"""From a verdict to a reward."""

import pytest

from evalrun_proto.judge.v1 import judge_pb2
from evalrun_reward.rewards import UNKNOWN_RATIO, make_result
from evalrun_reward.wire import Outcome, Shape

S = judge_pb2


def verdict(*statuses: judge_pb2.TestStatus.ValueType, **fields: object) -> judge_pb2.Verdict:
    tests = [judge_pb2.TestResult(status=status) for status in statuses]
    return judge_pb2.Verdict(tests=tests, **fields)  # type: ignore[arg-type]  # passed on


HALF = verdict(
    S.TEST_STATUS_SUCCESS, S.TEST_STATUS_WRONG_ANSWER, judged=True, pass_ratio=0.5,
    final_status=S.FINAL_STATUS_WRONG_ANSWER,
)  # fmt: skip
RIGHT = verdict(S.TEST_STATUS_SUCCESS, judged=True, accepted=True, pass_ratio=1.0, final_status=S.FINAL_STATUS_SUCCESS)
UNKNOWN = verdict(S.TEST_STATUS_API_ERROR, S.TEST_STATUS_SUCCESS, final_status=S.FINAL_STATUS_API_ERROR)
FAILED_WITHOUT_A_SHARE = verdict(
    S.TEST_STATUS_API_ERROR, S.TEST_STATUS_WRONG_ANSWER, judged=True, final_status=S.FINAL_STATUS_WRONG_ANSWER
)
EMPTY = verdict(S.TEST_STATUS_SUCCESS, judged=True, pass_ratio=1.0, final_status=S.FINAL_STATUS_EMPTY_OUTPUT)


@pytest.mark.parametrize(
    ("given", "shape", "reward", "outcome"),
    [
        (RIGHT, "dense", 1.0, Outcome.JUDGED),
        (RIGHT, "sparse", 1.0, Outcome.JUDGED),
        (HALF, "dense", 0.5, Outcome.JUDGED),
        (HALF, "sparse", 0.0, Outcome.JUDGED),
        (UNKNOWN, "dense", None, Outcome.NOT_JUDGED),
        (UNKNOWN, "sparse", None, Outcome.NOT_JUDGED),
        (FAILED_WITHOUT_A_SHARE, "dense", None, Outcome.NOT_JUDGED),
        (FAILED_WITHOUT_A_SHARE, "sparse", 0.0, Outcome.JUDGED),
        (EMPTY, "dense", 0.0, Outcome.JUDGED),
        (EMPTY, "sparse", 0.0, Outcome.JUDGED),
    ],
)
def test_undecided_verdict_has_no_reward(
    given: judge_pb2.Verdict, shape: Shape, reward: float | None, outcome: Outcome
) -> None:
    result = make_result("s", given, shape)
    assert (result.reward, result.outcome) == (reward, outcome)
    assert bool(result.reason) == (reward is None)


def test_unknown_pass_ratio_is_explained() -> None:
    assert make_result("s", FAILED_WITHOUT_A_SHARE, "dense").reason == UNKNOWN_RATIO


def test_codes_are_verls_and_counts_are_of_all_tests() -> None:
    statuses = (
        S.TEST_STATUS_SUCCESS, S.TEST_STATUS_WRONG_ANSWER, S.TEST_STATUS_RUNTIME_ERROR, S.TEST_STATUS_MEMORY_LIMIT,
        S.TEST_STATUS_TIMEOUT, S.TEST_STATUS_ASSUMED_TIMEOUT, S.TEST_STATUS_COMPILE_ERROR,
        S.TEST_STATUS_COMPILE_TIMEOUT, S.TEST_STATUS_API_ERROR,
    )  # fmt: skip
    result = make_result("s", verdict(*statuses, assumed_timeouts=1), "dense")
    assert result.codes == [True, False, -2, -2, -3, -3, -4, -4, -1]
    assert (result.f2p_count, result.f2p_total, result.p2p_count, result.p2p_total) == (1, 9, 0, 0)
    assert (result.passed, result.tests, result.assumed_timeouts) == (1, 9, 1)


def test_every_status_of_the_contract_has_a_code() -> None:
    named = [value for name, value in S.TestStatus.items() if value != S.TEST_STATUS_UNSPECIFIED]
    codes = make_result("s", verdict(*named), "dense").codes
    assert [code for status, code in zip(named, codes, strict=True) if code == -1] == [-1]
