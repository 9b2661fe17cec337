"""One endpoint over HTTP: list its models, send it one request.

`Endpoint` is the seam for whatever answers: a URL that was given, a replica that was launched, or a fake.
"""

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import aiohttp

from evalrun_generator.openai_api import (
    MODELS_PATH,
    Answer,
    MalformedAnswerError,
    ModelRequest,
    model_ids,
    read_answer,
)
from evalrun_generator.retry import Action, Blame, Failure, broken_off, from_status, unreachable
from evalrun_runtime.exits import BadInputError

KEEPALIVE_SECONDS = 3.0
"""Shorter than uvicorn's 5 s, which vLLM serves with: a socket reused after 6 s idle is already closed at the other
end, and the request on it is lost."""

CONNECT_SECONDS = 10.0
PROBE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Timed:
    """An answer, and how long it took."""

    answer: Answer
    seconds: float
    """From sending the request to its last byte."""
    started_at: float
    """Unix seconds."""


class Endpoint(Protocol):
    """Something that serves the OpenAI API."""

    @property
    def name(self) -> str:
        """What it is called in results and messages."""
        ...

    async def models(self) -> list[str] | Failure:
        """Give the ids of the models that it serves."""
        ...

    async def ask(self, request: ModelRequest, deadline: float) -> Timed | Failure:
        """Send one request; gives up after `deadline` seconds. Raises nothing but cancellation."""
        ...


def base_url(given: str) -> str:
    """Normalise what a user gives as an endpoint: `http(s)://host[:port][/path]`, with or without `/v1`.

    Raises:
        BadInputError: not such a URL, or one that carries a password, which would end up in every log and result.
    """
    url = given.strip().rstrip("/")
    url = url.removesuffix("/v1").rstrip("/")
    scheme, separator, rest = url.partition("://")
    host = rest.partition("/")[0]
    if "@" in host:
        raise BadInputError(
            "endpoint: take the user and password out of the URL; the key goes into EVALRUN_GENERATOR_API_KEY"
        )
    if scheme not in ("http", "https") or not separator or not host or any(character in url for character in " ?#"):
        raise BadInputError(f"endpoint {given!r} is not a URL: write http://HOST:PORT, with or without /v1")
    return url


def open_session(api_key: str | None) -> aiohttp.ClientSession:
    """Open the one HTTP session of the process; how many requests are in flight is the balancer's to bound."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        headers={} if api_key is None else {"Authorization": f"Bearer {api_key}"},
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

    async def models(self) -> list[str] | Failure:
        """Ask /v1/models."""
        answer = await self._send("GET", MODELS_PATH, None, PROBE_SECONDS)
        if isinstance(answer, Failure):
            return answer
        try:
            return model_ids(answer)
        except MalformedAnswerError as error:
            return Failure(Action.RETRY, Blame.SUSPECT, counted=True, reason=f"{MODELS_PATH}: {error}")

    async def ask(self, request: ModelRequest, deadline: float) -> Timed | Failure:
        """Send one request."""
        started_at = time.time()
        started = time.perf_counter()
        body = await self._send("POST", request.path, request.body, deadline)
        seconds = time.perf_counter() - started
        if isinstance(body, Failure):
            return body
        try:
            return Timed(read_answer(body, self._model), seconds, started_at)
        except MalformedAnswerError as error:
            return broken_off(f"malformed answer: {error}")

    async def _send(self, method: str, path: str, body: bytes | None, deadline: float) -> bytes | Failure:
        """Give the body of a 200, or why there is none."""
        headers: Mapping[str, str] = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with (
                asyncio.timeout(deadline),
                # A redirected POST would arrive as a GET: a redirect is reported instead.
                self._session.request(
                    method, self._url + path, data=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                content = await response.read()
                if response.status == 200:
                    return content
                return from_status(response.status, response.headers, content, datetime.now(UTC))
        # Connecting comes first in the tree: aiohttp's connect timeout is a TimeoutError, too.
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return unreachable(_cause(error))
        except TimeoutError:
            return broken_off(f"no answer within {deadline:g} s")
        except aiohttp.InvalidURL as error:
            return Failure(Action.ABORT, Blame.DOWN, counted=True, reason=f"not a usable URL: {error}")
        except (aiohttp.ClientError, OSError) as error:
            return broken_off(_cause(error))


def _cause(error: BaseException) -> str:
    """Say what went wrong with a connection, without the URL, which the caller names."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"certificate: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        # asyncio's own text is "Connect call failed ('127.0.0.1', 9)"; the errno says why.
        number = error.os_error.errno
        return os.strerror(number) if number and number > 0 else error.os_error.strerror or str(error.os_error)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return f"no connection within {CONNECT_SECONDS:g} s"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
