import asyncio

import pytest
from builders.virtual_time import run_virtually

from evalrun_executor.slots import Slots


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_slots_are_given_in_order_and_a_caller_for_all_is_not_starved() -> None:
    slots = Slots(2)
    order: list[str] = []

    async def want(name: str, need: int) -> None:
        taken = await slots.take(need)
        order.append(name)
        await asyncio.sleep(0)
        slots.give_back(taken)

    first = await slots.take(1)
    waiting = [asyncio.create_task(want(name, need)) for name, need in (("all", 2), ("one", 1), ("two", 1))]
    await settle()
    assert order == []  # one slot is free, but "all" came first
    assert slots.take_idle() is None
    slots.give_back(first)
    await asyncio.gather(*waiting)
    assert order[0] == "all"
    assert sorted(order[1:]) == ["one", "two"]
    assert slots.free == 2


async def test_cancelled_waiter_does_not_delay_the_next() -> None:
    slots = Slots(1)
    held = await slots.take(1)
    leaves, stays = asyncio.create_task(slots.take(1)), asyncio.create_task(slots.take(1))
    await settle()
    leaves.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaves
    slots.give_back(held)
    assert await stays == held
    assert slots.waiting == 0


async def test_a_slot_won_at_the_moment_of_cancellation_is_given_back() -> None:
    slots = Slots(1)
    held = await slots.take(1)
    waiter = asyncio.create_task(slots.take(1))
    await settle()
    slots.give_back(held)  # the waiter has it now, but has not run yet
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert slots.free == 1


async def test_slots_given_back_without_a_waiter_are_offered_as_idle() -> None:
    offers: list[int] = []
    slots = Slots(2, lambda: offers.append(slots.free))
    taken = await slots.take(2)
    slots.give_back(taken)
    assert offers == [2]
    assert slots.take_idle() is not None


def test_a_slot_that_was_given_back_is_left_to_the_next_request_for_a_moment() -> None:
    offers: list[float] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        slots = Slots(2, lambda: offers.append(loop.time()), travel_seconds=0.01)
        assert slots.take_idle() is not None  # nothing was given back yet
        (first,) = await slots.take(1)
        slots.give_back([first])
        assert slots.take_idle() is None
        assert await slots.take(1) == [first]  # whoever asks gets it at once
        await asyncio.sleep(0.02)
        assert offers == []  # it is in use
        slots.give_back([first])
        await asyncio.sleep(0.005)
        slots.give_back([1 - first])
        assert slots.take_idle() is None
        await asyncio.sleep(0.02)
        assert offers == [pytest.approx(0.035, abs=0.002)]
        assert {slots.take_idle(), slots.take_idle()} == {0, 1}

    run_virtually(work())


def test_all_slots_are_held_within_their_time_or_none_is() -> None:
    async def work() -> None:
        slots = Slots(2)
        (held,) = await slots.take(1)
        async with slots.take_all(1.0) as alone:
            assert not alone
            assert slots.free == 1
        assert slots.waiting == 0
        slots.give_back([held])
        async with slots.take_all(1.0) as alone:
            assert alone
            assert slots.free == 0
        assert slots.free == 2

    run_virtually(work())


@pytest.mark.parametrize("turns", range(4))
async def test_a_cancellation_beside_the_last_slot_is_never_passed_over(turns: int) -> None:
    slots = Slots(1)

    async def hold_all() -> None:
        async with slots.take_all(60.0):
            await asyncio.Event().wait()

    held = await slots.take(1)
    holder = asyncio.create_task(hold_all())
    await settle()
    slots.give_back(held)
    for _ in range(turns):
        await asyncio.sleep(0)
    holder.cancel()
    await settle()
    assert holder.cancelled()
    assert slots.free == 1
