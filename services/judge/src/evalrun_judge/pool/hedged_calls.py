"""Hedged sandbox calls: a slow call is also sent to a second sandbox. `hedge_policy` decides which calls are slow."""

import asyncio
from collections.abc import Awaitable, Callable

from evalrun_executor.api import RunReply
from evalrun_judge.pool.hedge_policy import CallTimes, HedgePolicy
from evalrun_judge.pool.sandbox_endpoint import SandboxEndpoint
from evalrun_judge.sandboxes import RunRefusedError

Call = Callable[[SandboxEndpoint], Awaitable[RunReply]]
"""Calls a sandbox in which a slot is held, and gives the slot back. Raises SandboxError, RunRefusedError."""

Spare = Callable[[SandboxEndpoint], SandboxEndpoint | None]
"""Takes a slot of another sandbox than this one, where there is one to spare."""


class HedgedCalls:
    """Runs calls, and second ones where the first take too long."""

    def __init__(
        self,
        policy: HedgePolicy | None,
        clock: Callable[[], float],
        slots: Callable[[], int],
        on_hedge: Callable[[bool], None],
    ) -> None:
        """Create the wrapper.

        Args:
            policy: which calls are stragglers; None: none is called twice.
            clock: seconds, monotonic.
            slots: of all sandboxes.
            on_hedge: told of each second call whether it answered first.
        """
        self._policy = policy
        self._clock = clock
        self._slots = slots
        self._on_hedge = on_hedge
        self._times = CallTimes(policy or HedgePolicy())
        self._hedges = 0

    async def answer(self, endpoint: SandboxEndpoint, call: Call, spare: Spare, *, alone: bool) -> RunReply:
        """Call a sandbox, and a second one where the first takes too long.

        Args:
            endpoint: where a slot is held.
            call: see there.
            spare: see there.
            alone: there is no second sandbox.

        Raises:
            SandboxError: the first call's, where neither gave an answer.
            RunRefusedError: either's.
        """
        after = None if self._policy is None else self._times.straggles_after
        if after is None or alone:
            return await self._timed(endpoint, call)
        first = asyncio.create_task(self._timed(endpoint, call))
        calls = {first}
        try:
            wait = after
            while not (await asyncio.wait(calls, timeout=wait))[0]:
                wait = after / 4  # it is one by now: from here on a slot that is idle is what it waits for
                other = spare(endpoint) if self._room() else None
                if other is not None:
                    return await self._race(first, other, call, calls)
            return first.result()
        finally:
            for one in calls:
                one.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    def _room(self) -> bool:
        return self._policy is not None and self._hedges < self._policy.max_hedges(self._slots())

    async def _timed(self, endpoint: SandboxEndpoint, call: Call) -> RunReply:
        called = self._clock()
        reply = await call(endpoint)
        self._times.add(self._clock() - called)
        return reply

    async def _race(
        self, first: "asyncio.Task[RunReply]", other: SandboxEndpoint, call: Call, calls: "set[asyncio.Task[RunReply]]"
    ) -> RunReply:
        """Call the other sandbox too. Return the first good answer, or raise the first call's error if there is
        none."""
        self._hedges += 1
        second = asyncio.create_task(self._timed(other, call))
        calls.add(second)
        won = False
        try:
            pending = {first, second}
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
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
