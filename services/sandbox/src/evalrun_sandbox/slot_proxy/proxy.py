"""The proxy: takes a slot for each request that runs programs, and streams bodies without reading or storing them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import aiohttp
from aiohttp import web
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.connections.http_site import HttpServer
from evalrun_sandbox.fusion.credentials import convert_to_bearer
from evalrun_sandbox.slot_proxy.settings import SlotProxySettings

logger = logging.getLogger(__name__)

RUNNING = frozenset({"/run_code", "/run_jupyter", "/submit"})
"""Paths that start programs: a POST there takes a slot."""
PASSED = RUNNING | {
    "/list_datasets", "/list_ids", "/get_prompts", "/get_prompt_by_id", "/get_metrics", "/get_metrics_function",
}  # fmt: skip
"""All forwarded paths. The server's own pages and routes of later versions are not forwarded."""
PING_PATH = "/v1/ping"
OPEN_PATHS = frozenset({PING_PATH})
LOST = (502, 504)
"""Statuses returned if the server returns none."""
RETRY_MS = 100
PING_SECONDS = 5.0
_CLEANUP_SECONDS = 10.0
_CHUNK = 1 << 16

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class SlotProxy:
    """The service that `evalrun_runtime.process.run_service` runs.

    A slot is freed when the server has answered, not when the client disconnects: a stock server continues to run a
    program without a client, and freeing the slot earlier would start one program too many.
    """

    def __init__(self, settings: SlotProxySettings, registry: CollectorRegistry = REGISTRY) -> None:
        self._settings = settings
        self._tokens = BearerTokens.load(settings.token, settings.token_file)
        self._busy = 0
        self._draining = False
        self._session: aiohttp.ClientSession | None = None
        self._server: HttpServer | None = None
        slots = Gauge("evalrun_sandbox_slots", "Slots, by state.", ["state"], registry=registry)
        slots.labels("free").set_function(lambda: self.free)
        slots.labels("busy").set_function(lambda: self._busy)
        self._requests = Counter("evalrun_sandbox_requests", "Run requests, by answer.", ["answer"], registry=registry)
        for answer in ("done", "busy", "lost", "draining"):
            self._requests.labels(answer)

    @property
    def free(self) -> int:
        return self._settings.slots - self._busy

    async def start(self) -> str:
        """Listen and return the address. Raises OSError if the port is taken."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
        )
        # A client that disconnects must not free its slot.
        self._server = HttpServer(self.application(), self._settings, (PING_PATH, self._ping), cancel_handlers=False)
        return await self._server.start()

    async def stop(self, grace: float) -> None:
        """Refuse new requests, wait up to `grace` seconds for running requests, then stop."""
        self._draining = True
        if self._server is not None:
            async with asyncio.timeout(grace + _CLEANUP_SECONDS):
                await self._server.stop()
        if self._session is not None:
            await self._session.close()

    def application(self) -> web.Application:
        application = web.Application(middlewares=[self._check_token])
        application.router.add_get(PING_PATH, self._ping)
        application.router.add_get("/v1/slots", self._slots)
        application.router.add_route("*", "/{path:.*}", self._handle_request)
        return application

    @web.middleware
    async def _check_token(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        tokens = self._tokens
        if tokens is None or request.path in OPEN_PATHS:
            return await handler(request)
        if tokens.accept(convert_to_bearer(request.headers.get("Authorization", ""))):
            return await handler(request)
        return web.json_response({"detail": "send the sandbox's token as 'Authorization: Bearer ...'"}, status=401)

    async def _ping(self, _: web.Request) -> web.Response:
        """Answer "pong" if the server does, or 503 if it does not or this proxy is stopping."""
        if self._draining:
            return web.json_response({"detail": "draining"}, status=503)
        try:
            limit = aiohttp.ClientTimeout(total=PING_SECONDS)
            async with self._open().get(f"{self._settings.upstream}/v1/ping", timeout=limit) as answer:
                if answer.status == 200:
                    return web.json_response("pong")
        except (aiohttp.ClientError, TimeoutError) as error:
            logger.warning("the server does not answer /v1/ping: %s", error or type(error).__name__)
        return web.json_response({"detail": "the server does not answer"}, status=503)

    async def _slots(self, _: web.Request) -> web.Response:
        return web.json_response({"slots": self._settings.slots, "free": self.free})

    async def _handle_request(self, request: web.Request) -> web.StreamResponse:
        if request.path not in PASSED:
            return web.json_response({"detail": "Not Found"}, status=404)
        if request.path not in RUNNING:
            return await self._pass_on(request)
        if self._draining:
            return self._count_answer("draining", web.json_response({"detail": "draining"}, status=503))
        if self.free <= 0:
            body = {"detail": "every slot is taken", "free": 0, "retry_after_ms": RETRY_MS}
            return self._count_answer("busy", web.json_response(body, status=429, headers={"Retry-After": "1"}))
        self._busy += 1
        label = "lost"
        try:
            response = await self._pass_on(request)
            label = "lost" if response.status in LOST else "done"
            return response
        finally:
            self._busy -= 1
            self._requests.labels(label).inc()

    def _count_answer(self, label: str, response: web.StreamResponse) -> web.StreamResponse:
        self._requests.labels(label).inc()
        return response

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        """Stream the request to the server and its reply back, without our token, which programs could read there."""
        limit = aiohttp.ClientTimeout(total=self._settings.upstream_seconds)
        headers = {"Content-Type": request.headers.get("Content-Type", "application/json")}
        body = request.content.iter_chunked(_CHUNK) if request.can_read_body else None
        url = f"{self._settings.upstream}{request.path}"
        response: web.StreamResponse | None = None
        try:
            async with self._open().request(request.method, url, data=body, headers=headers, timeout=limit) as answer:
                response = web.StreamResponse(status=answer.status)
                response.content_type = answer.content_type
                response.content_length = answer.content_length
                await response.prepare(request)
                async for chunk in answer.content.iter_chunked(_CHUNK):
                    await response.write(chunk)
                await response.write_eof()
                return response
        except TimeoutError:
            logger.error("the server took longer than %.0f s", self._settings.upstream_seconds)
            if response is not None:
                raise
            return web.json_response({"detail": "the server does not answer"}, status=504)
        except aiohttp.ClientError as error:
            if response is None:
                logger.warning("the server cannot be reached: %s", error)
                detail = f"the server cannot be reached: {type(error).__name__}"
                return web.json_response({"detail": detail}, status=502)
            # Our own client disconnected.
            if isinstance(error, aiohttp.ClientConnectionResetError):
                return response
            # Half of the reply is sent: only breaking the connection tells the client.
            raise

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the proxy is not running")
        return self._session
