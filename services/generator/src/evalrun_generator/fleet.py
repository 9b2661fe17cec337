"""The endpoints of a run, in use: hands out permission to send, learns from what came of it.

The decisions are the balancer's; here they meet waiting requests and a clock. Endpoints may join at any time and may
leave, which is how replicas that are launched, replaced or ended fit in.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from evalrun_generator import balancer
from evalrun_generator.balancer import EndpointState, Limits
from evalrun_generator.endpoints import Endpoint
from evalrun_generator.retry import Failure


@dataclass(frozen=True, slots=True)
class Permit:
    """One request may be sent to `endpoint`; must be given back to the fleet."""

    endpoint: Endpoint
    epoch: int


class Fleet:
    """All endpoints that are known to serve the asked model."""

    def __init__(self, limits: Limits, rng: random.Random, now: Callable[[], float] | None = None) -> None:
        self._limits = limits
        self._rng = rng
        self._now = now or asyncio.get_running_loop().time
        self._endpoints: dict[str, Endpoint] = {}
        self._states: dict[str, EndpointState] = {}
        self._waiting: deque[tuple[asyncio.Future[Permit], str | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.on_join: list[Callable[[], None]] = []
        """Called whenever an endpoint has joined."""

    def join(self, endpoint: Endpoint, slots: int) -> None:
        """Add an endpoint with room for `slots` requests in flight."""
        self._endpoints[endpoint.name] = endpoint
        self._states[endpoint.name] = balancer.new_endpoint(endpoint.name, slots)
        self._serve()
        for notify in self.on_join:
            notify()

    def leave(self, name: str) -> None:
        """Send nothing more to an endpoint; what it has in flight may end."""
        self._endpoints.pop(name, None)
        self._states.pop(name, None)

    @property
    def states(self) -> list[EndpointState]:
        """What is known of each endpoint."""
        return list(self._states.values())

    def capacity(self) -> int:
        """Give how many requests may be in flight now."""
        return balancer.capacity(self._states.values(), self._now())

    def outage_seconds(self) -> float:
        """Give for how long every endpoint has been failing."""
        return balancer.outage_seconds(self.states, self._now())

    async def acquire(self, avoid: str | None = None, *, first: bool = False) -> Permit:
        """Wait for room at an endpoint.

        Args:
            avoid: the endpoint at which the item has just failed.
            first: go before those that wait already: an item that has failed should not fall behind the others.
        """
        if not self._waiting and (permit := self._take(avoid)) is not None:
            return permit
        waiter: asyncio.Future[Permit] = asyncio.get_running_loop().create_future()
        if first:
            self._waiting.appendleft((waiter, avoid))
        else:
            self._waiting.append((waiter, avoid))
        self._serve()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.give_up(waiter.result())
            raise

    def succeeded(self, permit: Permit) -> None:
        """Give a permit back after an answer."""
        self._update(permit, balancer.after_success)

    def failed(self, permit: Permit, failure: Failure) -> None:
        """Give a permit back after a failure."""
        now, jitter = self._now(), self._rng.random()
        self._update(
            permit, lambda state: balancer.after_failure(state, failure, permit.epoch, now, self._limits, jitter)
        )

    def give_up(self, permit: Permit) -> None:
        """Give a permit back unused, or after a request that was cut off from this side."""
        self._update(permit, balancer.after_giving_up)

    def _update(self, permit: Permit, change: Callable[[EndpointState], EndpointState]) -> None:
        name = permit.endpoint.name
        if self._endpoints.get(name) is permit.endpoint:  # it may have left, or been replaced
            self._states[name] = change(self._states[name])
        self._serve()

    def _take(self, avoid: str | None) -> Permit | None:
        chosen = balancer.choose(self._states.values(), self._now(), avoid)
        if chosen is None:
            return None
        self._states[chosen.name] = balancer.after_sending(chosen)
        return Permit(self._endpoints[chosen.name], chosen.epoch)

    def _serve(self) -> None:
        """Let waiting requests go as far as there is room. One that avoids the only free endpoint does not hold up
        those behind it."""
        passed_over: list[tuple[asyncio.Future[Permit], str | None]] = []
        refused: set[str | None] = set()
        while self._waiting and None not in refused:
            waiter, avoid = self._waiting.popleft()
            if waiter.done():
                continue
            permit = None if avoid in refused else self._take(avoid)
            if permit is None:
                refused.add(avoid)
                passed_over.append((waiter, avoid))
            else:
                waiter.set_result(permit)
        self._waiting.extendleft(reversed(passed_over))
        self._set_timer()

    def _set_timer(self) -> None:
        """Come back when the next closed endpoint opens."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._now()
        opening = balancer.next_opening(self._states.values(), now) if self._waiting else None
        if opening is not None:
            # A hair later than due, so that the clock has passed it.
            self._timer = asyncio.get_running_loop().call_later(opening - now + 0.001, self._serve)
