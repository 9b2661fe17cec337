"""Converts a verdict to a result with its reward. Pure."""

from evalrun_client.judge_request import dense_score
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_reward.wire import Outcome, Result, Shape

_CODES: dict[int, bool | int] = {
    judge_pb2.TEST_STATUS_SUCCESS: True,
    judge_pb2.TEST_STATUS_WRONG_ANSWER: False,
    judge_pb2.TEST_STATUS_API_ERROR: -1,
    judge_pb2.TEST_STATUS_RUNTIME_ERROR: -2,
    judge_pb2.TEST_STATUS_MEMORY_LIMIT: -2,
    judge_pb2.TEST_STATUS_TIMEOUT: -3,
    judge_pb2.TEST_STATUS_ASSUMED_TIMEOUT: -3,
    judge_pb2.TEST_STATUS_COMPILE_ERROR: -4,
    judge_pb2.TEST_STATUS_COMPILE_TIMEOUT: -4,
}
"""verl's codes: verl/utils/reward_score/sandbox_fusion/utils.py, 0.9.1. verl has no code for memory limits."""

UNKNOWN_RATIO = "a test could not be judged, so the share of tests passed is not known"


def make_result(sample_id: str, verdict: judge_pb2.Verdict, shape: Shape) -> Result:
    """Return the result of a verdict. "Not judged" verdicts and unknown shares have no reward."""
    codes = [_CODES.get(test.status, -1) for test in verdict.tests]
    passed = sum(code is True for code in codes)
    ratio = verdict.pass_ratio if verdict.HasField("pass_ratio") else None
    reward = _reward(verdict, shape)
    return Result(
        id=sample_id,
        outcome=Outcome.NOT_JUDGED if reward is None else Outcome.JUDGED,
        reward=reward,
        accepted=verdict.accepted if verdict.judged else None,
        pass_ratio=ratio,
        pass_ratio_high=verdict.pass_ratio_high if verdict.HasField("pass_ratio_high") else None,
        final_status=judge_pb2.FinalStatus.Name(verdict.final_status).removeprefix("FINAL_STATUS_").lower(),
        passed=passed,
        tests=len(codes),
        f2p_count=passed,
        f2p_total=len(codes),
        assumed_timeouts=verdict.assumed_timeouts,
        codes=codes,
        cached=verdict.cached,
        reason="" if reward is not None else explain_no_reward(verdict),
    )


def _reward(verdict: judge_pb2.Verdict, shape: Shape) -> float | None:
    if not verdict.judged:
        return None
    return dense_score(verdict) if shape == "dense" else float(verdict.accepted)


def is_decided_by_failure(shape: Shape) -> bool:
    """Return whether a failed test decides the reward, whatever the other tests do."""
    return shape == "sparse"


def explain_no_reward(verdict: judge_pb2.Verdict) -> str:
    """Return why a verdict has no reward, in one line."""
    for test in verdict.tests:
        if test.status == judge_pb2.TEST_STATUS_API_ERROR and test.reason:
            return test.reason
    return UNKNOWN_RATIO if verdict.judged else "the judge could not tell"


def make_result_without_reward(sample_id: str, outcome: Outcome, reason: str) -> Result:
    """Return the result of a sample that has no verdict."""
    return Result(id=sample_id, outcome=outcome, reason=reason)
