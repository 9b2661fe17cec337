"""Errors of requests, each with its HTTP status."""

import math

import msgspec
from aiohttp import web

from evalrun_reward.metrics import ReplyKind
from evalrun_reward.wire import Problem


class ErrorReply(Exception):  # noqa: N818 - an answer, on its way out
    """A request that gets no results."""

    def __init__(self, status: int, reply: ReplyKind, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reply = reply
        self.retry_after = retry_after


def json_response(body: object, status: int, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(body), content_type="application/json", headers=headers or {}
    )


def refusal(refused: ErrorReply) -> web.Response:
    """Return the answer of a refused request."""
    wait = refused.retry_after
    if wait is None:
        return json_response(Problem(str(refused)), refused.status)
    # HTTP knows whole seconds only.
    headers = {"Retry-After": str(max(1, math.ceil(wait)))}
    return json_response(Problem(str(refused), math.ceil(wait * 1000)), refused.status, headers)
