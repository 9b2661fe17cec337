"""A kept server answers requests that name the weights it has, and no others."""

from collections.abc import MutableMapping
from typing import Any

import pytest

from evalrun_generator.weights.weights_guard import HEADER, Receive, Send, ServedWeights, WeightsGuard

Message = MutableMapping[str, Any]


async def answer_all(scope: Message, receive: Receive, send: Send) -> None:
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": []})


async def nothing() -> Message:
    return {}


async def status_of(served: str, path: str, named: str | None, kind: str = "http") -> int:
    weights, sent = ServedWeights(), list[Message]()
    weights.version = served

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [] if named is None else [(HEADER.encode(), named.encode())]
    scope = {"type": kind, "path": path, "headers": headers}
    await WeightsGuard(answer_all, weights)(scope, nothing, send)
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    ("served", "path", "named", "status"),
    [
        ("one", "/v1/completions", "one", 200),
        ("one", "/v1/chat/completions", "one", 200),
        ("one", "/v1/completions", "two", 503),
        ("one", "/v1/completions", None, 503),
        ("one", "/v1/completions", "", 503),
        ("", "/v1/completions", "", 503),
        ("", "/v1/completions", "one", 503),
        ("", "/v1/models", None, 200),
        ("", "/health", None, 200),
        ("", "/metrics", None, 200),
    ],
)
async def test_request_is_accepted_only_if_its_named_weights_are_served(
    served: str, path: str, named: str | None, status: int
) -> None:
    assert await status_of(served, path, named) == status


async def test_scope_that_is_no_request_is_passed_on() -> None:
    assert await status_of("", "/v1/x", None, kind="lifespan") == 200
