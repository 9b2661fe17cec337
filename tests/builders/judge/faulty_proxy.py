"""A proxy in front of a real sandbox that breaks a share of the calls, each in another way, by a seeded draw."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
import msgspec
from aiohttp import web

from evalrun_executor.api import CONTENT_TYPE, Busy

FAULTS = ("500", "reset before", "reset after", "truncated", "nonsense", "429", "slow")

HANG = "hang"
"""Takes the request and never answers it, nor the question what the sandbox is, until `thaw`."""


class FaultyProxy:
    """Passes `/v1/run` on to `target`, or breaks it; `/v1/info` always passes."""

    def __init__(self, target: str, share: float, seed: int, faults: Sequence[str] = FAULTS) -> None:
        self._faults = faults
        self._thawed = asyncio.Event()
        self._thawed.set()
        self.injected: Counter[str] = Counter()
        self._target = target
        self._share = share
        self._random = random.Random(seed)
        self._session = aiohttp.ClientSession()

    async def _pass_on(self, request: web.Request) -> tuple[int, bytes]:
        async with self._session.request(
            request.method,
            self._target + request.path,
            data=await request.read(),
            headers={"Content-Type": CONTENT_TYPE},
        ) as answer:
            return answer.status, await answer.read()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        await self._thawed.wait()
        fault = self._random.choice(self._faults) if self._random.random() < self._share else ""
        if request.path != "/v1/run":
            fault = ""
        if fault:
            self.injected[fault] += 1
        match fault:
            case "500":
                return web.Response(status=500, text="Traceback (most recent call last): ...")
            case "429":
                return web.Response(status=429, body=msgspec.msgpack.encode(Busy(0, 5)))
            case "nonsense":
                return web.Response(body=b"<html>")
            case "reset before":
                return self._cut(request)
            case "hang":
                self.freeze()
                await self._thawed.wait()
            case "slow":
                await asyncio.sleep(0.2)
        status, body = await self._pass_on(request)
        if fault == "reset after":
            return self._cut(request)
        response = web.StreamResponse(status=status, headers={"Content-Length": str(len(body))})
        await response.prepare(request)
        if fault == "truncated":
            await response.write(body[: len(body) // 2])
            return self._cut(request, response)
        await response.write(body)
        await response.write_eof()
        return response

    def freeze(self) -> None:
        self._thawed.clear()

    def thaw(self) -> None:
        """Answer again, also what waits."""
        self._thawed.set()

    def _cut(self, request: web.Request, response: web.StreamResponse | None = None) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return response or web.Response()

    async def close(self) -> None:
        await self._session.close()


@asynccontextmanager
async def faulty_proxy(
    target: str, share: float, seed: int, faults: Sequence[str] = FAULTS
) -> AsyncIterator[tuple[str, FaultyProxy]]:
    """Serve one on loopback; gives its URL."""
    proxy = FaultyProxy(target, share, seed, faults)
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", proxy.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", proxy
    finally:
        await runner.cleanup()
        await proxy.close()
