import asyncio
from contextlib import suppress

import pytest
from builders.fusion import ScriptedExecutor, exited, reply
from builders.judge import Time

from evalrun_sandbox.api import RunRequest
from evalrun_sandbox.errors import Busy, ExecutorLost, RequestRefused
from evalrun_sandbox.fusion.dispatch import Dispatcher
from evalrun_sandbox.fusion.refusals import BadRequest, TryAgain
from evalrun_sandbox.fusion.turns import Turns

REQUEST = RunRequest("python", "print(1)", [b""])


async def hold(turns: Turns, done: asyncio.Event, order: list[int], number: int, patience: float = 60) -> None:
    async with turns.turn(10, patience):
        order.append(number)
        await done.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


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
        async with turns.turn(16, 60):
            pass
    done.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 1]


async def test_patience_ends_a_wait_and_leaves_no_trace() -> None:
    done, order = asyncio.Event(), list[int]()
    turns = Turns(1)
    first = asyncio.create_task(hold(turns, done, order, 0))
    await settle()
    with pytest.raises(TryAgain, match="every slot is busy"):
        await hold(turns, done, order, 1, patience=0)
    done.set()
    await first
    await hold(turns, done, order, 2)
    assert (order, turns.waiting) == ([0, 2], 0)


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


async def test_others_who_hold_every_place_are_waited_for() -> None:
    time = Time()
    executor = ScriptedExecutor(Busy(0, 20), Busy(0, 20), reply(exited(b"1\n")))
    dispatcher = Dispatcher(executor, clock=time.clock, sleep=time.sleep)
    answer = await dispatcher.run(REQUEST, 10, 5)
    assert answer.runs[0].stdout == b"1\n"
    assert time.sleeps == [0.02, 0.02]


async def test_and_not_beyond_the_callers_patience() -> None:
    time = Time()
    executor = ScriptedExecutor(*[Busy(0, 400)] * 9)
    with pytest.raises(TryAgain, match="within 1 s"):
        await Dispatcher(executor, clock=time.clock, sleep=time.sleep).run(REQUEST, 10, 1)
    assert time.sleeps == [0.4, 0.4]


@pytest.mark.parametrize(
    ("error", "answer"),
    [(ExecutorLost("a runner ended with 9"), TryAgain), (RequestRefused("limits.time_seconds: above 0"), BadRequest)],
)
async def test_the_executors_errors_keep_their_meaning(error: Exception, answer: type[Exception]) -> None:
    dispatcher = Dispatcher(ScriptedExecutor(error))
    with pytest.raises(answer, match=str(error)):
        await dispatcher.run(REQUEST, 10, 5)
    assert (await dispatcher.run(REQUEST, 10, 5)).runs[0].stdout == b"ok\n"
