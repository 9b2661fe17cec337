"""Single calls to a service, asked again until they have an answer; from threads of their own, so that a loop goes on.

NotJudgedError
 +- StateLostError   the service knows no such session (any more); no reward follows from it
RefusedError
 +- SessionOverError   the session takes no more: its turns are used up, or it is closed
"""

import asyncio
import http.client
import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from evalrun_trainers.client import (
    AGAIN,
    FIRST_DELAY_SECONDS,
    LONGEST_DELAY_SECONDS,
    Connections,
    NotJudgedError,
    RefusedError,
)
from evalrun_trainers.options import Options

THREADS = 64
"""Calls of one process at once; a call waits in its thread."""
_OVER = (409, 413)


class StateLostError(NotJudgedError):
    """The service knows no such session."""


class SessionOverError(RefusedError):
    """The session takes no more."""


class Calls:
    """Thread-safe; every call may be repeated, so any failure but a refusal is asked again, at the next replica.

    Args:
        options: where to; `timeout_seconds` bounds a call, retries included.
        clock: seconds, monotonic.
        sleep: waits.
        chance: jitter of delays, and which replica comes first.
    """

    def __init__(
        self,
        options: Options,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        chance: random.Random | None = None,
    ) -> None:
        self.options = options
        self._clock = clock
        self._sleep = sleep
        self._chance = chance or random.Random()  # noqa: S311 - jitter
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="evalrun-call")
        self._own = threading.local()
        self._connections: list[Connections] = []

    async def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer.

        Raises:
            StateLostError: the session is gone.
            SessionOverError: it takes no more.
            NotJudgedError: no answer in time.
            RefusedError: the service refuses the caller or the request.
        """
        data = json.dumps(body).encode()
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._post, path, data)

    def close(self) -> None:
        """Wait for the calls that are under way, and close the connections."""
        self._threads.shutdown()
        for connections in self._connections:
            connections.close()

    def _post(self, path: str, body: bytes) -> Mapping[str, Any]:
        connections = getattr(self._own, "connections", None)
        if connections is None:
            connections = self._own.connections = Connections(self.options, self._chance)
            self._connections.append(connections)
        deadline = self._clock() + self.options.timeout_seconds
        tries, why = 0, "it was never reached"
        while (left := deadline - self._clock()) > 0:
            try:
                status, answer, wait = connections.post(path, body, left)
            except (OSError, http.client.HTTPException) as error:
                status, answer, wait = 0, {}, 0.0
                why = f"{connections.url}: {error or type(error).__name__}"
            if status == 200:
                found: Mapping[str, Any] = answer
                return found
            if status:
                why = f"{connections.url}: {status}: {answer.get('message') or answer.get('detail') or ''}"
            if status == 404:
                raise StateLostError(why)
            if status in _OVER:
                raise SessionOverError(why)
            if status and status not in AGAIN:
                raise RefusedError(why)
            if status != 429:
                connections.next()
            tries += 1
            delay = max(wait, min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(tries - 1, 20)))
            self._sleep(min(delay * self._chance.uniform(0.5, 1.0), max(0.0, deadline - self._clock())))
        raise NotJudgedError(f"no answer within {self.options.timeout_seconds:g} s: {why}")
