"""Which endpoint is asked next, and when a failing one is left alone. Pure: plain data in, plain data out.

Load is shared by what is in flight, relative to what an endpoint may have in flight, so that a slow one gets less. An
endpoint that fails is *ejected* for a time that doubles with each ejection in a row; afterwards it may have one request
in flight (after a refused connection) or half as many as before, and one more with each success, which doubles what it
has with each round of answers. Failures of requests that were sent before an ejection say nothing new: each ejection
starts a new *epoch*, and only failures of the current one count, else 256 requests that break off together would count
as 256 outages.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from evalrun_generator.retry import Blame, Failure


@dataclass(frozen=True, slots=True)
class Limits:
    """The balancer's constants."""

    suspect_failures: int = 5
    """Failures in a row that eject. At a fault rate of 30 % that many happen by chance once in 400 requests."""
    first_ejection_seconds: float = 0.5
    longest_ejection_seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class EndpointState:
    """What the balancer knows of one endpoint. Times are seconds of one monotonic clock."""

    name: str
    slots: int
    """Most requests in flight, ever."""
    allowance: int
    """Most requests in flight now."""
    in_flight: int = 0
    failures: int = 0
    """In a row, in this epoch."""
    ejections: int = 0
    """In a row: without a success since."""
    closed_until: float = float("-inf")
    epoch: int = 0
    failing_since: float | None = None
    """When the outage began: the first ejection, or the end of the first wait that the endpoint itself asked for."""
    last_error: str = ""
    sent: int = 0
    """Requests sent so far; breaks ties, so that equal endpoints take turns."""

    def open_at(self, now: float) -> bool:
        """Say whether it may be asked at all."""
        return now >= self.closed_until

    def free_at(self, now: float) -> int:
        """Give how many more requests it may have now."""
        return max(0, self.allowance - self.in_flight) if self.open_at(now) else 0


def new_endpoint(name: str, slots: int) -> EndpointState:
    """Give the state of an endpoint that has not been asked yet."""
    return EndpointState(name, slots=slots, allowance=slots)


def choose(states: Iterable[EndpointState], now: float, avoid: str | None = None) -> EndpointState | None:
    """Pick the endpoint for the next request; None where it has to wait.

    Args:
        states: all endpoints.
        now: monotonic seconds.
        avoid: where the item has just failed. It is asked there again only while no other endpoint is open, not
            because the others are full.
    """
    open_now = [state for state in states if state.open_at(now)]
    elsewhere = [state for state in open_now if state.name != avoid]
    candidates = [state for state in elsewhere or open_now if state.free_at(now) > 0]
    return min(candidates, key=lambda state: (state.in_flight / state.allowance, state.sent), default=None)


def next_opening(states: Iterable[EndpointState], now: float) -> float | None:
    """Give when the next closed endpoint opens; None where none is closed."""
    return min((state.closed_until for state in states if not state.open_at(now)), default=None)


def capacity(states: Iterable[EndpointState], now: float) -> int:
    """Give how many requests may be in flight now, over all endpoints."""
    return sum(max(state.allowance, state.in_flight) for state in states if state.open_at(now))


def after_sending(state: EndpointState) -> EndpointState:
    """Count a request in."""
    return replace(state, in_flight=state.in_flight + 1, sent=state.sent + 1)


def after_success(state: EndpointState) -> EndpointState:
    """Count an answer: the endpoint works, whatever was thought of it. An announced wait stays."""
    return replace(
        state,
        in_flight=state.in_flight - 1,
        allowance=min(state.slots, state.allowance + 1),
        failures=0,
        ejections=0,
        failing_since=None,
        last_error="",
    )


def after_giving_up(state: EndpointState) -> EndpointState:
    """Count a request out that ended without saying anything about the endpoint."""
    return replace(state, in_flight=state.in_flight - 1)


def after_failure(
    state: EndpointState, failure: Failure, epoch: int, now: float, limits: Limits, jitter: float
) -> EndpointState:
    """Count a failed request.

    Args:
        state: of the endpoint that failed.
        failure: how.
        epoch: the endpoint's when the request was sent.
        now: monotonic seconds.
        limits: the constants.
        jitter: uniform in [0, 1), spreads the returns of endpoints that failed together.
    """
    state = replace(state, in_flight=state.in_flight - 1)
    if failure.blame is Blame.NONE or epoch != state.epoch:
        return state
    state = replace(state, failures=state.failures + 1, last_error=failure.reason)
    if failure.blame is Blame.SUSPECT and state.failures < limits.suspect_failures:
        return state
    backoff = min(limits.longest_ejection_seconds, limits.first_ejection_seconds * 2.0 ** min(state.ejections, 30))
    wait = backoff * (0.5 + 0.5 * jitter) if failure.retry_after is None else failure.retry_after
    since = now if failure.retry_after is None else now + wait
    return replace(
        state,
        allowance=1 if failure.blame is Blame.DOWN else max(1, state.allowance // 2),
        failures=0,
        ejections=state.ejections + 1,
        closed_until=now + wait,
        epoch=state.epoch + 1,
        failing_since=since if state.failing_since is None else state.failing_since,
    )


def outage_seconds(states: Sequence[EndpointState], now: float) -> float:
    """Give for how long every endpoint has been failing; 0 where one is not. Looked at when a request has failed: a
    request that is merely slow is no outage."""
    if not states or any(state.failing_since is None for state in states):
        return 0.0
    return max(0.0, now - max(state.failing_since for state in states if state.failing_since is not None))
