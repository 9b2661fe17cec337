"""The HTTP API of live sessions: JSON in, JSON out."""

from typing import Literal

import msgspec
from aiohttp import web

from evalrun_executor.contained.frames import STOPPED_OUTPUT, STOPPED_TIME
from evalrun_executor.errors import Busy, SandboxError
from evalrun_runtime.deadlines import DeadlineError, read_deadline, until
from evalrun_sandbox.sessions.interpreter import Outcome
from evalrun_sandbox.sessions.sessions import Conflict, Execution, Sessions, StateLost

OFF = "live sessions are off on this sandbox: start it with --max-sessions"
MAX_CODE_BYTES = 1 << 20
_MAX_SECONDS, _MAX_OUTPUT_KIB = 3600.0, 1024


class ExecuteRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of POST /v1/sessions/{session}/executions."""

    code: str
    execution: int | None = None
    """1 for the first execution, and so on: a repeated number is not executed again. None: the next, without retries.
    """
    time_seconds: float = 10.0
    """CPU seconds, after which the code gets a KeyboardInterrupt. The wall limit is twice that plus 5 s."""
    output_kib: int = 64
    """Maximum KiB of stdout and of stderr, each; the code is interrupted beyond it."""


class RaisedError(msgspec.Struct, frozen=True):
    """Exception that the code raised."""

    name: str
    value: str
    traceback: str


class ExecuteReply(msgspec.Struct, frozen=True):
    """Result of an execution."""

    execution: int
    status: Literal["ok", "error", "timeout", "output_limit", "ended"]
    """`ended`: the code ended its interpreter, or passed a limit that ends it; see `reason`."""
    stdout: str
    stderr: str
    stdout_bytes: int
    """Number of printed bytes."""
    stderr_bytes: int
    result: str
    """Value of the last expression; empty without a value."""
    error: RaisedError | None
    cpu_seconds: float
    wall_seconds: float
    state: Literal["kept", "lost"]
    reason: str = ""
    """Reason why the state is lost."""


def make_reply(number: int, outcome: Outcome) -> ExecuteReply:
    """Return the reply to an execution."""
    raised = outcome.error
    status: Literal["ok", "error", "timeout", "output_limit", "ended"] = "ok" if raised is None else "error"
    if outcome.stopped == STOPPED_TIME:
        status = "timeout"
    elif outcome.stopped == STOPPED_OUTPUT:
        status = "output_limit"
    elif outcome.lost:
        status = "ended"
    return ExecuteReply(
        execution=number,
        status=status,
        stdout=outcome.stdout.decode(errors="replace"),
        stderr=outcome.stderr.decode(errors="replace"),
        stdout_bytes=outcome.stdout_bytes,
        stderr_bytes=outcome.stderr_bytes,
        result=outcome.result,
        error=None if raised is None else RaisedError(raised.name, raised.value, raised.traceback),
        cpu_seconds=outcome.cpu_seconds,
        wall_seconds=outcome.wall_seconds,
        state="lost" if outcome.lost else "kept",
        reason=outcome.lost,
    )


def complaint(request: ExecuteRequest) -> str | None:
    """Return the error of a request, or None if it is valid."""
    if len(request.code.encode(errors="replace")) > MAX_CODE_BYTES:
        return f"code: at most {MAX_CODE_BYTES} bytes"
    if not 0 < request.time_seconds <= _MAX_SECONDS:
        return f"time_seconds: above 0, at most {_MAX_SECONDS:g}"
    if not 1 <= request.output_kib <= _MAX_OUTPUT_KIB:
        return f"output_kib: 1 to {_MAX_OUTPUT_KIB}"
    return None


class SessionRoutes:
    """Routes that create, execute and close. Without live sessions each replies 404 and explains how to enable them."""

    def __init__(self, sessions: Sessions | None) -> None:
        self._sessions = sessions
        self._decoder = msgspec.json.Decoder(ExecuteRequest)

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Register the routes."""
        router.add_post("/v1/sessions", self._create)
        router.add_post("/v1/sessions/{session}/executions", self._execute)
        router.add_delete("/v1/sessions/{session}", self._end)

    async def _create(self, request: web.Request) -> web.Response:
        if self._sessions is None:
            return _answer(404, {"message": OFF})
        try:
            async with until(read_deadline(request.headers)):
                session = await self._sessions.create()
        except Busy as busy:
            return _busy(busy, f"{self._sessions.limits.max_sessions} sessions are open: close one, or come back")
        except DeadlineError as error:
            return _answer(504, {"message": str(error)})
        except SandboxError as error:
            return _answer(503, {"message": str(error)})
        limits = self._sessions.limits
        idle = limits.budget.idle_seconds
        return _answer(201, {"session": session, "idle_seconds": idle, "memory_mib": limits.memory_mib})

    async def _execute(self, request: web.Request) -> web.Response:
        if self._sessions is None:
            return _answer(404, {"message": OFF})
        session = request.match_info["session"]
        try:
            wanted = self._decoder.decode(await request.read())
        except (msgspec.DecodeError, RecursionError) as error:
            return _answer(400, {"message": f"body: {error}"})
        if (wrong := complaint(wanted)) is not None:
            return _answer(400, {"message": wrong})
        execution = Execution(wanted.code, wanted.time_seconds, wanted.output_kib * 1024)
        try:
            async with until(read_deadline(request.headers)):
                number, outcome = await self._sessions.execute(session, execution, wanted.execution)
        except StateLost as lost:
            return _answer(404, {"state": "lost", "message": f"the session's state is lost: {lost}"})
        except Conflict as conflict:
            return _answer(409, {"message": str(conflict)})
        except Busy as busy:
            return _busy(busy, str(busy))
        except DeadlineError as error:
            return _answer(504, {"message": str(error)})
        return _answer(200, make_reply(number, outcome))

    async def _end(self, request: web.Request) -> web.Response:
        if self._sessions is None:
            return _answer(404, {"message": OFF})
        self._sessions.end(request.match_info["session"])
        return web.Response(status=204)


def _busy(busy: Busy, message: str) -> web.Response:
    response = _answer(429, {"message": message, "retry_after_ms": busy.retry_after_ms})
    response.headers["Retry-After"] = str(max(1, busy.retry_after_ms // 1000))
    return response


def _answer(status: int, body: dict[str, object] | msgspec.Struct) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")
