"""Gateways and sandboxes of different releases over loopback: adjacent ones work together, others are unavailable."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from aiohttp import web
from builders.judge.gateway import Time, make_pool
from builders.judge.sandbox import started
from prometheus_client import CollectorRegistry

from evalrun_executor.api import (
    CONTENT_TYPE,
    VERSION_REFUSED,
    Refused,
    RunReply,
    RunRequest,
    SandboxInfo,
    list_spoken_versions,
)
from evalrun_executor.executor import Executor, ExecutorPlan
from evalrun_judge.pool.pool import SandboxPool
from evalrun_judge.pool.retries import RetryPolicy
from evalrun_judge.pool.slot_queue import NoSandboxError
from evalrun_judge.sandboxes import SandboxVersionError
from evalrun_judge.sandboxes.evalrun_http import EvalrunSandbox
from evalrun_judge.sandboxes.fake import echo
from evalrun_sandbox.app import SandboxService
from evalrun_sandbox.settings import SandboxSettings

PROGRAM = RunRequest("python", "print(int(input()) + 1)", [b"1", b"2"])
CALLS = RunRequest(
    "python",
    "def f(x):\n    return x + 1",
    [b'{"imports":"","classes":[],"prints":false,"tests":[[0,[["f",[1],{"d":[]},null]]]]}'],
    mode="calls",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor() -> AsyncIterator[Executor]:
    async with started(ExecutorPlan(slots=2, queue=64, allow_uncontained=True)) as running:
        yield running


pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def serve(application: web.Application, port: int = 0) -> AsyncIterator[str]:
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def sandbox_of(executor: Executor, wire_version: int) -> web.Application:
    return SandboxService(SandboxSettings(), executor, CollectorRegistry(), wire_version=wire_version).application()


def pool_of(urls: list[str], wire_version: int, budget_seconds: float = 30.0) -> SandboxPool:
    pool = make_pool(
        [EvalrunSandbox(url, wire_version=wire_version) for url in urls],
        Time(),
        required_level="none",
        clock=asyncio.get_running_loop().time,
        sleep=asyncio.sleep,
        retries=RetryPolicy(budget_seconds=budget_seconds),
    )
    pool.start()
    return pool


def check_replies(program: RunReply, calls: RunReply) -> None:
    assert [run.stdout for run in program.runs] == [b"2\n", b"3\n"]
    assert b"0 0 V [2," in calls.runs[0].stdout


@pytest.mark.parametrize(("gateway", "sandbox"), [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2)])
async def test_pool_adjacent_versions_run_programs_and_calls(executor: Executor, gateway: int, sandbox: int) -> None:
    async with serve(sandbox_of(executor, sandbox)) as url:
        pool = pool_of([url], gateway)
        check_replies(await pool.run(PROGRAM), await pool.run(CALLS))
        await pool.close()


@pytest.mark.parametrize(("gateway", "sandbox"), [(1, 3), (3, 1), (2, 4)])
async def test_pool_distant_version_is_unavailable_and_names_both(
    executor: Executor, gateway: int, sandbox: int
) -> None:
    async with serve(sandbox_of(executor, sandbox)) as url:
        client = EvalrunSandbox(url, wire_version=gateway)
        with pytest.raises(SandboxVersionError) as refusal:
            await client.describe()
        await client.close()
        for newest in (gateway, sandbox):
            assert " and ".join(map(str, list_spoken_versions(newest))) in str(refusal.value)
        assert "upgrade through every release between" in str(refusal.value)
        pool = pool_of([url], gateway, budget_seconds=0.3)
        with pytest.raises(NoSandboxError, match="this gateway"):
            await pool.run(PROGRAM)
        await pool.close()


async def test_pool_mixed_versions_send_programs_to_compatible_sandboxes(executor: Executor) -> None:
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(serve(sandbox_of(executor, version))) for version in (1, 2, 3, 4)]
        pool = pool_of(urls, 2)
        replies = await asyncio.gather(*(pool.run(PROGRAM) for _ in range(20)))
        assert all(reply.runs[1].stdout == b"3\n" for reply in replies)
        await pool.close()


@pytest.mark.parametrize(("before", "after", "gateway"), [(1, 2, 1), (1, 2, 2), (2, 1, 2), (1, 4, 2)])
async def test_pool_rolling_upgrade_of_sandboxes_loses_no_program(
    executor: Executor, before: int, after: int, gateway: int
) -> None:
    """Each sandbox in turn is replaced at its address; the last case replaces one by a version that does not fit."""
    async with AsyncExitStack() as stack:
        staying = await stack.enter_async_context(serve(sandbox_of(executor, gateway)))
        rolled = AsyncExitStack()
        url = await rolled.enter_async_context(serve(sandbox_of(executor, before)))
        pool = pool_of([staying, url], gateway)
        running = [asyncio.create_task(pool.run(PROGRAM)) for _ in range(10)]
        await running[0]
        await rolled.aclose()
        await stack.enter_async_context(serve(sandbox_of(executor, after), int(url.rpartition(":")[2])))
        running += [asyncio.create_task(pool.run(request)) for request in (PROGRAM, CALLS) for _ in range(10)]
        replies = await asyncio.gather(*running)
        assert len([reply for reply in replies if reply.compile.status == "ok"]) == 30
        check_replies(replies[0], replies[-1])
        await pool.close()


async def test_sandbox_request_in_unsupported_version_is_refused_with_the_versions(executor: Executor) -> None:
    body = msgspec.msgpack.encode(PROGRAM)
    async with serve(sandbox_of(executor, 3)) as url, aiohttp.ClientSession() as session:
        for version, status in ((1, VERSION_REFUSED), (2, 200), (3, 200), (4, VERSION_REFUSED)):
            async with session.post(f"{url}/v{version}/run", data=body) as answer:
                assert answer.status == status
        async with session.post(f"{url}/v4/run", data=body) as answer:
            assert msgspec.msgpack.decode(await answer.read(), type=Refused).message.endswith("2 and 3")


async def test_gateway_of_the_release_before_versions_is_served(executor: Executor) -> None:
    """It posts to /v1/run, and reads `calls_version` alone."""
    async with serve(sandbox_of(executor, 2)) as url, aiohttp.ClientSession() as session:
        async with session.get(f"{url}/v1/info") as answer:
            assert (await answer.json())["calls_version"] == 1
        async with session.post(f"{url}/v1/run", data=msgspec.msgpack.encode(PROGRAM)) as answer:
            assert msgspec.msgpack.decode(await answer.read(), type=RunReply).runs[0].stdout == b"2\n"


async def test_sandbox_of_the_release_before_versions_is_used() -> None:
    """It names no `wire_versions`, and knows no path but /v1/run."""

    async def describe(request: web.Request) -> web.Response:
        del request
        info = SandboxInfo("0.1.0", "full", 2, ["python"], "3.11.2")
        told = {name: value for name, value in msgspec.structs.asdict(info).items() if name != "wire_versions"}
        return web.json_response(told)

    async def run(request: web.Request) -> web.Response:
        wanted = msgspec.msgpack.decode(await request.read(), type=RunRequest)
        return web.Response(body=msgspec.msgpack.encode(echo(wanted)), content_type=CONTENT_TYPE)

    application = web.Application()
    application.router.add_get("/v1/info", describe)
    application.router.add_post("/v1/run", run)
    async with serve(application) as url:
        for gateway in (1, 2):
            pool = pool_of([url], gateway)
            assert (await pool.run(PROGRAM)).runs[0].stdout == b"1"
            await pool.close()
        pool = pool_of([url], 3, budget_seconds=0.3)
        with pytest.raises(NoSandboxError, match="speaks wire versions 1, this gateway 2 and 3"):
            await pool.run(PROGRAM)
        await pool.close()
