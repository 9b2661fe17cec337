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


async def test_others_who_hold_every_place_are_waited_for() -> None:
    time = Time()
    executor = ScriptedExecutor(Busy(0, 20), Busy(0, 20), reply(exited(b"1\n")))
    answer = await Dispatcher(executor, clock=time.clock, sleep=time.sleep).run(program(1), 10, 5)
    assert answer.runs[0].stdout == b"1\n"
    assert time.sleeps == [0.02, 0.02]


async def test_and_not_beyond_the_callers_patience() -> None:
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


async def test_who_comes_back_has_kept_the_place() -> None:
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


async def test_who_comes_back_late_finds_the_answer() -> None:
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


async def test_a_run_that_was_lost_meanwhile_is_begun_anew() -> None:
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


async def test_what_nobody_comes_back_for_is_given_up() -> None:
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


def test_each_attempt_has_its_whole_time_to_come_back() -> None:
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
