"""The HTTP server of recorded completions: routes, latency, faults."""

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import count

from aiohttp import web

from evalrun_generator.recorded import openai_messages
from evalrun_generator.recorded.faults import Fault, Faults
from evalrun_generator.recorded.openai_messages import RecordedRequest, Reply, RequestError
from evalrun_generator.recorded.recorded_completions import (
    EchoCompletions,
    PromptUnknownError,
    RecordedAnswer,
    RecordedCompletions,
)
from evalrun_generator.recorded.settings import RecordedSettings
from evalrun_runtime.connections.http_site import WatchedSite

logger = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 64 * 1024 * 1024

CUT_SECONDS = 0.1
"""aiohttp's own shutdown timeout, which starts after our grace period."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RecordedServer:
    """Serves recorded completions; an `evalrun_runtime.process.Service`."""

    def __init__(self, settings: RecordedSettings, source: RecordedCompletions | EchoCompletions) -> None:
        self._settings = settings
        self._source = source
        self._faults = Faults(settings.fault_rate, settings.fault_kinds, settings.fault_seed)
        self._slots: AbstractAsyncContextManager[object] = (
            asyncio.Semaphore(settings.max_concurrency) if settings.max_concurrency else nullcontext()
        )
        self._ids = count(1)
        self._created = int(time.time())
        self._stopping = asyncio.Event()
        app = web.Application(client_max_size=MAX_REQUEST_BYTES, middlewares=[self._guard])
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._completion)
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        # A client that disconnects frees its slot at once, as in a model server.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=CUT_SECONDS)

    async def start(self) -> str:
        """Start serving and return the address. Raises OSError if the port is taken."""
        await self._runner.setup()
        site = WatchedSite(self._runner, self._settings.host, self._settings.port)
        await site.start()
        port = self._runner.addresses[0][1]
        return f"http://{self._settings.host}:{port}"

    async def stop(self, grace: float) -> None:
        """Wait up to `grace` seconds for requests, then abort them; requests with a hang fault end at once."""
        for site in list(self._runner.sites):
            await site.stop()
        self._stopping.set()
        try:
            async with asyncio.timeout(grace):
                await self._idle.wait()
        except TimeoutError:
            logger.warning("aborting %d requests that did not end within %g s", self._busy, grace)
        await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check the API key and return every error in OpenAI's format."""
        token = self._settings.token
        if token is not None and request.path != "/health":
            given = request.headers.get("Authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {token.get_secret_value()}".encode()):
                return _error(401, "Incorrect API key provided.", "invalid_api_key")
        self._busy += 1
        self._idle.clear()
        try:
            return await handler(request)
        except RequestError as error:
            return _error(error.status, str(error), error.code, error.param)
        except web.HTTPException as error:
            return _error(error.status, f"{request.method} {request.path}: {error.reason}", None)
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    async def _health(self, _request: web.Request) -> web.Response:
        # This request itself is not counted.
        in_flight = self._busy - 1
        return _json(200, json.dumps({"status": "ok", "in_flight": in_flight}).encode())

    async def _models(self, _request: web.Request) -> web.Response:
        return _json(200, openai_messages.models(self._settings.model, self._created))

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=True)

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=False)

    async def _answer(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        fault = self._faults.draw()
        asked = openai_messages.read_request(await request.read(), chat=chat, served_model=self._settings.model)
        if fault is Fault.ERROR:
            return _error(500, "injected fault (--fault-rate)", "internal_error")
        if fault is Fault.BUSY:
            wait = {"Retry-After": f"{self._settings.retry_after_seconds:g}"}
            return _error(429, "injected fault: too many requests (--fault-rate)", "rate_limit_exceeded", headers=wait)
        if fault is Fault.HANG:
            await self._stopping.wait()
        if fault is not None and not asked.stream:
            return _break_off(request)
        answers = self._find(asked)
        reply = Reply(f"{'chatcmpl' if chat else 'cmpl'}-{next(self._ids)}", int(time.time()))
        async with self._slots:
            if asked.stream:
                return await self._stream(request, asked, answers, reply, break_off=fault is not None)
            await self._sleep(1.0, asked, answers, constant=True)
            return _json(200, openai_messages.whole(asked, answers, reply))

    def _find(self, asked: RecordedRequest) -> list[RecordedAnswer]:
        try:
            return [self._source.find(asked.prompt, asked.seed, choice) for choice in range(asked.choices)]
        except PromptUnknownError as error:
            raise RequestError(
                404, str(error), "prompt_not_recorded", "messages" if asked.chat else "prompt"
            ) from error

    async def _stream(
        self,
        request: web.Request,
        asked: RecordedRequest,
        answers: list[RecordedAnswer],
        reply: Reply,
        *,
        break_off: bool,
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await self._sleep(0.0, asked, answers, constant=True)
        await response.prepare(request)
        events = list(openai_messages.pieces(asked, answers, reply))
        for event in events[: len(events) // 2] if break_off else events:
            await self._sleep(1 / len(events), asked, answers, constant=False)
            await response.write(event)
        if break_off:
            return _break_off(request)
        await response.write_eof()
        return response

    async def _sleep(
        self, share: float, asked: RecordedRequest, answers: list[RecordedAnswer], *, constant: bool
    ) -> None:
        """Sleep for the constant latency plus `share` of the per-token latency; do not yield if that is 0."""
        seconds = self._settings.latency_seconds if constant else 0.0
        if self._settings.latency_seconds_per_token:
            seconds += share * self._settings.latency_seconds_per_token * openai_messages.output_tokens(asked, answers)
        if seconds:
            await asyncio.sleep(seconds)


def _break_off(request: web.Request) -> web.Response:
    """Close the connection; the returned response is never sent."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _json(status: int, body: bytes, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def _error(
    status: int, message: str, code: str | None, param: str | None = None, headers: dict[str, str] | None = None
) -> web.Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return _json(status, openai_messages.error(message, kind, code, param), headers)
