"""Client of the HTTP API of live Python interpreters, one per session, in remote sandboxes.

An interpreter lives in one process of one sandbox and may end at any time. Its state is then lost, and the session
tells the model so. An interpreter never decides about a reward: the code inside could forge the replies.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import aiohttp
import msgspec

from evalrun_runtime.connections.bearer_tokens import BearerTokens, authorization
from evalrun_runtime.connections.tls_files import TlsSource
from evalrun_runtime.connections.tls_remedies import UNKNOWN_CALLER, add_remedy
from evalrun_runtime.deadlines import HEADER, seconds_left

TRIES: Final = 3
RETRY_SECONDS: Final = 0.5
CALL_SECONDS: Final = 120.0
"""Maximum seconds per call: an execution has 10 s of CPU time, 25 s of wall time, and waits up to 60 s for a slot."""


class Interpreter(msgspec.Struct, frozen=True):
    """An interpreter, as stored with its session."""

    url: str
    """URL of the sandbox."""
    session: str
    """Id of the interpreter's session in that sandbox."""
    executions: int = 0
    """Executions so far. Each has a number, so that a repeated request executes nothing twice."""


class InterpreterLostError(Exception):
    """The interpreter has ended and its state is lost. The message says why."""


class NoInterpreterError(Exception):
    """No sandbox provides an interpreter, now or with this configuration. Nothing was executed.

    Args:
        reason: why, and what to do.
    """


class _RaisedError(msgspec.Struct, frozen=True):
    traceback: str


class Execution(msgspec.Struct, frozen=True):
    """The output of an execution, and whether its interpreter is still alive."""

    status: Literal["ok", "error", "timeout", "output_limit", "ended"]
    stdout: str = ""
    stderr: str = ""
    result: str = ""
    error: _RaisedError | None = None
    state: Literal["kept", "lost"] = "kept"
    reason: str = ""


class _Opened(msgspec.Struct, frozen=True):
    session: str


class _Refusal(msgspec.Struct, frozen=True):
    message: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class _Silence:
    cause: str


class LiveInterpreters:
    """Opens, uses and closes interpreters.

    Args:
        urls: URLs of sandboxes with live sessions. An interpreter stays with the sandbox that opened it.
        tokens: bearer tokens of the sandboxes; None: the sandboxes require no token.
        tls: client certificate and authorities for https; None: the system's authorities and no certificate.
        server_name: name that the sandboxes' certificates must have; None: the host of each URL.
        sleep: waits between two tries.
    """

    def __init__(
        self,
        urls: Sequence[str],
        tokens: BearerTokens | None,
        tls: TlsSource | None = None,
        server_name: str | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._urls = tuple(url.rstrip("/") for url in urls)
        self._tokens = tokens
        self._tls = tls
        self._server_name = server_name
        self._sleep = sleep
        self._next = itertools.count()
        self._http: aiohttp.ClientSession | None = None

    async def open(self) -> Interpreter:
        """Open an interpreter in the next sandbox that has room. Raises NoInterpreterError."""
        first, reasons = next(self._next), list[str]()
        for offset in range(len(self._urls)):
            url = self._urls[(first + offset) % len(self._urls)]
            answer = await self._send("POST", f"{url}/v1/sessions", None)
            if isinstance(answer, _Silence):
                reasons.append(f"{url} does not answer: {answer.cause}")
            elif answer.status == 201:
                return Interpreter(url, msgspec.json.decode(answer.body, type=_Opened).session)
            else:
                reasons.append(f"{url}: {_refusal(answer).message or f'status {answer.status}'}")
        raise NoInterpreterError("; ".join(reasons))

    async def execute(self, interpreter: Interpreter, code: str) -> Execution:
        """Execute code once per number, even if the call is repeated.

        Raises:
            InterpreterLostError: the interpreter has ended, or its sandbox does not answer.
            NoInterpreterError: the sandbox has no slot, or refuses the code.
        """
        if interpreter.url not in self._urls:
            raise InterpreterLostError(f"{interpreter.url} is no longer one of the sandboxes")
        path = f"{interpreter.url}/v1/sessions/{interpreter.session}/executions"
        body = msgspec.json.encode({"code": code, "execution": interpreter.executions + 1})
        answer = await self._send("POST", path, body)
        if isinstance(answer, _Silence):
            raise InterpreterLostError("its sandbox does not answer")
        if answer.status == 200:
            return msgspec.json.decode(answer.body, type=Execution)
        refusal = _refusal(answer)
        if answer.status == 404 and refusal.state == "lost":
            raise InterpreterLostError(refusal.message)
        if answer.status == 409:
            raise InterpreterLostError("it executed something that the session does not know of")
        raise NoInterpreterError(f"{interpreter.url}: {refusal.message or f'status {answer.status}'}")

    async def end(self, interpreter: Interpreter) -> None:
        """End an interpreter. An unreachable interpreter ends by itself after its idle time."""
        if interpreter.url in self._urls:
            await self._send("DELETE", f"{interpreter.url}/v1/sessions/{interpreter.session}", None, tries=1)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def _send(self, method: str, url: str, body: bytes | None, tries: int = TRIES) -> _Answer | _Silence:
        """Return the answer, or why the sandbox did not answer in the last of the tries."""
        if self._http is None:
            self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL_SECONDS))
        silence = _Silence("")
        for number in range(tries):
            if number:
                await self._sleep(RETRY_SECONDS)
            headers = authorization(self._tokens)
            left = seconds_left()
            if left is not None:
                headers[HEADER] = str(max(1, int(left * 1000)))
            # A renewed certificate has another context, and connections that the old one opened are not used for it.
            context = True if self._tls is None else self._tls.current.client_context
            try:
                async with self._http.request(
                    method, url, data=body, headers=headers, ssl=context, server_hostname=self._server_name
                ) as answer:
                    return _Answer(answer.status, await answer.read())
            except (aiohttp.ClientError, TimeoutError) as error:
                silence = _Silence(_describe(error, url))
        return silence


def _describe(error: Exception, url: str) -> str:
    """Return why a sandbox did not answer and, where TLS may be the cause, what to do."""
    cause = str(error) or type(error).__name__
    if not url.startswith("https://"):
        return cause
    # A client that is refused may see the connection's end before the alert that tells why.
    was_open = isinstance(error, aiohttp.ClientConnectionError) and not isinstance(error, aiohttp.ClientConnectorError)
    return f"{cause} ({UNKNOWN_CALLER})" if was_open else add_remedy(cause)


def _refusal(answer: _Answer) -> _Refusal:
    """Return the error in a sandbox's reply; empty if the reply is not from our sandbox."""
    try:
        return msgspec.json.decode(answer.body, type=_Refusal)
    except msgspec.DecodeError:
        return _Refusal()


def describe_execution(done: Execution) -> str:
    """Return the text about an execution for the model."""
    parts = [f"{name}:\n{text.rstrip()}" for name, text in (("stdout", done.stdout), ("stderr", done.stderr)) if text]
    if done.result:
        parts.append(f"result:\n{done.result}")
    if done.error is not None:
        parts.append(done.error.traceback.rstrip())
    if done.status == "timeout":
        parts.append("[stopped: time limit exceeded]")
    if done.status == "output_limit":
        parts.append("[stopped: it printed too much]")
    if done.state == "lost":
        parts.append(describe_loss(done.reason))
    return "\n".join(parts) if parts else "[it printed nothing]"


def describe_loss(reason: str) -> str:
    """Return the text for the model when its interpreter is lost."""
    return f"[the interpreter ended ({reason}): variables and imports of earlier actions are gone]"
