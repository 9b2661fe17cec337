"""Calls a SandboxFusion server over HTTP and interprets the kinds of replies. Decides no verdict.

Every kind of failure of a stock server gets its type: the server returns 200 for its own failures (`SandboxError`), 500
with a traceback for unexpected failures, and has no status for "busy"; a slot proxy in front of it has one (429).
"""

import io
from collections.abc import Mapping
from typing import Any, Literal

import aiohttp
import msgspec

from evalrun_executor.api import UNKNOWN_LANGUAGE
from evalrun_judge.sandboxes import (
    RunRefusedError,
    SandboxAbsentError,
    SandboxBusyError,
    SandboxFailedError,
    SandboxTimeoutError,
    SandboxUnreachableError,
)
from evalrun_registry.fusion_routes import server_url
from evalrun_runtime.connections.bearer_tokens import BearerTokens, authorization
from evalrun_runtime.connections.tls_files import TlsSource

CONNECT_SECONDS = 5.0

_SHOWN = 300
"""Maximum characters of a reply in an error message: no traceback."""


class Command(msgspec.Struct):
    """The result of a command."""

    status: Literal["Finished", "Error", "TimeLimitExceeded"]
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None


class CodeAnswer(msgspec.Struct):
    """Reply of `/run_code`."""

    status: Literal["Success", "Failed", "SandboxError"]
    message: str = ""
    cause: str = ""
    compile_result: Command | None = None
    run_result: Command | None = None
    files: dict[str, str] = {}


class _Busy(msgspec.Struct):
    free: int = 0
    retry_after_ms: int = 100


class FusionServer:
    """A SandboxFusion server, stock or not, with or without a slot proxy before it."""

    def __init__(
        self,
        url: str,
        tokens: BearerTokens | None = None,
        tls: TlsSource | None = None,
        server_name: str | None = None,
    ) -> None:
        self.address = server_url(url)
        self._headers = {"Content-Type": "application/json"}
        self._tokens = tokens
        self._tls = tls
        self._server_name = server_name
        self._session: aiohttp.ClientSession | None = None

    async def run_code(self, body: Mapping[str, Any], max_seconds: float) -> CodeAnswer:
        """Call `/run_code`.

        Args:
            body: body of the call.
            max_seconds: time after which the server counts as hung.

        Raises:
            SandboxError: nothing is known about the program.
            RunRefusedError: the call can never be served.
        """
        status, answer = await self.call("POST", "/run_code", max_seconds, msgspec.json.encode(body))
        self.check(status, answer)
        try:
            read = msgspec.json.decode(answer, type=CodeAnswer)
        except (msgspec.DecodeError, RecursionError) as error:
            raise SandboxFailedError(f"{self.address}: no answer of /run_code: {error}") from error
        for part in (read.compile_result, read.run_result):
            if part is not None and part.status == "Error":
                raise SandboxFailedError(f"{self.address}: {start_of(part.stderr or '')}")
        if read.status == "SandboxError":
            # Only an `evalrun-sandbox` reports the cause; without it, the call may succeed elsewhere or later.
            if read.cause == UNKNOWN_LANGUAGE:
                raise RunRefusedError(f"{self.address}: {start_of(read.message)}")
            raise SandboxFailedError(f"{self.address}: SandboxError: {start_of(read.message)}")
        return read

    async def check_there(self, max_seconds: float) -> None:
        """Raise SandboxError unless a SandboxFusion server answers `/v1/ping`, or `/health` behind some proxies.

        Raises:
            SandboxAbsentError: another kind of server replies.
            SandboxError: nothing replies, or the server reports a failure.
        """
        status, body = await self.call("GET", "/v1/ping", max_seconds)
        if status == 200 and body.strip() == b'"pong"':
            return
        if status >= 500:
            raise SandboxFailedError(f"{self.address}: status {status} of /v1/ping")
        healthy, _ = await self.call("GET", "/health", max_seconds)
        # Servers of models answer /health too, but have no /run_code: a GET is 405 where the route exists.
        served, _ = await self.call("GET", "/run_code", max_seconds) if healthy == 200 else (404, b"")
        if served == 404:
            raise SandboxAbsentError(f"{self.address}: no SandboxFusion answers /v1/ping (status {status}) or /health")

    def check(self, status: int, answer: bytes) -> None:
        """Raise the error of a status other than 200."""
        if status == 200:
            return
        text = start_of(error_detail(answer))
        if status == 429:
            try:
                busy = msgspec.json.decode(answer, type=_Busy)
            except (msgspec.DecodeError, RecursionError) as error:
                raise SandboxFailedError(f"{self.address}: status 429: {text}") from error
            raise SandboxBusyError(f"{self.address}: every slot is taken", busy.retry_after_ms / 1000, busy.free)
        if status in (400, 422):
            raise RunRefusedError(f"status {status}: {text}")
        raise SandboxFailedError(f"{self.address}: status {status}: {text}")

    async def call(self, method: str, path: str, max_seconds: float, body: bytes | None = None) -> tuple[int, bytes]:
        """Call the server. Return status and body. Raises SandboxUnreachableError or SandboxTimeoutError."""
        limits = aiohttp.ClientTimeout(total=max_seconds, sock_connect=CONNECT_SECONDS)
        # Large bytes would be written at once and block the loop.
        data = None if body is None else io.BytesIO(body)
        try:
            request = self._open().request(
                method,
                self.address + path,
                data=data,
                timeout=limits,
                headers=authorization(self._tokens),
                # aiohttp reuses a connection only for the same context, so a new certificate gets new connections.
                ssl=True if self._tls is None else self._tls.current.client_context,
                server_hostname=self._server_name,
            )
            async with request as response:
                return response.status, await response.read()
        except aiohttp.ConnectionTimeoutError as error:
            raise SandboxUnreachableError(f"{self.address}: no connection in {CONNECT_SECONDS:g} s") from error
        except TimeoutError as error:
            raise SandboxTimeoutError(f"{self.address}: no answer in {max_seconds:.1f} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise SandboxUnreachableError(f"{self.address}: {error or type(error).__name__}") from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers, connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session


def error_detail(answer: bytes) -> str:
    """Return an error's `detail` without the traceback."""
    try:
        said = msgspec.json.decode(answer)
    except (msgspec.DecodeError, RecursionError):
        return answer[:_SHOWN].decode("utf-8", "replace")
    return str(said["detail"]) if isinstance(said, dict) and "detail" in said else str(said)


def start_of(text: str) -> str:
    """Return the beginning of the text on one line, without a traceback."""
    return " ".join(text[:_SHOWN].split())
