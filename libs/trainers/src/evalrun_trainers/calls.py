"""Single calls to a service, asked again until they have an answer; from threads of their own, so that a loop goes on.

NotJudgedError
 +- StateLostError   the service knows no such session (any more); no reward follows from it
RefusedError
 +- SessionOverError   the session takes no more: its turns are used up, or it is closed
"""

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from evalrun_trainers.client import Connections, NotJudgedError, RefusedError, Retries
from evalrun_trainers.options import Options

THREADS = 64
"""Maximum number of calls of one process at once; a call waits in its thread."""
_OVER = (409, 413)


class StateLostError(NotJudgedError):
    """The service knows no such session."""


class SessionOverError(RefusedError):
    """The session takes no more."""


class RewardCalls:
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
        self._chance = chance or random.Random()  # noqa: S311 - jitter
        self._retries = Retries(options, clock, sleep, self._chance)
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
        status, answer, why = self._retries.answer(connections, path, body, deadline)
        if status == 200:
            return answer
        if status == 404:
            raise StateLostError(why)
        if status in _OVER:
            raise SessionOverError(why)
        raise RefusedError(why)
