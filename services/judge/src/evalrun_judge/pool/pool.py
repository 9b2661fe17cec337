"""Schedules programs onto sandboxes: picks a lightly loaded one, respects its slots, retries infrastructure errors.

What waits for a slot waits here, fairly among runs (`fair_queue`). Which sandboxes there are is `fleet`'s matter.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from evalrun_executor.api import LEVELS, Level, RunReply, RunRequest
from evalrun_judge.pool.discovery import Connect, SandboxDiscovery
from evalrun_judge.pool.hedge_policy import HedgePolicy
from evalrun_judge.pool.hedged_calls import HedgedCalls
from evalrun_judge.pool.info import PoolInfo, info_of
from evalrun_judge.pool.retries import RetryBudget, RetryPolicy
from evalrun_judge.pool.sandbox_endpoint import SandboxEndpoint, pick
from evalrun_judge.pool.sandbox_fleet import HealthPolicy, SandboxFleet
from evalrun_judge.sandboxes import (
    DatasetServer,
    RunRefusedError,
    Sandbox,
    SandboxBusyError,
    SandboxError,
    SandboxFailedError,
    SubmitCall,
    SubmitReply,
)
from evalrun_runtime.fair_queue import FairQueue
from evalrun_runtime.tracing import span

Reply = TypeVar("Reply", RunReply, SubmitReply)


class NoSandboxError(Exception):
    """No sandbox could say what the program does within the retry budget."""


@dataclass(slots=True, eq=False)
class _Waiter:
    granted: asyncio.Future[SandboxEndpoint]
    avoid: SandboxEndpoint | None


def connect_nowhere(url: str, _server_name: str) -> Sandbox:
    """Raise LookupError: for pools without discovery."""
    raise LookupError(f"{url}: nobody said how sandboxes that are found are called")


class SandboxPool:
    """Several sandboxes as one."""

    def __init__(
        self,
        sandboxes: Sequence[Sandbox],
        *,
        required_level: Level,
        retries: RetryPolicy,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        randomness: random.Random,
        on_retry: Callable[[str], None] = lambda reason: None,
        on_call: Callable[[float], None] = lambda seconds: None,
        discoveries: Sequence[SandboxDiscovery] = (),
        connect: Connect = connect_nowhere,
        health: HealthPolicy | None = None,
        hedging: HedgePolicy | None = None,
        on_hedge: Callable[[bool], None] = lambda won: None,
    ) -> None:
        """Create the pool; `start` takes the sandboxes into use.

        Args:
            sandboxes: those that are there in any case.
            required_level: sandboxes and answers below it are not used.
            retries: how long infra errors are tried again.
            clock: seconds, monotonic.
            sleep: waits that many seconds.
            randomness: for ties and for spreading delays.
            on_retry: told the reason (`sandboxes.REASONS`) of each call that is made again.
            on_call: told the seconds of each call that ended, well or not.
            discoveries: where other sandboxes are found.
            connect: gives the sandbox that a discovery found.
            health: how a sandbox is found to be hung.
            hedging: which calls are sent to a second sandbox too; None: none.
            on_hedge: told of each such second call whether it answered first.
        """
        self._required = LEVELS.index(required_level)
        self._retries = retries
        self._sleep, self._random, self._clock = sleep, randomness, clock
        self._on_retry, self._on_call = on_retry, on_call
        self._budget = RetryBudget(retries)
        self._fleet = SandboxFleet(
            sandboxes,
            discoveries,
            connect,
            required_level=required_level,
            health=health or HealthPolicy(),
            budget_seconds=retries.budget_seconds,
            clock=clock,
            sleep=sleep,
            randomness=randomness,
            on_change=self._fleet_changed,
            on_hopeless=self._give_up,
        )
        self._queue: FairQueue[_Waiter] = FairQueue(lambda waiter: waiter.granted.done())
        self._hedged = HedgedCalls(hedging, clock, lambda: self.slots, on_hedge)
        self._described: PoolInfo | None = None
        self.changed = asyncio.Event()
        """Set whenever a sandbox has been taken into use."""
        self.slots = 0
        """Programs that the sandboxes that ever answered can hold at once."""
        self.slowness = 0.0
        """The most that a machine was slower than at its best, beside a run made again alone; 0.0: there was none."""

    @property
    def in_flight(self) -> int:
        """Programs that are running now."""
        return sum(endpoint.in_flight for endpoint in self._fleet.endpoints)

    @property
    def crowded(self) -> bool:
        """Programs wait for a slot."""
        return self._queue.first() is not None

    def describe(self) -> PoolInfo | None:
        """Return what the pool judges with; None until the first sandbox has answered."""
        return self._described

    def start(self) -> None:
        """Begin to look for sandboxes and to watch them; each is used once it has described itself."""
        self._fleet.start()

    async def close(self) -> None:
        """Stop watching and free the connections."""
        await self._fleet.close()

    async def run(
        self, request: RunRequest, *, run: str = "", begun: bool = False, on_slot: Callable[[], None] = lambda: None
    ) -> RunReply:
        """Run a program where there is room; infra errors are tried again, elsewhere first.

        Args:
            request: the program and its inputs.
            run: on whose behalf; slots are shared fairly among runs.
            begun: it belongs to a request that has been given a slot before: it goes to the front of its run's.
            on_slot: called when a sandbox has room, before each call.

        Raises:
            NoSandboxError: the retry budget is spent.
            RunRefusedError: no sandbox will ever serve this request.
        """
        reply = await self._served(
            lambda endpoint: self._answer(endpoint, request, run), run=run, begun=begun, on_slot=on_slot
        )
        self.slowness = max([self.slowness, *(alone.slowness for alone in reply.runs)])
        return reply

    async def submit(
        self, call: SubmitCall, *, run: str = "", on_slot: Callable[[], None] = lambda: None
    ) -> SubmitReply:
        """Judge an answer by a server's own tests, at whatever level that contains it; otherwise like `run`."""

        async def ask(sandbox: Sandbox) -> SubmitReply:
            if not isinstance(sandbox, DatasetServer):
                raise RunRefusedError(f"{sandbox.address} has no datasets: that takes a SandboxFusion server")
            return await sandbox.submit(call)

        return await self._served(
            lambda endpoint: self._call(endpoint, ask, run), run=run, begun=False, on_slot=on_slot
        )

    async def _served(
        self,
        answer: Callable[[SandboxEndpoint], Awaitable[Reply]],
        *,
        run: str,
        begun: bool,
        on_slot: Callable[[], None],
    ) -> Reply:
        failed: SandboxEndpoint | None = None
        failures = 0
        endpoint = await self._slot(run, urgent=begun, avoid=None)
        self._budget.began(self._clock())
        while True:
            try:
                on_slot()
                return await answer(endpoint)
            except SandboxBusyError as error:
                self._on_retry(error.reason)
            except SandboxError as error:
                failures += 1
                failed = endpoint
                if failures >= self._retries.attempts:
                    raise NoSandboxError(f"{failures} calls failed, the last with: {error}") from error
                self._spend(error)
                self._on_retry(error.reason)
                await self._sleep(self._retries.delay(failures, self._random.random()))
            endpoint = await self._slot(run, urgent=True, avoid=failed)

    def _spend(self, error: SandboxError) -> None:
        """Take a retry out of the budget that all programs share. Raises NoSandboxError where it is spent."""
        now = self._clock()
        if not self._budget.retry(now, running=self.in_flight, max_slots=self._fleet.max_slots):
            raise NoSandboxError(f"the retry budget is spent ({self._budget.account(now)}): {error}") from error

    async def _slot(self, run: str, *, urgent: bool, avoid: SandboxEndpoint | None) -> SandboxEndpoint:
        if self._fleet.out_of_budget:
            raise NoSandboxError(self._no_answer())
        waiter = _Waiter(asyncio.get_running_loop().create_future(), avoid)
        self._queue.push(run, waiter, urgent=urgent)
        self._dispatch()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled() and waiter.granted.exception() is None:
                self._release(waiter.granted.result(), run)  # granted and cancelled in the same turn of the loop
            raise

    def _dispatch(self) -> None:
        """Return what is free to those who wait, in order; who may not have it does not keep it from the others."""
        passed: list[tuple[str, _Waiter]] = []
        endpoints = self._fleet.endpoints
        while any(endpoint.free for endpoint in endpoints) and (waiting := self._queue.first()) is not None:
            run, waiter = waiting
            endpoint = pick(endpoints, waiter.avoid, self._random)
            if endpoint is not None:
                endpoint.in_flight += 1
                self._queue.take(run).granted.set_result(endpoint)
            else:
                passed.append((run, self._queue.pass_over(run)))
        for run, waiter in reversed(passed):
            self._queue.put_back(run, waiter)

    def _release(self, endpoint: SandboxEndpoint, run: str) -> None:
        endpoint.in_flight -= 1
        self._queue.release(run)
        self._dispatch()

    async def _call(self, endpoint: SandboxEndpoint, ask: Callable[[Sandbox], Awaitable[Reply]], run: str) -> Reply:
        """Call a sandbox in which the run holds a slot; gives the slot back. Raises SandboxError, RunRefusedError."""
        called = self._clock()
        try:
            with span("sandbox", attributes={"address": endpoint.sandbox.address}):
                reply = await self._fleet.called(endpoint, ask(endpoint.sandbox))
            endpoint.succeeded()
            self._budget.answered()
            return reply
        except SandboxBusyError as error:
            self._pause(endpoint, error)
            raise
        except SandboxError as error:
            self._fleet.failed(endpoint, error)
            self._budget.failed(self._clock())
            raise
        finally:
            self._on_call(self._clock() - called)
            self._release(endpoint, run)

    async def _answer(self, endpoint: SandboxEndpoint, request: RunRequest, run: str) -> RunReply:
        """Run a program, also on a second sandbox if the first takes too long; see `_call`."""
        return await self._hedged.answer(
            endpoint,
            lambda one: self._call(one, lambda sandbox: self._contained(sandbox, request), run),
            lambda first: self._spare(first, run),
            alone=len(self._fleet.endpoints) < 2,
        )

    def _spare(self, first: SandboxEndpoint, run: str) -> SandboxEndpoint | None:
        """Take a slot of another sandbox that nobody waits for, where the budget has room for a second call."""
        if self._queue.first() is not None:
            return None
        other = pick([other for other in self._fleet.endpoints if other is not first], None, self._random)
        if other is None or not self._budget.hedge(self._clock(), running=self.in_flight):
            return None
        other.in_flight += 1
        self._queue.hold(run)
        return other

    async def _contained(self, sandbox: Sandbox, request: RunRequest) -> RunReply:
        reply = await sandbox.run(request)
        if LEVELS.index(reply.level) < self._required:
            raise SandboxFailedError(
                f"{sandbox.address}: ran at level {reply.level!r}, below {LEVELS[self._required]!r}"
            )
        return reply

    def _pause(self, endpoint: SandboxEndpoint, busy: SandboxBusyError) -> None:
        """Leave a full sandbox alone for a while."""

        def resume() -> None:
            endpoint.full = False
            self._dispatch()

        endpoint.busy(busy.free)
        if endpoint.full:
            asyncio.get_running_loop().call_later(busy.retry_after_seconds, resume)

    def _fleet_changed(self) -> None:
        backends = [endpoint.backend for endpoint in self._fleet.endpoints if endpoint.backend is not None]
        self.slots = sum(backend.info.slots for backend in backends)
        if not backends:
            return  # all are gone: what the last ones said still describes this gateway
        self._described = info_of(backends)
        self.changed.set()
        self._dispatch()

    def _no_answer(self) -> str:
        return f"no sandbox has answered for {self._retries.budget_seconds:g} s"

    def _give_up(self, why: str) -> None:
        for waiter in self._queue.clear():
            waiter.granted.set_exception(NoSandboxError(f"{self._no_answer()}: {why}"))
