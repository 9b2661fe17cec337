"""Picks the endpoint for each request and ejects failing endpoints. Pure: plain data in, plain data out.

The next request goes to the endpoint with the lowest ratio of requests in flight to its limit, so a slow endpoint gets
fewer requests. A failing endpoint is *ejected* for a time that doubles with each consecutive ejection. Then its limit
is a single request (after a refused connection) or half of the previous limit, and grows by 1 with each success, so it
doubles with each round of replies. Each ejection starts a new *epoch*; failures of requests sent in an earlier epoch
are ignored, otherwise 256 requests that break off together would count as 256 outages.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from evalrun_generator.endpoints.retry import Blame, RequestFailure
from evalrun_runtime.backoff import backoff_seconds


@dataclass(frozen=True, slots=True)
class BalancerLimits:
    """The balancer's constants."""

    suspect_failures: int = 5
    """Consecutive failures that eject. At a fault rate of 30 % they happen by chance once in 400 requests."""
    initial_ejection_seconds: float = 0.5
    max_ejection_seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class EndpointState:
    """The balancer's state of an endpoint. Times are seconds of a monotonic clock."""

    name: str
    slots: int
    """Upper limit of requests in flight."""
    allowance: int
    """Current limit of requests in flight."""
    in_flight: int = 0
    failures: int = 0
    """Consecutive failures in this epoch."""
    ejections: int = 0
    """Consecutive ejections without a success in between."""
    closed_until: float = float("-inf")
    epoch: int = 0
    failing_since: float | None = None
    """Beginning of the outage: the first ejection, or the end of the first wait requested by the endpoint."""
    last_error: str = ""
    wait_seconds: float = 0.0
    """Maximum duration of the last ejection."""
    sent: int = 0
    """Requests sent so far. Breaks ties, so that equal endpoints alternate."""

    def open_at(self, now: float) -> bool:
        """Return whether the endpoint accepts requests."""
        return now >= self.closed_until

    def free_at(self, now: float) -> int:
        """Return how many more requests the endpoint accepts now."""
        return max(0, self.allowance - self.in_flight) if self.open_at(now) else 0


def new_endpoint(name: str, slots: int) -> EndpointState:
    """Return the state of an endpoint that has received no request yet."""
    return EndpointState(name, slots=slots, allowance=slots)


def choose(
    states: Sequence[EndpointState], now: float, avoid: str | None = None, max_in_flight: int | None = None
) -> EndpointState | None:
    """Return the endpoint for the next request, or None if the request has to wait.

    Args:
        states: all endpoints.
        now: monotonic seconds.
        avoid: the endpoint where the item has just failed. It is chosen only if no other endpoint is open; that the
            others are full is not enough.
        max_in_flight: maximum requests in flight over all endpoints; None: only each endpoint's own limit holds.
    """
    if max_in_flight is not None and sum(state.in_flight for state in states) >= max_in_flight:
        return None
    open_now = [state for state in states if state.open_at(now)]
    elsewhere = [state for state in open_now if state.name != avoid]
    candidates = [state for state in elsewhere or open_now if state.free_at(now) > 0]
    return min(candidates, key=lambda state: (state.in_flight / state.allowance, state.sent), default=None)


def next_opening(states: Iterable[EndpointState], now: float) -> float | None:
    """Return when the next closed endpoint opens, or None if none is closed."""
    return min((state.closed_until for state in states if not state.open_at(now)), default=None)


def capacity(states: Iterable[EndpointState], now: float, max_in_flight: int | None = None) -> int:
    """Return the current limit of requests in flight over all endpoints; `max_in_flight` as in `choose`."""
    found = sum(max(state.allowance, state.in_flight) for state in states if state.open_at(now))
    return found if max_in_flight is None else min(found, max_in_flight)


def apply_sending(state: EndpointState) -> EndpointState:
    """Return the state after a request was sent."""
    return replace(state, in_flight=state.in_flight + 1, sent=state.sent + 1)


def apply_success(state: EndpointState) -> EndpointState:
    """Return the state after a success: earlier failures are forgotten, a wait requested by the endpoint stays."""
    return replace(
        state,
        in_flight=state.in_flight - 1,
        allowance=min(state.slots, state.allowance + 1),
        failures=0,
        ejections=0,
        failing_since=None,
        last_error="",
    )


def apply_giving_up(state: EndpointState) -> EndpointState:
    """Return the state after a request that ended without evidence about the endpoint."""
    return replace(state, in_flight=state.in_flight - 1)


def apply_failure(
    state: EndpointState, failure: RequestFailure, epoch: int, now: float, limits: BalancerLimits, jitter: float
) -> EndpointState:
    """Return the state after a failed request.

    Args:
        state: the endpoint's state before.
        failure: what happened.
        epoch: the endpoint's epoch when the request was sent.
        now: monotonic seconds.
        limits: the constants.
        jitter: uniform in [0, 1); spreads the retries of endpoints that failed together.
    """
    state = replace(state, in_flight=state.in_flight - 1)
    if failure.blame is Blame.NONE or epoch != state.epoch:
        return state
    state = replace(state, failures=state.failures + 1, last_error=failure.reason)
    if failure.blame is Blame.SUSPECT and state.failures < limits.suspect_failures:
        return state
    backoff = backoff_seconds(state.ejections + 1, limits.initial_ejection_seconds, limits.max_ejection_seconds)
    wait = backoff * (0.5 + 0.5 * jitter) if failure.retry_after is None else failure.retry_after
    since = now if failure.retry_after is None else now + wait
    return replace(
        state,
        allowance=1 if failure.blame is Blame.DOWN else max(1, state.allowance // 2),
        failures=0,
        ejections=state.ejections + 1,
        closed_until=now + wait,
        epoch=state.epoch + 1,
        wait_seconds=backoff if failure.retry_after is None else wait,
        failing_since=since if state.failing_since is None else state.failing_since,
    )


def trouble(state: EndpointState) -> str:
    """Return why an endpoint fails and when it is tried next, or an empty text if its last request succeeded."""
    if state.failing_since is None or not state.last_error:
        return state.last_error
    return f"{state.last_error}; next try within {state.wait_seconds:.3g} s"


def outage_seconds(states: Sequence[EndpointState], now: float) -> float:
    """Return for how many seconds all endpoints have been failing, or 0 if an endpoint is not failing.

    Call this function after a failed request: a slow request is no outage.
    """
    if not states or any(state.failing_since is None for state in states):
        return 0.0
    return max(0.0, now - max(state.failing_since for state in states if state.failing_since is not None))
