"""Deadlines: the time that a caller still waits, passed from process to process along with its work.

Between processes go the seconds that are left, never a time of day: clocks differ (gRPC does the same, with its
`grpc-timeout` header). Within a process the deadline follows the work into the tasks that the work starts, as a
trace does, so that intermediate code need not pass it along. Deadlines are on the event loop's clock.
"""

import asyncio
from collections.abc import Mapping
from contextvars import ContextVar, Token
from types import TracebackType

HEADER = "evalrun-timeout-ms"
MAX_SECONDS = 1e6
"""Longest deadline that is sent; a longer deadline is as good as none."""

MAX_DIGITS = 15
"""Maximum digits of the header; a longer number is no time that anybody waits."""

_deadline: ContextVar[float | None] = ContextVar("evalrun_deadline", default=None)


class DeadlineError(Exception):
    """The caller's deadline has passed, so its work was stopped."""


class until:  # noqa: N801 - reads as `asyncio.timeout_at` does
    """Cancel the block at a deadline. With None only an enclosing deadline applies.

    A class and no generator: every request passes here, and most have no deadline.

    Raises:
        DeadlineError: it has passed. Nothing inside goes on.
    """

    __slots__ = ("_deadline", "_scope", "_token")

    def __init__(self, deadline: float | None) -> None:
        """Take the deadline, by the running loop's clock."""
        self._deadline = deadline
        self._scope: asyncio.Timeout | None = None
        self._token: Token[float | None] | None = None

    async def __aenter__(self) -> None:
        if self._deadline is None:
            return
        around = _deadline.get()
        self._token = _deadline.set(self._deadline if around is None else min(self._deadline, around))
        self._scope = await asyncio.timeout_at(self._deadline).__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._scope is None or self._token is None:
            return
        _deadline.reset(self._token)
        try:
            await self._scope.__aexit__(kind, error, trace)
        except TimeoutError as passed:
            raise DeadlineError("the caller's deadline has passed") from passed


def seconds_left() -> float | None:
    """Return the seconds until the current deadline, 0 after it, or None without a deadline."""
    deadline = _deadline.get()
    return None if deadline is None else max(0.0, deadline - asyncio.get_running_loop().time())


def deadline_headers() -> dict[str, str]:
    """Return the HTTP header with the current deadline, or no header if there is none."""
    left = seconds_left()
    return {} if left is None else {HEADER: str(int(min(left, MAX_SECONDS) * 1000))}


def read_deadline(headers: Mapping[str, str]) -> float | None:
    """Read a call's deadline from its headers; None where there is no readable deadline."""
    given = headers.get(HEADER, "")
    fits = given.isascii() and given.isdigit() and len(given) <= MAX_DIGITS
    return asyncio.get_running_loop().time() + int(given) / 1000 if fits else None
