"""An endpoint over HTTP: lists its models and sends requests.

`Endpoint` is the interface of every source of completions: a given URL, a launched replica, or a fake.
"""

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, Protocol

import aiohttp

from evalrun_generator.endpoints.openai_api import (
    MODELS_PATH,
    PROPS_PATH,
    VERSION_PATH,
    CompletionAnswer,
    MalformedAnswerError,
    ModelRequest,
    chat_template,
    model_ids,
    read_answer,
    server_version,
)
from evalrun_generator.endpoints.retry import (
    Blame,
    RequestFailure,
    RetryAction,
    classify_broken_off,
    from_status,
    unreachable,
)
from evalrun_generator.template_facts import template_facts

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
KEEPALIVE_SECONDS = 3.0
"""Shorter than the 5 s of uvicorn, which vLLM uses: a socket reused after 6 s idle is already closed at the other end,
and its request is lost."""

NO_SUCH_PATH = frozenset({404, 405, 501})
"""Statuses of a server that lacks a path."""

CONNECT_SECONDS = 10.0
PROBE_SECONDS = 10.0
VERSION_SECONDS = 2.0
"""Few servers report their version, so a start does not wait long for it."""

MAX_ANSWER_MIB = 64
"""A completion of a million tokens is about 10 MiB. Without a bound, a server that never stops sending, or a small body
that unpacks to gigabytes, would take all memory."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A reply and its latency."""

    answer: CompletionAnswer
    seconds: float
    """Seconds from sending the request to the last byte of the reply."""
    started_at: float
    """Unix seconds."""


class Endpoint(Protocol):
    """A server of the OpenAI API."""

    @property
    def name(self) -> str:
        """Name of the endpoint in results and messages."""
        ...

    async def models(self) -> list[str] | RequestFailure:
        """Return the ids of the models that the endpoint serves."""
        ...

    async def facts(self) -> dict[str, str]:
        """Return the server's facts about its engine, by the names of `ledger.Replica.engine`."""
        ...

    async def ask(self, request: ModelRequest, deadline: float) -> Timed | RequestFailure:
        """Send one request with a timeout of `deadline` seconds. Raises only on cancellation."""
        ...


def open_session(api_key: str | None, headers: Mapping[str, str] = NO_HEADERS) -> aiohttp.ClientSession:
    """Open the process's only HTTP session. It has no connection limit: the balancer limits requests in flight.

    Args:
        api_key: API key of the servers; None: the servers need no key.
        headers: further headers of every request.
    """
    key = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        headers={**key, **headers},
        cookie_jar=aiohttp.DummyCookieJar(),
    )


class HttpEndpoint:
    """An OpenAI-compatible server at a base URL."""

    def __init__(self, session: aiohttp.ClientSession, url: str, model: str) -> None:
        self._session = session
        self._url = url
        self._model = model

    @property
    def name(self) -> str:
        """The base URL."""
        return self._url

    async def models(self) -> list[str] | RequestFailure:
        """Ask /v1/models."""
        answer = await self._send("GET", MODELS_PATH, None, PROBE_SECONDS)
        if isinstance(answer, RequestFailure):
            return answer
        try:
            return model_ids(answer)
        except MalformedAnswerError as error:
            return RequestFailure(RetryAction.RETRY, Blame.SUSPECT, counted=True, reason=f"{MODELS_PATH}: {error}")

    async def facts(self) -> dict[str, str]:
        """Ask /version (vLLM) and /props (llama.cpp), beside /v1; most servers have neither."""
        paths = (VERSION_PATH, PROPS_PATH)
        asked = await asyncio.gather(*(self._send("GET", path, None, VERSION_SECONDS) for path in paths))
        version, props = (b"" if isinstance(answer, RequestFailure) else answer for answer in asked)
        found = {"engine_version": server_version(version), **template_facts(chat_template(props))}
        return {name: value for name, value in found.items() if value}

    async def ask(self, request: ModelRequest, deadline: float) -> Timed | RequestFailure:
        started_at = time.time()
        started = time.perf_counter()
        body = await self._send("POST", request.path, request.body, deadline)
        seconds = time.perf_counter() - started
        if isinstance(body, RequestFailure):
            return body
        try:
            return Timed(read_answer(body, self._model), seconds, started_at)
        except MalformedAnswerError as error:
            return classify_broken_off(f"malformed answer: {error}")

    async def _send(self, method: str, path: str, body: bytes | None, deadline: float) -> bytes | RequestFailure:
        """Return the body of a 200, or the failure."""
        headers: Mapping[str, str] = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with (
                asyncio.timeout(deadline),
                # A redirected POST would arrive as a GET, so a redirect is reported as a failure.
                self._session.request(
                    method, self._url + path, data=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                content = await _content(response)
                if response.status == 200:
                    return content
                failure = from_status(response.status, response.headers, content, datetime.now(UTC))
                if response.status in NO_SUCH_PATH:
                    return replace(failure, reason=f"{failure.reason} (asked for {path})")
                return failure
        # Failures to connect are handled first, because aiohttp's connect timeout is a TimeoutError, too.
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return unreachable(_cause(error))
        except TimeoutError:
            return replace(classify_broken_off(f"no answer within {deadline:g} s"), timed_out=True)
        except aiohttp.InvalidURL as error:
            return RequestFailure(RetryAction.ABORT, Blame.DOWN, counted=True, reason=f"not a usable URL: {error}")
        except (aiohttp.ClientError, OSError) as error:
            return classify_broken_off(_cause(error))
        except _AnswerTooLargeError:
            return classify_broken_off(f"the answer is larger than {MAX_ANSWER_MIB} MiB")


class _AnswerTooLargeError(Exception):
    """The body exceeds MAX_ANSWER_MIB."""


async def _content(response: aiohttp.ClientResponse) -> bytes:
    """Return the body of a response. Raises _AnswerTooLargeError."""
    content = bytearray()
    async for piece in response.content.iter_any():
        content += piece
        if len(content) > MAX_ANSWER_MIB << 20:
            raise _AnswerTooLargeError
    return bytes(content)


def _cause(error: BaseException) -> str:
    """Return why a connection failed, without the URL, which the caller adds."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"certificate: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        # asyncio's own text is "Connect call failed ('127.0.0.1', 9)"; the errno says why.
        number = error.os_error.errno
        return os.strerror(number) if number and number > 0 else error.os_error.strerror or str(error.os_error)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return f"no connection within {CONNECT_SECONDS:g} s"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
