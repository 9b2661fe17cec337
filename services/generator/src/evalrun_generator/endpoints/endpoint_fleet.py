"""The endpoints of a run: hands out permits to send and records the outcomes.

The balancer decides; this module applies its decisions to waiting requests and a clock. Endpoints may join and leave at
any time, e.g. when replicas are launched, replaced or ended.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from evalrun_generator.endpoints import balancer
from evalrun_generator.endpoints.balancer import BalancerLimits, EndpointState
from evalrun_generator.endpoints.endpoint import Endpoint
from evalrun_generator.endpoints.retry import RequestFailure

logger = logging.getLogger(__name__)

LOG_SECONDS = 10.0
"""Minimum time between two warnings about the same endpoint: a busy server may alternate between refusals and replies.
"""


@dataclass(frozen=True, slots=True)
class Permit:
    """Permission to send a request to `endpoint`. It must be returned to the fleet."""

    endpoint: Endpoint
    epoch: int


class EndpointFleet:
    """All endpoints known to serve the requested model."""

    def __init__(self, limits: BalancerLimits, rng: random.Random, now: Callable[[], float] | None = None) -> None:
        self._limits = limits
        self._rng = rng
        self._now = now or asyncio.get_running_loop().time
        self._endpoints: dict[str, Endpoint] = {}
        self._states: dict[str, EndpointState] = {}
        self._waiting: deque[tuple[asyncio.Future[Permit], str | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._max_in_flight: int | None = None
        self.on_join: list[Callable[[], None]] = []
        """Called whenever an endpoint has joined."""
        self.on_trouble: list[Callable[[], None]] = []
        """Called whenever an endpoint starts to fail, is ejected for longer, or recovers."""
        self._warned_at: dict[str, float] = {}

    def join(self, endpoint: Endpoint, slots: int) -> None:
        """Add an endpoint that takes up to `slots` requests in flight."""
        self._endpoints[endpoint.name] = endpoint
        self._states[endpoint.name] = balancer.new_endpoint(endpoint.name, slots)
        self._serve()
        for notify in self.on_join:
            notify()

    def leave(self, name: str) -> None:
        """Stop sending to an endpoint; its requests in flight may finish."""
        self._endpoints.pop(name, None)
        self._states.pop(name, None)

    @property
    def max_in_flight(self) -> int | None:
        """Maximum number of requests in flight over all endpoints; None: the sum of the endpoints' limits."""
        return self._max_in_flight

    def limit(self, max_in_flight: int | None) -> None:
        """Set the maximum number of requests in flight over all endpoints.

        With 0 no request is sent; those in flight may finish.
        """
        if max_in_flight != self._max_in_flight:
            self._max_in_flight = max_in_flight
            self._serve()

    @property
    def states(self) -> list[EndpointState]:
        return list(self._states.values())

    def capacity(self) -> int:
        """Return the current limit of requests in flight."""
        return balancer.capacity(self._states.values(), self._now(), self._max_in_flight)

    def outage_seconds(self) -> float:
        """Return for how many seconds all endpoints have been failing."""
        return balancer.outage_seconds(self.states, self._now())

    async def acquire(self, avoid: str | None = None, *, first: bool = False) -> Permit:
        """Wait for a free slot at an endpoint.

        Args:
            avoid: the endpoint where the item has just failed.
            first: go to the front of the queue, so that a retried item does not fall behind the others.
        """
        if not self._waiting and (permit := self._take(avoid, self._now())) is not None:
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

    def record_success(self, permit: Permit) -> None:
        """Give a permit back to the fleet after a completed request."""
        self._update(permit, balancer.apply_success)

    def record_failure(self, permit: Permit, failure: RequestFailure) -> None:
        """Give a permit back to the fleet after a failed request."""
        now, jitter = self._now(), self._rng.random()
        self._update(
            permit, lambda state: balancer.apply_failure(state, failure, permit.epoch, now, self._limits, jitter)
        )

    def give_up(self, permit: Permit) -> None:
        """Give an unused permit, or a permit whose request this side cancelled, back to the fleet."""
        self._update(permit, balancer.apply_giving_up)

    def _update(self, permit: Permit, change: Callable[[EndpointState], EndpointState]) -> None:
        name = permit.endpoint.name
        # The endpoint may have left, or been replaced.
        if self._endpoints.get(name) is permit.endpoint:
            before = self._states[name]
            self._states[name] = after = change(before)
            if before.ejections != after.ejections:
                self._tell(before, after)
        self._serve()

    def _tell(self, before: EndpointState, after: EndpointState) -> None:
        """Log the start and end of an endpoint's outage and notify listeners."""
        now = self._now()
        if after.failing_since is None:
            logger.info("endpoint %s answers again", after.name)
        elif before.failing_since is None and now - self._warned_at.get(after.name, float("-inf")) >= LOG_SECONDS:
            self._warned_at[after.name] = now
            logger.warning("endpoint %s is failing: %s", after.name, balancer.trouble(after))
        for notify in self.on_trouble:
            notify()

    def _take(self, avoid: str | None, now: float) -> Permit | None:
        chosen = balancer.choose(self.states, now, avoid, self._max_in_flight)
        if chosen is None:
            return None
        self._states[chosen.name] = balancer.apply_sending(chosen)
        return Permit(self._endpoints[chosen.name], chosen.epoch)

    def _serve(self) -> None:
        """Assign free slots to waiting requests in order, skipping any request that avoids the only free endpoint."""
        # A single time is used throughout. With two times, an endpoint that opens between them would wake nobody.
        now = self._now()
        passed_over: list[tuple[asyncio.Future[Permit], str | None]] = []
        refused: set[str | None] = set()
        while self._waiting and None not in refused:
            waiter, avoid = self._waiting.popleft()
            if waiter.done():
                continue
            permit = None if avoid in refused else self._take(avoid, now)
            if permit is None:
                refused.add(avoid)
                passed_over.append((waiter, avoid))
            else:
                waiter.set_result(permit)
        self._waiting.extendleft(reversed(passed_over))
        self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        """Schedule the next assignment for when a closed endpoint opens."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        opening = balancer.next_opening(self._states.values(), now) if self._waiting else None
        if opening is not None:
            # Slightly later than due, so that the clock has passed the time.
            self._timer = asyncio.get_running_loop().call_later(opening - now + 0.001, self._serve)
