"""Schedules programs onto sandboxes: picks a lightly loaded one, respects its slots, retries infrastructure errors.

Each module uses only those to its right: `pool` > `hedged_calls` > `sandbox_calls` > `sandbox_fleet` > `slot_queue`.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

from evalrun_executor.api import RunReply, RunRequest
from evalrun_judge.pool.hedged_calls import HedgedCalls
from evalrun_judge.pool.info import PoolInfo
from evalrun_judge.pool.policy import PoolPolicy
from evalrun_judge.pool.retries import RetryBudget
from evalrun_judge.pool.sandbox_calls import PoolMetrics, ProgramWork, Reply, SandboxCalls, SandboxWork, SubmitWork
from evalrun_judge.pool.sandbox_endpoint import SandboxEndpoint
from evalrun_judge.pool.sandbox_fleet import SandboxFleet, SandboxSources
from evalrun_judge.pool.slot_queue import NoSandboxError, SlotQueue
from evalrun_judge.sandboxes import SandboxBusyError, SandboxError, SubmitCall, SubmitReply
from evalrun_runtime.declared_shares import DeclaredShares


class SandboxPool:
    """A pool of sandboxes behind the interface of a single sandbox."""

    def __init__(
        self,
        sources: SandboxSources,
        policy: PoolPolicy,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        randomness: random.Random,
        metrics: PoolMetrics,
        shares: DeclaredShares | None = None,
    ) -> None:
        """Create the pool; `start` takes the sandboxes into use.

        Args:
            sources: where sandboxes come from.
            policy: the pool's rules.
            clock: seconds, monotonic.
            sleep: waits for a number of seconds.
            randomness: breaks ties and spreads delays.
            metrics: counts calls.
            shares: shares of the slots by run; None: equal shares.
        """
        self._policy = policy
        self._clock, self._sleep, self._random = clock, sleep, randomness
        self._metrics = metrics
        self._budget = RetryBudget(policy.retries)
        self._queue = SlotQueue(randomness, shares)
        self._fleet = SandboxFleet(sources, policy, self._queue, clock=clock, sleep=sleep, randomness=randomness)
        self._calls = SandboxCalls(self._fleet, self._queue, self._budget, clock, metrics)
        self._hedged = HedgedCalls(policy.hedging, self._calls, clock, metrics.count_hedge)
        self.slowness = 0.0
        """The worst slowdown of a machine that a run repeated alone has shown; 0.0: no run was repeated."""

    @property
    def changed(self) -> asyncio.Event:
        """Set whenever a sandbox has been taken into use."""
        return self._fleet.changed

    @property
    def slots(self) -> int:
        """Programs that can run at once in all sandboxes that ever replied."""
        return self._fleet.slots

    @property
    def in_flight(self) -> int:
        """Programs that are running now."""
        return self._queue.in_flight

    @property
    def crowded(self) -> bool:
        """Whether programs wait for a slot."""
        return self._queue.crowded

    def describe(self) -> PoolInfo | None:
        """Return the pool's capabilities, or None until the first sandbox has replied."""
        return self._fleet.described

    def start(self) -> None:
        """Begin to find and watch sandboxes. Each sandbox is used once it has described itself."""
        self._fleet.start()

    async def close(self) -> None:
        """Stop watching and free the connections."""
        await self._fleet.close()

    async def run(
        self, request: RunRequest, *, run: str = "", begun: bool = False, on_slot: Callable[[], None] = lambda: None
    ) -> RunReply:
        """Run a program where a slot is free. Infrastructure errors are retried, in another sandbox if possible.

        Args:
            request: the program and its inputs.
            run: the run that the slot is counted for; slots are shared fairly among runs.
            begun: the request has had a slot before and goes to the front of its run's queue.
            on_slot: called when a sandbox has room, before each call.

        Raises:
            NoSandboxError: the retry budget is spent.
            RunRefusedError: no sandbox will ever serve this request.
        """
        work = ProgramWork(request, self._policy.required_level)
        reply = await self._serve(work, self._hedged.answer, run=run, begun=begun, on_slot=on_slot)
        self.slowness = max([self.slowness, *(alone.slowness for alone in reply.runs)])
        return reply

    async def submit(
        self, call: SubmitCall, *, run: str = "", on_slot: Callable[[], None] = lambda: None
    ) -> SubmitReply:
        """Have a server judge a completion by its own tests, at any containment level; otherwise like `run`."""
        return await self._serve(SubmitWork(call), self._calls.call, run=run, begun=False, on_slot=on_slot)

    async def _serve(
        self,
        work: SandboxWork[Reply],
        ask: Callable[[SandboxEndpoint, SandboxWork[Reply], str], Awaitable[Reply]],
        *,
        run: str,
        begun: bool,
        on_slot: Callable[[], None],
    ) -> Reply:
        failed: SandboxEndpoint | None = None
        failures = 0
        endpoint = await self._slot(run, urgent=begun, avoid=None)
        # A first call adds to the budget, whatever becomes of it: retries are a share of the first calls.
        self._budget.began(self._clock())
        while True:
            try:
                on_slot()
                return await ask(endpoint, work, run)
            except SandboxBusyError as error:
                # A full sandbox has run nothing, so the call takes nothing out of the retry budget and has no delay.
                self._metrics.count_retry(error.reason)
            except SandboxError as error:
                failures += 1
                failed = endpoint
                if failures >= self._policy.retries.attempts:
                    raise NoSandboxError(f"{failures} calls failed, the last with: {error}") from error
                self._spend(error)
                self._metrics.count_retry(error.reason)
                await self._sleep(self._policy.retries.delay(failures, self._random.random()))
            # The program has had its turn already. Behind newer requests of its run it would wait a second time.
            endpoint = await self._slot(run, urgent=True, avoid=failed)

    async def _slot(self, run: str, *, urgent: bool, avoid: SandboxEndpoint | None) -> SandboxEndpoint:
        self._fleet.check_budget()
        return await self._queue.take(run, urgent=urgent, avoid=avoid)

    def _spend(self, error: SandboxError) -> None:
        """Take a retry out of the budget that all programs share. Raises NoSandboxError if the budget is spent."""
        now = self._clock()
        if not self._budget.retry(now, running=self.in_flight, max_slots=self._fleet.max_slots):
            raise NoSandboxError(f"the retry budget is spent ({self._budget.account(now)}): {error}") from error
