"""Programs that time out on some tests only, through a real gateway and sandbox."""

from pathlib import Path

import pytest
from builders.judge.services import judge_all, services

from evalrun_proto.judge.v1 import judge_pb2

SLOW = "import sys\nn = int(input())\nif n < 3:\n    while True: pass\nprint(n)\n"
ENDLESS = "n = int(input())\nwhile n < 5: pass\nprint(n)\n"
FUNCTION = "def f(n):\n    while n < 4: pass\n    return n\n"


def request(program: str, stop_after_timeouts: int) -> judge_pb2.JudgeRequest:
    made = judge_pb2.JudgeRequest(
        submission=judge_pb2.Submission(text=program, mode=judge_pb2.SUBMISSION_MODE_STANDALONE),
        limits=judge_pb2.Limits(time_seconds=0.2),
        stop_after_timeouts=stop_after_timeouts,
    )
    for number in range(8):
        made.stdio.tests.add(input=str(number), expected_output=str(number))
    return made


def function_request(stop_after_timeouts: int) -> judge_pb2.JudgeRequest:
    made = request(FUNCTION, stop_after_timeouts)
    made.asserts.asserts.extend(f"assert f({number}) == {number}" for number in range(6))
    made.asserts.entry_point = "f"
    return made


@pytest.mark.parametrize("stop", [0, 3])
async def test_program_that_is_slow_on_some_tests_is_credited_for_the_others(tmp_path: Path, stop: int) -> None:
    requests = {"slow": request(SLOW, stop), "endless": request(ENDLESS, stop), "function": function_request(stop)}
    async with services(tmp_path) as (judge, _):
        verdicts = await judge_all(judge.address, requests)
    assert verdicts["slow"].pass_ratio == verdicts["slow"].pass_ratio_high == 0.625
    endless, function = verdicts["endless"], verdicts["function"]
    assert endless.pass_ratio == 0.375
    assert function.pass_ratio == pytest.approx(2 / 6)
    if stop == 0:
        assert (endless.assumed_timeouts, endless.pass_ratio_high) == (0, 0.375)
        assert function.assumed_timeouts == 0
    else:
        assert (endless.assumed_timeouts, endless.pass_ratio_high) == (2, 0.625)
        assert [test.case_index for test in endless.tests if test.status == judge_pb2.TEST_STATUS_ASSUMED_TIMEOUT] == [
            3,
            4,
        ]
        assert function.assumed_timeouts == 1
        assert function.pass_ratio_high == pytest.approx(3 / 6)
