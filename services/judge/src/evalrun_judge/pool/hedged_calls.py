"""Hedged sandbox calls: a slow call is also sent to a second sandbox. `hedge_policy` decides which calls are slow."""

import asyncio
from collections.abc import Callable

from evalrun_executor.api import RunReply
from evalrun_judge.pool.hedge_policy import CallTimes, HedgePolicy
from evalrun_judge.pool.sandbox_calls import SandboxCalls, SandboxWork
from evalrun_judge.pool.sandbox_endpoint import SandboxEndpoint
from evalrun_judge.sandboxes import RunRefusedError


class HedgedCalls:
    """Makes calls, and repeats slow calls at a second sandbox."""

    def __init__(
        self,
        policy: HedgePolicy | None,
        calls: SandboxCalls,
        clock: Callable[[], float],
        on_hedge: Callable[[bool], None],
    ) -> None:
        """Create the wrapper.

        Args:
            policy: decides which calls are stragglers; None: no call is made twice.
            calls: makes each call.
            clock: seconds, monotonic.
            on_hedge: called after each second call with whether that call replied first.
        """
        self._policy = policy
        self._calls = calls
        self._clock = clock
        self._on_hedge = on_hedge
        self._times = CallTimes(policy or HedgePolicy())
        self._hedges = 0

    async def answer(self, endpoint: SandboxEndpoint, work: SandboxWork[RunReply], run: str) -> RunReply:
        """Call the sandbox in which the run holds a slot, and a second sandbox if the first is too slow.

        Raises:
            SandboxError: both calls failed; the error is that of the first.
            RunRefusedError: either sandbox refused the program.
        """
        after = None if self._policy is None else self._times.straggles_after
        if after is None or self._calls.alone:
            called = self._clock()
            reply = await self._calls.call(endpoint, work, run)
            self._times.add(self._clock() - called)
            return reply
        first = asyncio.create_task(self._time_call(endpoint, work, run))
        calls = {first}
        try:
            wait = after
            while not (await asyncio.wait(calls, timeout=wait))[0]:
                # The call is a straggler now. Look for an idle slot more often from here on.
                wait = after / 4
                other = self._calls.take_spare(endpoint, run) if self._has_room() else None
                if other is not None:
                    calls.add(second := asyncio.create_task(self._time_call(other, work, run)))
                    return await self._race(first, second)
            return first.result()
        finally:
            # The slower call goes on in its sandbox until it is cancelled, and holds a slot there.
            for one in calls:
                one.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    def _has_room(self) -> bool:
        return self._policy is not None and self._hedges < self._policy.max_hedges(self._calls.slots)

    async def _time_call(self, endpoint: SandboxEndpoint, work: SandboxWork[RunReply], run: str) -> RunReply:
        called = self._clock()
        reply = await self._calls.call(endpoint, work, run)
        self._times.add(self._clock() - called)
        return reply

    async def _race(self, first: "asyncio.Task[RunReply]", second: "asyncio.Task[RunReply]") -> RunReply:
        """Return the first successful reply. Raise the first call's error if both fail."""
        self._hedges += 1
        won = False
        try:
            pending = {first, second}
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                # A refusal holds for every sandbox, so the other call need not be awaited.
                for one in done:
                    error = one.exception()
                    if error is None:
                        won = one is second
                        return one.result()
                    if isinstance(error, RunRefusedError):
                        raise error
            return first.result()
        finally:
            self._hedges -= 1
            self._on_hedge(won)
