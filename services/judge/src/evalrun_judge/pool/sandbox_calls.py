"""Calls a sandbox in which a slot is held, and records the result in the sandbox's state."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from evalrun_executor.api import LEVELS, Level, RunReply, RunRequest
from evalrun_judge.pool.retries import RetryBudget
from evalrun_judge.pool.sandbox_endpoint import SandboxEndpoint
from evalrun_judge.pool.sandbox_fleet import SandboxFleet
from evalrun_judge.pool.slot_queue import SlotQueue
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
from evalrun_runtime.tracing import span

Reply = TypeVar("Reply", RunReply, SubmitReply)


class PoolMetrics(Protocol):
    """Interface to the metrics of a pool."""

    def count_retry(self, reason: str) -> None:
        """Count a repeated call, by its reason (`sandboxes.REASONS`)."""
        ...

    def observe_call(self, seconds: float) -> None:
        """Record the duration of a call that ended, well or not."""
        ...

    def count_hedge(self, won: bool) -> None:
        """Count a hedge, by whether it replied first."""
        ...


class SandboxWork(Protocol[Reply]):
    """Work that any sandbox may be asked to do."""

    def start(self, sandbox: Sandbox) -> Awaitable[Reply]:
        """Ask a sandbox. Raises RunRefusedError, also when the result is awaited."""
        ...

    def check(self, sandbox: Sandbox, reply: Reply) -> None:
        """Raise SandboxFailedError where the reply cannot be used."""
        ...


@dataclass(frozen=True, slots=True)
class ProgramWork:
    """A program and its inputs."""

    request: RunRequest
    required_level: Level

    def start(self, sandbox: Sandbox) -> Awaitable[RunReply]:
        """Run the program; see `SandboxWork.start`."""
        return sandbox.run(self.request)

    def check(self, sandbox: Sandbox, reply: RunReply) -> None:
        """Refuse a run that was contained too weakly; see `SandboxWork.check`."""
        if LEVELS.index(reply.level) < LEVELS.index(self.required_level):
            raise SandboxFailedError(f"{sandbox.address}: ran at level {reply.level!r}, below {self.required_level!r}")


@dataclass(frozen=True, slots=True)
class SubmitWork:
    """A completion that a server judges by its own tests."""

    call: SubmitCall

    def start(self, sandbox: Sandbox) -> Awaitable[SubmitReply]:
        """Submit the completion; see `SandboxWork.start`."""
        if not isinstance(sandbox, DatasetServer):
            raise RunRefusedError(f"{sandbox.address} has no datasets: that takes a SandboxFusion server")
        return sandbox.submit(self.call)

    def check(self, sandbox: Sandbox, reply: SubmitReply) -> None:
        """Accept every reply: the server contains the program at whatever level it has."""


class SandboxCalls:
    """Calls sandboxes, and frees the slot after each call."""

    def __init__(
        self,
        fleet: SandboxFleet,
        queue: SlotQueue,
        budget: RetryBudget,
        clock: Callable[[], float],
        metrics: PoolMetrics,
    ) -> None:
        self._fleet, self._queue, self._budget = fleet, queue, budget
        self._clock, self._metrics = clock, metrics

    @property
    def slots(self) -> int:
        """Slots of all sandboxes."""
        return self._fleet.slots

    @property
    def alone(self) -> bool:
        """Whether there is no second sandbox."""
        return len(self._queue.endpoints) < 2

    async def call(self, endpoint: SandboxEndpoint, work: SandboxWork[Reply], run: str) -> Reply:
        """Call a sandbox in which the run holds a slot. Raises SandboxError, RunRefusedError."""
        called = self._clock()
        try:
            with (
                span("sandbox", attributes={"address": endpoint.sandbox.address}),
                self._fleet.watch_call(endpoint),
            ):
                reply = await work.start(endpoint.sandbox)
                work.check(endpoint.sandbox, reply)
            endpoint.record_success()
            self._budget.record_success()
            return reply
        except SandboxBusyError as error:
            endpoint.busy(error.free)
            # A full sandbox gets nothing until the time that it named is over: other gateways' programs hold its slots.
            if endpoint.full:
                self._queue.pause(endpoint, error.retry_after_seconds)
            raise
        except SandboxError as error:
            self._fleet.record_failure(endpoint, error)
            self._budget.record_failure(self._clock())
            raise
        finally:
            # The slot is freed last: freeing it assigns the next request, which must see the state recorded above.
            self._metrics.observe_call(self._clock() - called)
            self._queue.release(endpoint, run)

    def take_spare(self, first: SandboxEndpoint, run: str) -> SandboxEndpoint | None:
        """Take an idle slot of another sandbox if the retry budget has room for a second call."""
        other = self._queue.find_idle(first)
        # To ask the budget counts as a hedge, so the budget is asked only once a slot is found.
        if other is None or not self._budget.hedge(self._clock(), running=self._queue.in_flight):
            return None
        self._queue.hold(other, run)
        return other
