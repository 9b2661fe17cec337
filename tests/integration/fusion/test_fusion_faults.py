"""No verdict, and how each client takes that: 504 is what verl retries, and SandboxFusion's own client retries all."""

import asyncio

import aiohttp
import requests
import sandbox_fusion as client
from builders.aggregator.process import eventually
from builders.fusion.clients import TEST_SECONDS, ScriptedExecutor, VerlClient, exited, reply, serving

from evalrun_executor.api import ProgramRun
from evalrun_executor.errors import ExecutorLost
from evalrun_sandbox.fusion.dispatch import Dispatcher
from evalrun_sandbox.fusion.turns import Turns

LOST = ExecutorLost("a runner ended with -9")
STARVED = reply(ProgramRun("timeout", confirmed=False))


async def test_verl_retries_after_an_infrastructure_failure() -> None:
    waits: list[float] = []
    async with serving(Dispatcher(ScriptedExecutor(LOST, LOST, reply(exited(b"7\n"))))) as address:
        verl = VerlClient(f"{address}/run_code", waits.append)
        assert await asyncio.to_thread(verl.grade, "print(7)", "", "7") is True
    assert (verl.attempts, waits) == (3, [1, 2])


async def test_starved_timeout_is_reported_as_a_timeout_like_the_stock_server() -> None:
    async with serving(Dispatcher(ScriptedExecutor(STARVED))) as address:
        verl = VerlClient(f"{address}/run_code", lambda _: None)
        assert await asyncio.to_thread(verl.grade, "print(7)", "", "7") == -3
    assert verl.attempts == 1


async def test_verl_reports_an_api_error_after_repeated_infrastructure_failures() -> None:
    async with serving(Dispatcher(ScriptedExecutor(LOST, LOST, LOST))) as address:
        verl = VerlClient(f"{address}/run_code", lambda _: None)
        assert await asyncio.to_thread(verl.grade, "print(7)", "", "7") == -1


async def test_sandbox_fusion_client_retries_after_an_infrastructure_failure() -> None:
    executor = ScriptedExecutor(LOST)
    async with serving(Dispatcher(executor)) as address:
        request = client.RunCodeRequest(code="print(1)", language="python")
        answer = await client.run_code_async(request, endpoint=address, max_attempts=2)
    assert (answer.status, answer.executor_pod_name, len(executor.asked)) == ("Success", "pod-1", 2)


async def test_a_full_queue_is_504_with_a_retry_delay() -> None:
    executor = ScriptedExecutor(slots=1)
    executor.gate = asyncio.Event()
    body = {"code": "", "language": "python"}
    async with serving(Dispatcher(executor, Turns(1, max_waiting=0))) as address:
        first = asyncio.create_task(
            asyncio.to_thread(requests.post, f"{address}/run_code", json=body, timeout=TEST_SECONDS)
        )
        await executor.started.wait()
        refused = await asyncio.to_thread(requests.post, f"{address}/run_code", json=body, timeout=TEST_SECONDS)
        executor.gate.set()
        assert (await first).status_code == 200
    assert (refused.status_code, refused.headers["Retry-After"]) == (504, "1")
    assert refused.json() == {"detail": "the queue is full: 0 requests wait"}


async def test_waiting_client_that_disconnects_is_removed_from_the_queue() -> None:
    executor = ScriptedExecutor(slots=1)
    executor.gate = asyncio.Event()
    dispatcher = Dispatcher(executor)
    body = {"code": "", "language": "python"}
    async with serving(dispatcher) as address:
        first = asyncio.create_task(
            asyncio.to_thread(requests.post, f"{address}/run_code", json=body, timeout=TEST_SECONDS)
        )
        await executor.started.wait()
        async with aiohttp.ClientSession() as session:
            second = asyncio.create_task(session.post(f"{address}/run_code", json=body))
            await eventually(lambda: dispatcher.turns.waiting == 1)
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)
            await eventually(lambda: dispatcher.turns.waiting == 0)
        executor.gate.set()
        assert (await first).status_code == 200
    assert len(executor.asked) == 1


async def test_error_answer_shows_no_stack_trace() -> None:
    async with serving(Dispatcher(ScriptedExecutor(LOST))) as address:
        answer = await asyncio.to_thread(
            requests.post, f"{address}/run_code", json={"code": "", "language": "python"}, timeout=TEST_SECONDS
        )
    assert (answer.status_code, set(answer.json())) == (504, {"detail"})
