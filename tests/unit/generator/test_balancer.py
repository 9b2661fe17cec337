from dataclasses import replace

import pytest

from evalrun_generator.endpoints import balancer
from evalrun_generator.endpoints.balancer import BalancerLimits, EndpointState, new_endpoint
from evalrun_generator.endpoints.retry import Blame, RequestFailure, RetryAction

LIMITS = BalancerLimits(suspect_failures=3, initial_ejection_seconds=1.0, max_ejection_seconds=8.0)


def state(name: str, in_flight: int = 0, slots: int = 4, **changes: object) -> EndpointState:
    return replace(new_endpoint(name, slots), in_flight=in_flight, **changes)  # type: ignore[arg-type]  # a test's table


def failure(blame: Blame, retry_after: float | None = None) -> RequestFailure:
    return RequestFailure(RetryAction.RETRY, blame, counted=True, reason="it failed", retry_after=retry_after)


def fail(before: EndpointState, blame: Blame, now: float = 0.0, retry_after: float | None = None) -> EndpointState:
    sent = balancer.apply_sending(before)
    return balancer.apply_failure(sent, failure(blame, retry_after), sent.epoch, now, LIMITS, jitter=1.0)


@pytest.mark.parametrize(
    ("states", "avoid", "chosen"),
    [
        ([state("a", 2), state("b", 1)], None, "b"),
        ([state("a", 2, slots=8), state("b", 2, slots=4)], None, "a"),  # by share, not by number
        ([state("a", sent=5), state("b", sent=4)], None, "b"),  # equals take turns
        ([state("a", 4), state("b", 3)], None, "b"),
        ([state("a", 4), state("b", 4)], None, None),
        ([state("a"), state("b", 3)], "a", "b"),
        ([state("a"), state("b", 4)], "a", None),  # b is full: wait for it
        ([state("a"), state("b", closed_until=50.0)], "a", "a"),  # b is down: there is no elsewhere
        ([state("a")], "a", "a"),
        ([state("a", closed_until=50.0)], None, None),
        ([state("a", closed_until=10.0)], None, "a"),
        ([], None, None),
    ],
)
def test_choose_returns_the_least_loaded_open_endpoint(
    states: list[EndpointState], avoid: str | None, chosen: str | None
) -> None:
    found = balancer.choose(states, now=10.0, avoid=avoid)
    assert (found.name if found else None) == chosen


@pytest.mark.parametrize(
    ("max_in_flight", "chosen", "capacity"),
    [(None, "b", 8), (4, "b", 4), (3, None, 3), (0, None, 0), (100, "b", 8)],
)
def test_max_in_flight_bounds_all_endpoints_together(
    max_in_flight: int | None, chosen: str | None, capacity: int
) -> None:
    states = [state("a", 2), state("b", 1)]
    found = balancer.choose(states, 10.0, None, max_in_flight)
    assert (found.name if found else None) == chosen
    assert balancer.capacity(states, 10.0, max_in_flight) == capacity


def test_a_refused_connection_ejects_at_once_and_the_return_is_gradual() -> None:
    down = fail(state("a", slots=64), Blame.DOWN, now=5.0)
    assert not down.open_at(5.9)
    assert down.open_at(6.0)
    assert down.free_at(6.0) == 1
    back = down
    for expected in (2, 3, 4):
        back = balancer.apply_success(balancer.apply_sending(back))
        assert back.free_at(6.0) == expected
    assert back.failing_since is None


def test_ejection_time_doubles_in_a_row_and_resets_after_a_success() -> None:
    current, waits, now = state("a"), [], 0.0
    for _ in range(6):
        current = fail(current, Blame.DOWN, now)
        waits.append(current.closed_until - now)
        now = current.closed_until
    assert waits == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert current.failing_since == 0.0
    current = balancer.apply_success(balancer.apply_sending(current))
    assert fail(current, Blame.DOWN, now).closed_until == now + 1.0


def test_endpoint_is_ejected_after_several_errors_in_a_row_only() -> None:
    current = state("a", slots=8)
    for _ in range(10):
        current = fail(fail(current, Blame.SUSPECT), Blame.SUSPECT)
        current = balancer.apply_success(balancer.apply_sending(current))
    assert current.free_at(0.0) == 8
    current = fail(fail(fail(current, Blame.SUSPECT), Blame.SUSPECT), Blame.SUSPECT)
    assert not current.open_at(0.0)
    assert current.allowance == 4


def test_requests_that_break_off_together_are_one_outage() -> None:
    current = state("a", slots=64)
    for _ in range(64):
        current = balancer.apply_sending(current)
    for _ in range(64):
        current = balancer.apply_failure(current, failure(Blame.DOWN), 0, 0.0, LIMITS, jitter=1.0)
    assert (current.in_flight, current.ejections, current.closed_until) == (0, 1, 1.0)


def test_busy_endpoint_gets_no_request_until_its_retry_after() -> None:
    busy = fail(state("a", slots=8), Blame.BUSY, now=10.0, retry_after=30.0)
    assert not busy.open_at(39.9)
    assert busy.free_at(40.0) == 4
    assert balancer.outage_seconds([busy], now=45.0) == 5.0  # its own wait is no outage


def test_failure_without_blame_leaves_the_endpoint_open() -> None:
    assert fail(state("a"), Blame.NONE) == state("a", sent=1)


def test_an_outage_needs_every_endpoint() -> None:
    down, late = fail(state("a"), Blame.DOWN, now=1.0), fail(state("b"), Blame.DOWN, now=3.0)
    assert balancer.outage_seconds([down, state("b")], now=100.0) == 0.0
    assert balancer.outage_seconds([down, late], now=100.0) == 97.0
    assert balancer.outage_seconds([], now=100.0) == 0.0


def test_capacity_counts_open_endpoints_and_next_opening_is_the_earliest() -> None:
    states = [state("a", slots=4), state("b", in_flight=6, slots=8, allowance=2), state("c", closed_until=9.0)]
    assert balancer.capacity(states, now=0.0) == 10
    assert balancer.next_opening(states, now=0.0) == 9.0
    assert balancer.next_opening(states, now=9.0) is None
