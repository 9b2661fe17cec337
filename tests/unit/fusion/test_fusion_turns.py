import asyncio
from contextlib import suppress

import pytest
from builders.fusion.clients import settle

from evalrun_sandbox.fusion.refusals import TryAgain
from evalrun_sandbox.fusion.turns import Turns


async def hold(turns: Turns, done: asyncio.Event, order: list[int], number: int) -> None:
    async with turns.turn(10):
        order.append(number)
        await done.wait()


async def test_turns_come_in_order_and_never_more_than_there_are_slots() -> None:
    turns, order = Turns(2), list[int]()
    ends = [asyncio.Event() for _ in range(4)]
    tasks = []
    for number in range(4):
        tasks.append(asyncio.create_task(hold(turns, ends[number], order, number)))
        await settle()
    assert (order, turns.waiting) == ([0, 1], 2)
    ends[1].set()
    await settle()
    assert (order, turns.waiting) == ([0, 1, 2], 1)
    for end in ends:
        end.set()
    await asyncio.gather(*tasks)
    assert (order, turns.waiting) == ([0, 1, 2, 3], 0)


async def test_the_queue_is_bounded_by_count_and_by_bytes() -> None:
    done, order = asyncio.Event(), list[int]()
    turns = Turns(1, max_waiting=2, max_waiting_bytes=25)
    tasks = [asyncio.create_task(hold(turns, done, order, number)) for number in range(3)]
    await settle()
    with pytest.raises(TryAgain, match="queue is full: 2 requests wait"):
        await hold(turns, done, order, 3)
    tasks[2].cancel()
    await settle()
    with pytest.raises(TryAgain, match="queue is full: 1 requests wait"):
        async with turns.turn(16):
            pass
    done.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 1]


async def test_a_caller_that_leaves_gives_its_turn_to_the_next() -> None:
    done, order = asyncio.Event(), list[int]()
    turns = Turns(1)
    tasks = [asyncio.create_task(hold(turns, done, order, number)) for number in range(3)]
    await settle()
    tasks[0].cancel()
    tasks[1].cancel()
    with suppress(asyncio.CancelledError):
        await tasks[0]
    await settle()
    assert order == [0, 2]
    done.set()
    await tasks[2]
