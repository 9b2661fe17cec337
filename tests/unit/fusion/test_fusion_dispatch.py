import asyncio

import pytest
from builders.fusion.clients import ScriptedExecutor, exited, reply, settle
from builders.judge.gateway import Time
from builders.virtual_time import run_virtually

from evalrun_executor.api import RunReply, RunRequest
from evalrun_executor.errors import Busy, ExecutorLost, RequestRefused
from evalrun_sandbox.fusion.dispatch import Dispatcher
from evalrun_sandbox.fusion.refusals import BadRequest, TryAgain


def program(number: int) -> RunRequest:
    return RunRequest("python", f"print({number})", [b"%d" % number])


def echo() -> ScriptedExecutor:
    executor = ScriptedExecutor(rule=lambda data: exited(data), slots=1)
    executor.gate = asyncio.Event()
    return executor


def start(dispatcher: Dispatcher, number: int, patience: float = 60) -> asyncio.Task[RunReply]:
    return asyncio.create_task(dispatcher.run(program(number), 10, patience))


async def sent_away(dispatcher: Dispatcher, number: int) -> None:
    with pytest.raises(TryAgain, match="every slot is busy"):
        await dispatcher.run(program(number), 10, 0)


async def test_busy_executor_is_retried_until_a_slot_is_free() -> None:
    time = Time()
    executor = ScriptedExecutor(Busy(0, 20), Busy(0, 20), reply(exited(b"1\n")))
    answer = await Dispatcher(executor, clock=time.clock, sleep=time.sleep).run(program(1), 10, 5)
    assert answer.runs[0].stdout == b"1\n"
    assert time.sleeps == [0.02, 0.02]


async def test_busy_executor_beyond_the_callers_patience_raises_try_again() -> None:
    time = Time()
    executor = ScriptedExecutor(*[Busy(0, 400)] * 9)
    with pytest.raises(TryAgain, match="every slot is busy"):
        await Dispatcher(executor, clock=time.clock, sleep=time.sleep).run(program(1), 10, 1)
    assert time.sleeps == [0.4, 0.4]


@pytest.mark.parametrize(
    ("error", "answer"),
    [(ExecutorLost("a runner ended with 9"), TryAgain), (RequestRefused("limits.time_seconds: above 0"), BadRequest)],
)
async def test_the_executors_errors_keep_their_meaning(error: Exception, answer: type[Exception]) -> None:
    dispatcher = Dispatcher(ScriptedExecutor(error))
    with pytest.raises(answer, match=str(error)):
        await dispatcher.run(program(1), 10, 5)
    assert (await dispatcher.run(program(1), 10, 5)).runs[0].stdout == b"ok\n"


async def test_a_program_that_has_started_is_waited_for_however_long() -> None:
    executor = echo()
    assert executor.gate is not None
    task = start(Dispatcher(executor), 1, patience=0.01)
    await executor.started.wait()
    await asyncio.wait({task}, timeout=0.05)
    assert not task.done()
    executor.gate.set()
    assert (await task).runs[0].stdout == b"1"


async def test_returning_caller_keeps_its_place_in_the_queue() -> None:
    executor = echo()
    assert executor.gate is not None
    dispatcher = Dispatcher(executor)
    first = start(dispatcher, 1)
    await settle()
    await sent_away(dispatcher, 2)
    third = start(dispatcher, 3)
    await settle()
    second = start(dispatcher, 2)
    await settle()
    assert dispatcher.turns.waiting == 2
    executor.gate.set()
    assert [(await task).runs[0].stdout for task in (first, second, third)] == [b"1", b"2", b"3"]
    assert [request.inputs for request in executor.asked] == [[b"1"], [b"2"], [b"3"]]


async def test_returning_caller_gets_the_finished_answer_once() -> None:
    executor = echo()
    assert executor.gate is not None
    dispatcher = Dispatcher(executor)
    first = start(dispatcher, 1)
    await settle()
    await sent_away(dispatcher, 2)
    executor.gate.set()
    await first
    await settle()
    assert (await dispatcher.run(program(2), 10, 0)).runs[0].stdout == b"2"
    assert len(executor.asked) == 2
    assert (await dispatcher.run(program(2), 10, 5)).runs[0].stdout == b"2"
    assert len(executor.asked) == 3  # an answer is given once: programs may be random


async def test_run_lost_in_the_callers_absence_is_started_again() -> None:
    executor = ScriptedExecutor(reply(exited(b"1")), ExecutorLost("gone"), reply(exited(b"2")), slots=1)
    executor.gate = asyncio.Event()
    dispatcher = Dispatcher(executor)
    first = start(dispatcher, 1)
    await settle()
    await sent_away(dispatcher, 2)
    executor.gate.set()
    await first
    await settle()
    assert (await dispatcher.run(program(2), 10, 5)).runs[0].stdout == b"2"


async def test_program_whose_caller_does_not_return_is_dropped_from_the_queue() -> None:
    executor = echo()
    assert executor.gate is not None
    dispatcher = Dispatcher(executor, grace_seconds=0)
    first = start(dispatcher, 1)
    await settle()
    await sent_away(dispatcher, 2)
    await settle()
    assert dispatcher.turns.waiting == 0
    executor.gate.set()
    await first
    assert [request.inputs for request in executor.asked] == [[b"1"]]


async def test_a_caller_that_is_cancelled_takes_its_program_along() -> None:
    executor = echo()
    dispatcher = Dispatcher(executor)
    running, waiting = start(dispatcher, 1), start(dispatcher, 2)
    await settle()
    waiting.cancel()
    running.cancel()
    await asyncio.gather(running, waiting, return_exceptions=True)
    await settle()
    assert executor.gate is not None
    executor.gate.set()
    assert (await dispatcher.run(program(3), 10, 5)).runs[0].stdout == b"3"
    assert [request.inputs for request in executor.asked] == [[b"1"], [b"3"]]


def test_grace_time_restarts_with_each_attempt_of_the_caller() -> None:
    async def scene() -> None:
        executor = echo()
        assert executor.gate is not None
        dispatcher = Dispatcher(executor, grace_seconds=10)
        first = start(dispatcher, 1)
        await settle()
        await sent_away(dispatcher, 2)
        await asyncio.sleep(6)
        await sent_away(dispatcher, 2)
        await asyncio.sleep(6)
        assert dispatcher.turns.waiting == 1
        await asyncio.sleep(6)
        assert dispatcher.turns.waiting == 0
        executor.gate.set()
        await first

    run_virtually(scene())
