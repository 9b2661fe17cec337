import asyncio
import logging
import random

import pytest

from evalrun_generator.endpoints.balancer import BalancerLimits, trouble
from evalrun_generator.endpoints.endpoint_fleet import EndpointFleet
from evalrun_generator.endpoints.fake_endpoint import FakeEndpoint
from evalrun_generator.endpoints.retry import Blame, RequestFailure, RetryAction, classify_broken_off, unreachable


def fleet(**slots: int) -> EndpointFleet:
    made = EndpointFleet(BalancerLimits(initial_ejection_seconds=0.01), random.Random(0))
    for name, count in slots.items():
        made.join(FakeEndpoint(name), count)
    return made


async def test_permits_are_bounded_and_handed_on_in_order() -> None:
    one = fleet(a=1)
    first = await one.acquire()
    waiting = [asyncio.create_task(one.acquire()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    one.record_success(first)
    second = await waiting[0]
    assert not waiting[1].done()
    one.give_up(second)
    await waiting[1]


async def test_failed_item_is_sent_before_waiting_items() -> None:
    one = fleet(a=1)
    permit = await one.acquire()
    later = asyncio.create_task(one.acquire())
    await asyncio.sleep(0)
    again = asyncio.create_task(one.acquire(first=True))
    await asyncio.sleep(0)
    one.record_success(permit)
    await again
    assert not later.done()
    later.cancel()


async def test_item_that_avoids_an_endpoint_does_not_delay_others() -> None:
    two = fleet(a=1, b=1)
    busy = await two.acquire(avoid="a")
    picky = asyncio.create_task(two.acquire(avoid="a"))
    await asyncio.sleep(0)
    other = await asyncio.wait_for(two.acquire(), 1)
    assert other.endpoint.name == "a"
    two.record_success(busy)
    assert (await picky).endpoint.name == "b"


async def test_endpoint_that_opens_during_a_refusal_wakes_the_waiting_item() -> None:
    """The time was read once to refuse the item and once more to set the timer: between them the endpoint had opened,
    so that none was set, and where nothing else was in flight the generator waited for ever."""
    closed, opened = 0.001, 60.0
    readings = [0.0, 0.0]
    one = EndpointFleet(
        BalancerLimits(initial_ejection_seconds=0.01), random.Random(0), lambda: readings.pop(0) if readings else opened
    )
    one.join(FakeEndpoint("a"), 1)
    readings[:] = [0.0]
    permit = await one.acquire()
    readings[:] = [0.0, 0.0, 0.0]
    one.record_failure(permit, unreachable("refused"))
    readings[:] = [closed, closed]  # whatever is read after these two refusals is late
    permit = await asyncio.wait_for(one.acquire(), 5)
    assert permit.endpoint.name == "a"


async def test_waiting_items_are_sent_when_an_ejected_endpoint_returns() -> None:
    one = fleet(a=4)
    one.record_failure(await one.acquire(), unreachable("refused"))
    permit = await asyncio.wait_for(one.acquire(), 1)
    assert permit.endpoint.name == "a"


async def test_a_cancelled_wait_gives_its_permit_back() -> None:
    one = fleet(a=1)
    permit = await one.acquire()
    waiting = asyncio.create_task(one.acquire())
    await asyncio.sleep(0)
    one.record_success(permit)  # the permit is on its way to `waiting`
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert one.states[0].in_flight == 0


async def test_endpoints_join_and_leave_while_requests_wait() -> None:
    none = fleet()
    waiting = asyncio.create_task(none.acquire())
    await asyncio.sleep(0)
    none.join(FakeEndpoint("late"), 1)
    permit = await waiting
    none.leave("late")
    none.record_failure(permit, RequestFailure(RetryAction.RETRY, Blame.DOWN, counted=False, reason="gone"))
    assert none.states == []
    none.join(FakeEndpoint("late"), 1)
    none.record_success(permit)  # the old one's: not this one's business
    assert none.states[0].in_flight == 0


async def test_outage_and_its_end_are_logged_once_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="evalrun_generator.endpoints.endpoint_fleet")
    one = EndpointFleet(BalancerLimits(suspect_failures=1, initial_ejection_seconds=0.004), random.Random(0))
    one.join(FakeEndpoint("a"), 4)
    told: list[str] = []
    one.on_trouble.append(lambda: told.append(trouble(one.states[0])))
    for _ in range(2):
        one.record_failure(await one.acquire(), classify_broken_off("HTTP 500: CUDA out of memory"))
    one.record_success(await one.acquire())
    assert told == [
        "HTTP 500: CUDA out of memory; next try within 0.004 s",
        "HTTP 500: CUDA out of memory; next try within 0.008 s",
        "",
    ]
    assert [record.getMessage() for record in caplog.records] == [
        "endpoint a is failing: HTTP 500: CUDA out of memory; next try within 0.004 s",
        "endpoint a answers again",
    ]
