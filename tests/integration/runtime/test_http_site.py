"""A connection without a whole head is cut; others are served as ever."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress

import aiohttp
import pytest
import uvloop
from aiohttp import web

from evalrun_runtime.connections.http_site import HttpServer, WatchedSite
from evalrun_runtime.settings import ServiceSettings

MANY_CONNECTIONS = 400
"""More than aiohttp's own backlog of 128, and fewer than any kernel's bound of today."""


@asynccontextmanager
async def listening(seconds: float) -> AsyncIterator[int]:
    application = web.Application()

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    application.router.add_post("/", echo)
    runner = web.AppRunner(application)
    await runner.setup()
    await WatchedSite(runner, "127.0.0.1", 0, seconds).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("sent", [b"", b"POST / HTTP/1.1\r\nHost: a\r\nX-Half: "])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_connection_with_an_incomplete_head_is_closed(
    sent: bytes, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Services run on uvloop, whose transports are none of asyncio's classes."""

    async def cut() -> None:
        async with listening(0.05) as port, asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(cut())


async def test_requests_sent_in_pieces_are_served_on_one_connection() -> None:
    async with listening(10.0) as port, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for piece in (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Le", b"ngth: 2\r\n\r", b"\nh", b"i"):
            writer.write(piece)
            await writer.drain()
        assert (await reader.readuntil(b"hi")).startswith(b"HTTP/1.1 200")
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nyes")
        assert (await reader.readuntil(b"yes")).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_large_body_is_received_whole() -> None:
    async with (
        listening(10.0) as port,
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{port}/", data=b"x" * 900_000) as answer,
    ):
        assert len(await answer.read()) == 900_000


async def test_connections_made_while_the_event_loop_is_busy_are_queued() -> None:
    """Beyond the backlog the kernel drops them, and tries them again a second later, then two, four ... seconds."""
    async with listening(10.0) as port:
        with ExitStack() as stack:
            for _ in range(MANY_CONNECTIONS):  # without an await: the server accepts none of them
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))


async def test_drain_of_zero_seconds_ends_requests_in_flight() -> None:
    begun = asyncio.Event()

    async def endless(request: web.Request) -> web.Response:
        del request
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    application = web.Application()
    application.router.add_get("/", endless)
    server = HttpServer(application, ServiceSettings(drain_seconds=0), ("/healthz", endless))
    address = await server.start()
    async with aiohttp.ClientSession() as session, asyncio.timeout(60):
        asked = asyncio.create_task(session.get(address))
        await begun.wait()
        await server.stop()
        with pytest.raises(aiohttp.ClientError):
            await asked
