"""Calls by values at the gateway: their tests are encoded once, and what cannot be called so is refused."""

import pytest
from builders.judge.gateway import Time, make_judge, make_pool

from evalrun_executor.api import RunRequest
from evalrun_judge.families.calls import CallTests
from evalrun_judge.sandboxes.fake import FakeSandbox, ended, reply
from evalrun_judge.submission import InvalidRequestError, JudgeRequest, Submission
from evalrun_judge.verdict import Verdict
from evalrun_registry.call_forms import RETURNED

ADD = "add(x: int, y: int) -> int"


async def judge(*tests: CallTests) -> tuple[list[Verdict], list[RunRequest]]:
    """Judge an answer for each tests; every program returns 3."""
    sandbox, time = FakeSandbox(lambda _: reply(ended(f"\n{RETURNED} 3\n".encode()))), Time()
    pool = make_pool([sandbox], time)
    pool.start()
    try:
        gateway = make_judge(pool, time)[0]
        requests = [
            JudgeRequest(Submission(f"```python\ndef add(x, y):\n    return {number} and 3\n```"), each)
            for number, each in enumerate(tests, 1)
        ]
        return [await gateway.judge(request) for request in requests], sandbox.requests
    finally:
        await pool.close()


async def test_call_family_two_answers_to_a_problem_encode_its_tests_once() -> None:
    verdicts, runs = await judge(*(CallTests(ADD, (f"[{number}, 2]",), ("3",)) for number in (1, 1, 0)))
    assert [verdict.accepted for verdict in verdicts] == [True, True, True]
    first, second, other = (run.inputs[0] for run in runs)
    assert (first, other) == (b"1 2\n", b"0 2\n")
    assert first is second


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        (CallTests(ADD, ("[1, 2]",), ()), "calls: 1 calls with 0 results"),
        (CallTests("add(x) -> int", ("[1]",), ("1",)), "calls: 'x' is no parameter"),
        (CallTests(ADD, ("[1]",), ("1",)), "calls: the arguments '[1]' are not those of add"),
        (CallTests(ADD, ("[1, 2]",), ("null",)), "calls: the value null is no int"),
    ],
)
async def test_call_family_tests_that_cannot_be_called_are_refused(tests: CallTests, message: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await judge(tests)
    assert message in str(refused.value)
