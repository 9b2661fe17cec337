"""Calls by values at the gateway: their tests are encoded once, and what cannot be called so is refused."""

import pytest
from builders.judge.gateway import Time, make_judge, make_pool

from evalrun_executor.api import ProgramRun, RunReply, RunRequest
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


def call_input(request: RunRequest) -> RunReply:
    """A program that returns the sum, but 0 for a first argument of 7, and crashes for 8."""
    runs = []
    for data in request.inputs:
        x, y = map(int, data.split())
        printed = f"\n{RETURNED} {0 if x == 7 else x + y}\n".encode()
        runs.append(ProgramRun("exited", 1) if x == 8 else ended(printed))
    return reply(*runs)


@pytest.mark.parametrize(
    ("first_arguments", "stopped", "accepted"),
    [
        ([1, 2, 3, 4, 5, 6], [1, 4, 1], True),
        ([7, 2, 3, 4, 5, 6], [1], False),
        ([1, 2, 8, 4, 5, 6], [1, 4], False),
        ([1, 2, 3, 4, 5, 7], [1, 4, 1], False),
    ],
)
@pytest.mark.parametrize("stops", [False, True])
async def test_call_family_first_failure_ends_later_waves_only_with_stop_at_failure(
    first_arguments: list[int], stopped: list[int], accepted: bool, stops: bool
) -> None:
    tests = CallTests(ADD, tuple(f"[{x}, 1]" for x in first_arguments), tuple(str(x + 1) for x in first_arguments))
    sandbox, time = FakeSandbox(call_input), Time()
    pool = make_pool([sandbox], time)
    pool.start()
    try:
        request = JudgeRequest(Submission("```python\ndef add(x, y): ...\n```"), tests, stop_at_failure=stops)
        verdict = await make_judge(pool, time)[0].judge(request)
    finally:
        await pool.close()
    assert (verdict.judged, verdict.accepted) == (True, accepted)
    assert [len(sent.inputs) for sent in sandbox.requests] == (stopped if stops else [6])
    assert [test.case_index for test in verdict.tests] == list(range(sum(stopped) if stops else 6))
    assert (verdict.pass_ratio is None) == (len(verdict.tests) < 6)


async def test_call_family_compiled_program_runs_all_calls_at_once() -> None:
    tests = CallTests(ADD, ("[7, 1]", "[1, 1]"), ("8", "2"))
    sandbox, time = FakeSandbox(call_input), Time()
    pool = make_pool([sandbox], time)
    pool.start()
    try:
        submission = Submission("```cpp\nint add(int x, int y) { return 0; }\n```", language="cpp")
        verdict = await make_judge(pool, time)[0].judge(JudgeRequest(submission, tests, stop_at_failure=True))
    finally:
        await pool.close()
    assert ([len(sent.inputs) for sent in sandbox.requests], verdict.accepted) == ([2], False)


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
