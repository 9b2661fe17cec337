import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from evalrun_generator.rollout.replica_api import HttpReplicaApi, open_replica_session

STATUS = web.AppKey("status", list[int])
"""What /health answers with, the last entry."""


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    async def health(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer key":
            return web.Response(status=401)
        return web.Response(status=request.app[STATUS][-1])

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text='vllm:generation_tokens_total{engine="0"} 12.0\n')

    app = web.Application()
    app[STATUS] = [200]
    app.router.add_get("/health", health)
    app.router.add_get("/metrics", metrics)
    started = TestServer(app)
    await started.start_server()
    yield started
    await started.close()


def statuses(server: TestServer) -> list[int]:
    app = server.app
    if app is None:
        raise RuntimeError("the server has no application")
    return app[STATUS]


async def test_replica_api_reads_health_and_token_count(server: TestServer) -> None:
    async with open_replica_session("key") as session:
        api = HttpReplicaApi(session, f"{server.host}:{server.port}", "m")
        assert await api.health() is None
        assert await api.tokens() == 12.0
        statuses(server).append(503)
        assert await api.health() == "/health: 503"


async def test_replica_api_of_a_closed_server_is_unhealthy_without_a_token_count(server: TestServer) -> None:
    address = f"{server.host}:{server.port}"
    await server.close()
    async with open_replica_session("key") as session:
        api = HttpReplicaApi(session, address, "m")
        assert "/health: ClientConnectorError" in (await api.health() or "")
        assert await api.tokens() is None


async def test_slow_server_is_not_reported_as_unhealthy() -> None:
    async def never(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await released.wait()
        writer.close()

    released = asyncio.Event()
    silent = await asyncio.start_server(never, "127.0.0.1", 0)
    host, port = silent.sockets[0].getsockname()[:2]
    async with open_replica_session("key") as session:
        api = HttpReplicaApi(session, f"{host}:{port}", "m", seconds=0.05)
        assert await api.health() is None
        assert await api.tokens() is None
    released.set()
    silent.close()
    await silent.wait_closed()
