"""QueuePositions that runs share, and a judge that is asked again."""

import asyncio
import random
from collections.abc import Callable

import pytest

from evalrun_client.failure_codes import FailureCode
from evalrun_client.fake_judge import Answer, make_scripted_verdict, unavailable
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_reward.judge_calls import FairSlots, JudgeCalls, NoVerdictError, ProblemRequest
from evalrun_reward.retries import Cause


class Scripted:
    """A judge that gives these answers in turn."""

    def __init__(self, *answers: Answer | Callable[[judge_pb2.JudgeRequest], Answer]) -> None:
        self.answers = list(answers)
        self.requests: list[judge_pb2.JudgeRequest] = []

    async def judge(self, request: judge_pb2.JudgeRequest) -> Answer:
        self.requests.append(request)
        answer = self.answers.pop(0)
        return answer(request) if callable(answer) else answer


class Calls:
    """Calls of a scripted judge on a clock that moves when somebody sleeps."""

    def __init__(self, judge: Scripted) -> None:
        self.now = 100.0
        self.causes: list[Cause] = []
        self.judge = judge
        self.calls = JudgeCalls(
            judge, FairSlots(4), 3, clock=lambda: self.now, sleep=self.sleep, chance=random.Random(7),
            on_retry=self.causes.append,
        )  # fmt: skip

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def verdict(self, tests: ProblemRequest) -> judge_pb2.Verdict:
        return await self.calls.verdict(tests, "r", judge_pb2.Submission(text="accept"), lambda: 9.0)


def small() -> ProblemRequest:
    return ProblemRequest(judge_pb2.JudgeRequest(limits=judge_pb2.Limits(memory_mib=5)), None, 1)


def large() -> ProblemRequest:
    whole = judge_pb2.JudgeRequest(suite_digest=b"d", stdio=judge_pb2.StdioTests(tests=[judge_pb2.StdioTest()]))
    return ProblemRequest(whole, judge_pb2.JudgeRequest(suite_digest=b"d"), 1)


async def test_a_request_carries_run_answer_deadline_and_tests() -> None:
    calls = Calls(Scripted(make_scripted_verdict))
    assert (await calls.verdict(small())).accepted
    (request,) = calls.judge.requests
    assert (request.run, request.submission.text, request.deadline_seconds) == ("r", "accept", 9.0)
    assert request.limits.memory_mib == 5


async def test_judge_briefly_unavailable_is_retried_until_judged() -> None:
    calls = Calls(Scripted(*[unavailable()] * 8, make_scripted_verdict))
    assert (await calls.verdict(small())).judged
    assert calls.causes == [Cause.FAILED] * 8


async def test_a_judge_that_stays_away_is_given_up_with_its_reason() -> None:
    calls = Calls(Scripted(*[unavailable("no sandbox answered")] * 100))
    with pytest.raises(NoVerdictError, match="no sandbox answered") as error:
        await calls.verdict(small())
    assert not error.value.invalid
    assert 160 < calls.now < 200


async def test_a_full_queue_is_never_held_against_a_sample() -> None:
    busy = judge_pb2.StreamFailure(code=FailureCode.RESOURCE_EXHAUSTED, message="full", retry_after_ms=30_000)
    calls = Calls(Scripted(*[busy] * 50, make_scripted_verdict))
    assert (await calls.verdict(small())).judged
    assert calls.causes == [Cause.BUSY] * 50


async def test_a_request_that_the_judge_refuses_is_invalid() -> None:
    calls = Calls(Scripted(judge_pb2.StreamFailure(code=FailureCode.INVALID_ARGUMENT, message="no tests")))
    with pytest.raises(NoVerdictError, match="no tests") as error:
        await calls.verdict(small())
    assert error.value.invalid


async def test_undecided_verdict_is_retried_and_finally_returned() -> None:
    unknown = judge_pb2.Verdict(judged=False)
    calls = Calls(Scripted(unknown, unknown, unknown))
    assert not (await calls.verdict(small())).judged
    assert calls.causes == [Cause.UNDECIDED] * 2


async def test_large_tests_cross_once_and_again_where_the_gateway_lacks_them() -> None:
    lacking = judge_pb2.StreamFailure(code=FailureCode.NOT_FOUND, message="send them")
    calls = Calls(Scripted(make_scripted_verdict, make_scripted_verdict, lacking, make_scripted_verdict))
    for _ in range(3):
        assert (await calls.verdict(large())).judged
    assert [len(request.stdio.tests) for request in calls.judge.requests] == [1, 0, 0, 1]
    assert calls.causes == [Cause.TESTS]


async def test_a_run_with_many_samples_does_not_make_one_with_few_wait() -> None:
    places, order = FairSlots(2), list[str]()

    async def work(run: str) -> None:
        async with places.held_by(run):
            order.append(run)
            await asyncio.sleep(0)

    many = [asyncio.create_task(work("many")) for _ in range(20)]
    await asyncio.sleep(0)
    few = [asyncio.create_task(work("few")) for _ in range(3)]
    await asyncio.gather(*many, *few)
    assert order.index("few") <= 4
    assert [index for index, run in enumerate(order) if run == "few"][-1] <= 9
    assert (places.taken, places.waiting) == (0, 0)


async def test_slot_given_to_a_cancelled_caller_is_passed_on() -> None:
    places = FairSlots(1)
    gone, next_one = asyncio.Event(), asyncio.Event()

    async def hold(run: str, got: asyncio.Event) -> None:
        async with places.held_by(run):
            got.set()

    async with places.held_by("first"):
        waiting = asyncio.create_task(hold("gone", gone))
        after = asyncio.create_task(hold("next", next_one))
        await asyncio.sleep(0)
    waiting.cancel()  # the place is its own already, and it has not run since
    await asyncio.wait({waiting, after})
    assert next_one.is_set()
    assert not gone.is_set()
    assert places.taken == 0
