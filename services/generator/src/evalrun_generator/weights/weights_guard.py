"""Refuses requests that were meant for other weights than those that a kept server now has.

It is a middleware of vLLM's server, named on its command line. A driver that has lost its turn, and does not know it
yet, must not get completions of the next checkpoint: each request therefore names the weights that it is meant for.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

HEADER: Final = "x-evalrun-weights"
GUARDED: Final = "/v1/"
UNGUARDED: Final = frozenset({"/v1/models"})
REFUSED: Final = 503
"""Status of a server that cannot serve now: clients send the request again, elsewhere or later."""

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]


class ServedWeights:
    """Version of the weights that this process's only server has."""

    def __init__(self) -> None:
        self.version = ""
        """Empty: no weights are served, and every request is refused."""


SERVED: Final = ServedWeights()
"""vLLM creates the middleware itself, so the middleware finds its state in the module."""


class WeightsGuard:
    """An ASGI application around vLLM's."""

    def __init__(self, app: App, served: ServedWeights = SERVED) -> None:
        self._app = app
        self._served = served

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request on if it names the weights that are served."""
        path = str(scope.get("path", ""))
        guarded = scope["type"] == "http" and path.startswith(GUARDED) and path not in UNGUARDED
        named = dict(scope["headers"]).get(HEADER.encode(), b"").decode("latin-1") if guarded else ""
        if not guarded or (named and named == self._served.version):
            await self._app(scope, receive, send)
            return
        said = f"{HEADER}: {named or 'missing'}: this server answers with {self._served.version or 'no weights now'}"
        body = json.dumps({"error": {"message": said, "code": REFUSED}}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": REFUSED, "headers": headers})
        await send({"type": "http.response.body", "body": body})
