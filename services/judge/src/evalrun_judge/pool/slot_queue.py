"""Queues requests that wait for a slot of a sandbox. Slots are shared fairly among runs (`fair_queue`).

The queue knows the sandboxes by their endpoints, which the fleet above it adds and removes.
"""

import asyncio
import random
from dataclasses import dataclass

from evalrun_judge.pool.sandbox_endpoint import SandboxEndpoint, pick
from evalrun_runtime.declared_shares import DeclaredShares
from evalrun_runtime.fair_queue import FairQueue


class NoSandboxError(Exception):
    """No sandbox could run the program within the retry budget."""


class UnresolvedSandboxesError(NoSandboxError):
    """No sandbox is known because DNS does not answer."""


@dataclass(slots=True, eq=False)
class _Waiter:
    granted: asyncio.Future[SandboxEndpoint]
    avoid: SandboxEndpoint | None


class SlotQueue:
    """Assigns the slots of all sandboxes.

    Args:
        randomness: chooses among sandboxes that are equally loaded.
        shares: shares of the slots by run; None: equal shares.
    """

    def __init__(self, randomness: random.Random, shares: DeclaredShares | None = None) -> None:
        self._random = randomness
        self._waiting: FairQueue[_Waiter] = FairQueue(lambda waiter: waiter.granted.done(), shares)
        self.endpoints: list[SandboxEndpoint] = []
        """All current sandboxes."""

    @property
    def in_flight(self) -> int:
        """Programs that run now."""
        return sum(endpoint.in_flight for endpoint in self.endpoints)

    @property
    def crowded(self) -> bool:
        """Whether programs wait for a slot."""
        return self._waiting.first() is not None

    async def take(self, run: str, *, urgent: bool, avoid: SandboxEndpoint | None) -> SandboxEndpoint:
        """Wait for a slot, which the caller releases.

        Args:
            run: the run that the slot is counted for.
            urgent: the request goes before requests of its run that are not urgent.
            avoid: the sandbox that just failed the request; see `pick`.

        Raises:
            NoSandboxError: `refuse_all` was called meanwhile.
        """
        waiter = _Waiter(asyncio.get_running_loop().create_future(), avoid)
        self._waiting.push(run, waiter, urgent=urgent)
        self.dispatch()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            # The slot was granted and the request cancelled in the same turn of the loop. Nobody else would free the
            # slot.
            if waiter.granted.done() and not waiter.granted.cancelled() and waiter.granted.exception() is None:
                self.release(waiter.granted.result(), run)
            raise

    def find_idle(self, other_than: SandboxEndpoint) -> SandboxEndpoint | None:
        """Return another sandbox with a slot that no request waits for, or None."""
        if self.crowded:
            return None
        return pick([endpoint for endpoint in self.endpoints if endpoint is not other_than], None, self._random)

    def hold(self, endpoint: SandboxEndpoint, run: str) -> None:
        """Take a slot of an idle sandbox without waiting."""
        endpoint.in_flight += 1
        self._waiting.hold(run)

    def release(self, endpoint: SandboxEndpoint, run: str) -> None:
        endpoint.in_flight -= 1
        self._waiting.release(run)
        self.dispatch()

    def pause(self, endpoint: SandboxEndpoint, seconds: float) -> None:
        """Give a full sandbox no requests for some seconds."""
        asyncio.get_running_loop().call_later(seconds, self._resume, endpoint)

    def _resume(self, endpoint: SandboxEndpoint) -> None:
        endpoint.full = False
        self.dispatch()

    def dispatch(self) -> None:
        """Assign free slots to waiters in order, skipping any waiter that may not use the sandboxes with room."""
        passed: list[tuple[str, _Waiter]] = []
        while any(endpoint.free for endpoint in self.endpoints) and (waiting := self._waiting.first()) is not None:
            run, waiter = waiting
            endpoint = pick(self.endpoints, waiter.avoid, self._random)
            if endpoint is not None:
                endpoint.in_flight += 1
                self._waiting.take(run).granted.set_result(endpoint)
            else:
                passed.append((run, self._waiting.pass_over(run)))
        # Waiters that were passed over return to the front in reverse order, so that each keeps its position.
        for run, waiter in reversed(passed):
            self._waiting.put_back(run, waiter)

    def refuse_all(self, kind: type[NoSandboxError], why: str) -> None:
        """Fail every waiting request with an error."""
        for waiter in self._waiting.clear():
            waiter.granted.set_exception(kind(why))
