"""The HTTP server: passes requests to the executor and returns its replies."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import get_args

import msgspec
from aiohttp import web
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, generate_latest

from evalrun_executor.api import (
    CONTENT_TYPE,
    LEVELS,
    VERSION_REFUSED,
    WIRE_VERSION,
    Busy,
    End,
    Refused,
    RunRequest,
    SandboxInfo,
    list_spoken_versions,
)
from evalrun_executor.errors import Busy as BusyError
from evalrun_executor.errors import RequestRefused, SandboxError, Unusable
from evalrun_executor.executor import Executor
from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.connections.http_site import HttpServer
from evalrun_runtime.deadlines import DeadlineError, read_deadline, until
from evalrun_runtime.distribution import read_own_version
from evalrun_runtime.tracing import HEADER, span
from evalrun_sandbox.fusion.bodies import answer_as_fastapi
from evalrun_sandbox.fusion.credentials import convert_to_bearer
from evalrun_sandbox.fusion.dataset_rows import RowDirectory
from evalrun_sandbox.fusion.dispatch import Dispatcher
from evalrun_sandbox.fusion.routes import FusionRoutes
from evalrun_sandbox.kept_inputs import KeptInputs, UnknownInputs
from evalrun_sandbox.sessions.routes import SessionRoutes
from evalrun_sandbox.sessions.sessions import Sessions
from evalrun_sandbox.sessions.start import start_sessions
from evalrun_sandbox.settings import SandboxSettings

logger = logging.getLogger(__name__)

WIRE_MODES = ("stdio", "calls")
"""Modes accepted over HTTP. Other harnesses are only for callers with the executor in their own process."""
PING_PATH = "/v1/ping"
HEALTH_PATH = "/health"
_OPEN_PATHS = (PING_PATH, HEALTH_PATH)
_CLEANUP_SECONDS = 10.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class SandboxService:
    """Serves the batch API over HTTP/1.1. A client that disconnects frees its slot."""

    def __init__(
        self,
        settings: SandboxSettings,
        executor: Executor,
        registry: CollectorRegistry = REGISTRY,
        *,
        wire_version: int = WIRE_VERSION,
    ) -> None:
        self._versions = list_spoken_versions(wire_version)
        self._settings = settings
        self._tokens = BearerTokens.load(settings.token, settings.token_file)
        self._executor = executor
        self._decoder = msgspec.msgpack.Decoder(RunRequest)
        self._encoder = msgspec.msgpack.Encoder()
        self._kept = KeptInputs(settings.keep_mib * 1024 * 1024)
        self._registry = registry
        rows = RowDirectory.open(settings.fusion_datasets) if settings.fusion_datasets is not None else None
        self._fusion = FusionRoutes(Dispatcher(executor), rows, os.environ.get("MY_POD_NAME"))
        slots = Gauge("evalrun_sandbox_slots", "Slots, by state.", ["state"], registry=registry)
        slots.labels("free").set_function(lambda: executor.free)
        slots.labels("busy").set_function(lambda: executor.slots - executor.free)
        level = Gauge("evalrun_sandbox_containment_level", "0 none, 1 limits, 2 seccomp, 3 full.", registry=registry)
        level.set_function(lambda: LEVELS.index(executor.report.level))
        self._requests = Counter("evalrun_sandbox_requests", "Run requests, by answer.", ["answer"], registry=registry)
        self._runs = Counter("evalrun_sandbox_runs", "Programs' runs, by how they ended.", ["end"], registry=registry)
        for answer in ("done", "unknown_inputs", "refused", "busy", "lost", "expired", "other_version"):
            self._requests.labels(answer)
        for end in get_args(End):
            self._runs.labels(end)
        self._server: HttpServer | None = None
        self._sessions: Sessions | None = None

    async def start(self) -> str:
        """Start the executor, listen, return the address. Raises Unusable, or OSError if the port is taken."""
        await self._executor.start()
        try:
            if self._settings.max_sessions > 0:
                self._sessions = start_sessions(self._executor, self._settings.session_limits(), self._registry)
            return await self._listen()
        except (OSError, Unusable):
            await self._close()
            raise

    async def _close(self) -> None:
        if self._sessions is not None:
            await self._sessions.close()
        await self._executor.close()

    async def _listen(self) -> str:
        self._server = HttpServer(self.application(), self._settings, (PING_PATH, self._ping))
        return await self._server.start()

    async def stop(self, grace: float) -> None:
        """Refuse new connections, wait up to `grace` seconds for requests in flight, stop the executor."""
        if self._server is not None:
            async with asyncio.timeout(grace + _CLEANUP_SECONDS):
                await self._server.stop()
        await self._close()

    def application(self) -> web.Application:
        without_last_slash = web.normalize_path_middleware(
            append_slash=False, remove_slash=True, merge_slashes=False, redirect_class=web.HTTPTemporaryRedirect
        )
        application = web.Application(
            client_max_size=self._settings.max_request_mib * 1024 * 1024,
            middlewares=[answer_as_fastapi, self._check_token, without_last_slash],
        )
        application.router.add_get(PING_PATH, self._ping)
        application.router.add_get(HEALTH_PATH, self._health)
        application.router.add_get("/v1/info", self._info)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_post(r"/v{version:\d{1,9}}/run", self._run)
        SessionRoutes(self._sessions).add_routes(application.router)
        self._fusion.add_routes(application.router, self._sessions)
        return application

    @web.middleware
    async def _check_token(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        tokens = self._tokens
        if tokens is None or request.path in _OPEN_PATHS:
            return await handler(request)
        if tokens.accept(convert_to_bearer(request.headers.get("Authorization", ""))):
            return await handler(request)
        return web.json_response({"message": "send the sandbox's token as 'Authorization: Bearer ...'"}, status=401)

    async def _ping(self, _: web.Request) -> web.Response:
        return web.json_response("pong")

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), content_type="text/plain", charset="utf-8")

    async def _info(self, _: web.Request) -> web.Response:
        report = self._executor.report
        info = SandboxInfo(
            version=read_own_version(), level=report.level, slots=self._executor.slots,
            languages=self._executor.languages, python_version=report.python_version, missing=list(report.missing),
            keep_mib=self._settings.keep_mib, calls_version=self._versions[0],
            wire_versions=self._versions,
        )  # fmt: skip
        return web.Response(body=msgspec.json.encode(info), content_type="application/json")

    async def _run(self, request: web.Request) -> web.Response:
        if int(request.match_info["version"]) not in self._versions:
            spoken = " and ".join(map(str, self._versions))
            return self._answer(VERSION_REFUSED, "other_version", Refused(f"wire versions spoken here: {spoken}"))
        try:
            wanted = self._kept.whole(self._decoder.decode(await request.read()))
            if wanted.mode not in WIRE_MODES:
                raise RequestRefused(f"mode {wanted.mode!r} is not one of {list(WIRE_MODES)}")
            with span("run", request.headers.get(HEADER, "")):
                async with until(read_deadline(request.headers)):
                    reply = await self._executor.run(wanted)
        except (msgspec.DecodeError, RecursionError) as error:
            return self._answer(400, "refused", Refused(f"body: {error}"))
        except RequestRefused as error:
            return self._answer(400, "refused", Refused(str(error)))
        except UnknownInputs as error:
            return self._answer(404, "unknown_inputs", Refused(str(error)))
        except BusyError as error:
            return self._answer(429, "busy", Busy(error.free, error.retry_after_ms))
        except DeadlineError as error:
            return self._answer(504, "expired", Refused(str(error)))
        # The sandbox failed, not the program: the caller may retry.
        except SandboxError as error:
            logger.warning("a run was lost: %s", error)
            return self._answer(503, "lost", Refused(str(error)))
        for run in reply.runs:
            self._runs.labels(run.end).inc()
        return self._answer(200, "done", reply)

    def _answer(self, status: int, label: str, body: msgspec.Struct) -> web.Response:
        self._requests.labels(label).inc()
        return web.Response(status=status, body=self._encoder.encode(body), content_type=CONTENT_TYPE)
