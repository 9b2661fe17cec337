"""A proxy in front of a real server that breaks a share of the calls, each in another way, by a seeded draw."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager

import aiohttp
import msgspec
from aiohttp import web

from evalrun_executor.api import Busy

BUSY = "429"
"""The sandbox's own reply when its queue is full, which no other server gives."""
COMMON_FAULTS = ("500", "reset before", "reset after", "truncated", "nonsense", "slow")
"""Faults of any HTTP server: an error, a cut before and after the work, half a reply, another reply, a late reply."""
FAULTS = (*COMMON_FAULTS, BUSY)
SANDBOX_PATHS = frozenset({"/v1/run"})
SLOW_SECONDS = 0.2
HANG = "hang"
"""Accepts the request and never replies, not even to the request for a description, until `thaw`."""
PASSED_ON = ("Content-Type", "Authorization", "evalrun-timeout-ms")


class FaultyProxy:
    """Passes calls on to `target`, or breaks them.

    Args:
        target: URL of the server.
        share: share of the calls that are broken; may be changed at any time.
        seed: seed of the random choice.
        faults: the faults to choose from.
        paths: paths of calls that may be broken; every other call always passes.
    """

    def __init__(
        self,
        target: str,
        share: float,
        seed: int,
        faults: Sequence[str] = FAULTS,
        paths: Collection[str] = SANDBOX_PATHS,
    ) -> None:
        self.share = share
        self.calls = 0
        """Number of calls to `paths`, broken calls included."""
        self.at_call: dict[int, Callable[[], None]] = {}
        """Action at a certain call, counted from 1."""
        self.injected: Counter[str] = Counter()
        self._faults = faults
        self._paths = paths
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._cuts_all = False
        self._target = target.rstrip("/")
        self._random = random.Random(seed)  # noqa: S311 - not a secret
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def _pass_on(self, request: web.Request) -> tuple[int, str, bytes]:
        async with self._session.request(
            request.method,
            self._target + request.path_qs,
            data=await request.read(),
            headers={name: request.headers[name] for name in PASSED_ON if name in request.headers},
        ) as answer:
            return answer.status, answer.headers.get("Content-Type", ""), await answer.read()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Handle a call."""
        await self._thawed.wait()
        fault = self._draw(request.path)
        if self._cuts_all:
            return self._cut(request)
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
                await asyncio.sleep(SLOW_SECONDS)
        try:
            status, kind, body = await self._pass_on(request)
        # The target is gone, which its caller would see as a cut connection.
        except aiohttp.ClientConnectionError:
            return self._cut(request)
        if fault == "reset after":
            return self._cut(request)
        response = web.StreamResponse(status=status, headers={"Content-Length": str(len(body)), "Content-Type": kind})
        try:
            await response.prepare(request)
            await response.write(body[: len(body) // 2] if fault == "truncated" else body)
        # The caller is gone.
        except ConnectionResetError:
            return response
        return self._cut(request, response) if fault == "truncated" else response

    def _draw(self, path: str) -> str:
        if path not in self._paths:
            return ""
        self.calls += 1
        if self.calls in self.at_call:
            self.at_call[self.calls]()
        fault = self._random.choice(self._faults) if self._random.random() < self.share else ""
        if fault:
            self.injected[fault] += 1
        return fault

    def freeze(self) -> None:
        """Hold all replies until `thaw`."""
        self._thawed.clear()

    def thaw(self) -> None:
        """Reply again, also to waiting calls."""
        self._thawed.set()

    def go_away(self, seconds: float) -> None:
        """Cut every call for some seconds, as if the server had ended."""
        self._cuts_all = True
        asyncio.get_running_loop().call_later(seconds, self._come_back)

    def _come_back(self) -> None:
        self._cuts_all = False

    def _cut(self, request: web.Request, response: web.StreamResponse | None = None) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return response or web.Response()

    async def close(self) -> None:
        """Close the connections to the target."""
        await self._session.close()


@asynccontextmanager
async def serve(proxy: FaultyProxy) -> AsyncIterator[str]:
    """Serve a proxy on loopback. Yield its URL."""
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", proxy.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        await proxy.close()


@asynccontextmanager
async def faulty_proxy(
    target: str, share: float, seed: int, faults: Sequence[str] = FAULTS
) -> AsyncIterator[tuple[str, FaultyProxy]]:
    """Serve a proxy of a sandbox on loopback. Yield its URL and the proxy."""
    proxy = FaultyProxy(target, share, seed, faults)
    async with serve(proxy) as url:
        yield url, proxy
