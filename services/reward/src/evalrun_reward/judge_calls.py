"""Has a sample judged, with slots that runs share fairly, until there is a decision or the time is up."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from evalrun_proto.judge.v1 import judge_pb2
from evalrun_reward.retries import Cause, GiveUp, History, RetryAfter, decide_after_failure, decide_after_verdict
from evalrun_runtime.declared_shares import DeclaredShares
from evalrun_runtime.fair_queue import FairQueue

MAX_DIGESTS = 100_000


class JudgeCaller(Protocol):
    """Interface of the judge's client. `evalrun_client.judge_client.GrpcJudge` implements it."""

    async def judge(self, request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict | judge_pb2.StreamFailure:
        """Judge a submission. Raises JudgeRefusedError."""
        ...


class NoVerdictError(Exception):
    """The judge decided nothing."""

    def __init__(self, given_up: GiveUp) -> None:
        super().__init__(given_up.reason)
        self.invalid = given_up.invalid


class FairSlots:
    """A limited number of slots. The run with the fewest slots, or furthest behind its share, gets the next one."""

    def __init__(self, places: int, shares: DeclaredShares | None = None) -> None:
        self._free = places
        self._places = places
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(lambda place: place.done(), shares)
        self.waiting = 0

    @property
    def taken(self) -> int:
        """Number of slots in use."""
        return self._places - self._free

    @asynccontextmanager
    async def held_by(self, run: str) -> AsyncIterator[None]:
        """Wait for a slot and hold it inside the block."""
        await self._acquire(run)
        try:
            yield
        finally:
            self._release(run)

    async def _acquire(self, run: str) -> None:
        if self._free:
            self._free -= 1
            self._queue.hold(run)
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.push(run, place)
        self.waiting += 1
        try:
            await place
        except asyncio.CancelledError:
            # The slot was granted in the same turn of the loop in which the request was cancelled.
            if not place.cancelled():
                self._release(run)
            raise
        finally:
            self.waiting -= 1

    def _release(self, run: str) -> None:
        self._queue.release(run)
        first = self._queue.first()
        if first is None:
            self._free += 1
        else:
            self._queue.take(first[0]).set_result(None)


@dataclass(frozen=True, slots=True)
class ProblemRequest:
    """The part of a request that all completions of a problem share."""

    __test__ = False

    whole: judge_pb2.JudgeRequest
    named: judge_pb2.JudgeRequest | None
    """The same request with the tests' digest in place of the tests; None: the tests are small."""
    size: int
    """Bytes of the request."""


class JudgeCalls:
    """Asks the judge until it decides.

    Args:
        judge: calls the gateway.
        places: limits the number of samples that are at the judge at once.
        attempts: number of times that a sample may fail.
        clock: seconds, monotonic.
        sleep: waits for a number of seconds.
        chance: spreads the delays.
        on_retry: called with the cause whenever the judge is asked again.
        on_judged: called after each call with the run and the seconds that its sample was at the judge.
    """

    def __init__(
        self,
        judge: JudgeCaller,
        places: FairSlots,
        attempts: int,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: random.Random,
        on_retry: Callable[[Cause], None] = lambda cause: None,
        on_judged: Callable[[str, float], None] = lambda run, seconds: None,
    ) -> None:
        self._judge = judge
        self._places = places
        self._attempts = attempts
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._on_retry = on_retry
        self._on_judged = on_judged
        self._sent: set[bytes] = set()
        """Digests of tests that were sent to some gateway. A gateway that lacks the tests asks for them."""

    async def verdict(
        self,
        tests: ProblemRequest,
        run: str,
        submission: judge_pb2.Submission,
        seconds_left: Callable[[], float | None],
        *,
        stop_at_failure: bool = False,
    ) -> judge_pb2.Verdict:
        """Return the verdict, which may still be "not judged". The caller bounds the time.

        Args:
            tests: the part of the request that the problem's completions share.
            run: the caller's run, by which the judge shares its slots.
            submission: the completion.
            seconds_left: returns the seconds for which the caller still waits; the judge then stops the program.
            stop_at_failure: whether the judge may stop at the first failed test.

        Raises:
            NoVerdictError: the judge decided nothing, or refuses the request.
            JudgeRefusedError: the judge refuses this service.
        """
        failures, first_failure, with_tests = 0, 0.0, False
        while True:
            request, named = self._request(tests, run, submission, with_tests=with_tests)
            async with self._places.held_by(run):
                request.deadline_seconds = seconds_left() or 0.0
                if stop_at_failure:
                    request.stop_at_failure = True
                    # If all tests run nevertheless, the short limit is enough for those after a timeout.
                    request.stop_after_timeouts = 1
                before = self._clock()
                answer = await self._judge.judge(request)
                self._on_judged(run, self._clock() - before)
            if isinstance(answer, judge_pb2.Verdict):
                failures += not answer.judged
                again: RetryAfter | GiveUp | None = decide_after_verdict(answer, failures, self._attempts)
                if again is None:
                    return answer
            else:
                now = self._clock()
                first_failure = first_failure or now
                failures += 1
                history = History(failures, now - first_failure, not named)
                again = decide_after_failure(answer, history, self._attempts)
                if isinstance(again, RetryAfter) and again.cause in (Cause.BUSY, Cause.TESTS):
                    failures -= 1
            if isinstance(again, GiveUp):
                raise NoVerdictError(again)
            self._on_retry(again.cause)
            with_tests = again.with_tests
            if again.delay:
                await self._sleep(again.delay * self._chance.uniform(0.5, 1.5))

    def _request(
        self, tests: ProblemRequest, run: str, submission: judge_pb2.Submission, *, with_tests: bool
    ) -> tuple[judge_pb2.JudgeRequest, bool]:
        """Return a request, and whether it only names its tests."""
        digest = tests.whole.suite_digest
        named = tests.named is not None and digest in self._sent and not with_tests
        if digest:
            if len(self._sent) >= MAX_DIGESTS:
                self._sent.clear()
            self._sent.add(digest)
        request = judge_pb2.JudgeRequest()
        request.CopyFrom(tests.named if named and tests.named is not None else tests.whole)
        request.run = run
        request.submission.MergeFrom(submission)
        return request, named
