"""A scripted endpoint without a network, for tests of callers of endpoints."""

import json
from collections.abc import Awaitable, Callable, Sequence

from evalrun_generator.endpoints.endpoint import Timed
from evalrun_generator.endpoints.openai_api import CompletionAnswer, ModelRequest
from evalrun_generator.endpoints.retry import RequestFailure

Script = Callable[[int, dict[str, object]], "Timed | RequestFailure | Awaitable[Timed | RequestFailure]"]
"""Returns the result of a request from the number of earlier requests and the body."""


def answer(text: str = "answer", *, finish_reason: str = "stop", model: str = "model") -> Timed:
    """Return an answer with a latency of zero."""
    return Timed(CompletionAnswer(text, finish_reason, 3, 5, model), 0.0, 0.0)


class FakeEndpoint:
    """Lists `models` and answers requests by a script."""

    def __init__(
        self,
        name: str,
        script: Script | None = None,
        *,
        models: Sequence[str] | RequestFailure = ("model",),
        version: str = "",
    ) -> None:
        self._name = name
        self._version = version
        self._script = script
        self._models = models
        self.requests: list[dict[str, object]] = []
        self.in_flight = 0
        self.max_in_flight = 0

    @property
    def name(self) -> str:
        return self._name

    async def models(self) -> list[str] | RequestFailure:
        """Return the models, or the failure."""
        return self._models if isinstance(self._models, RequestFailure) else list(self._models)

    async def facts(self) -> dict[str, str]:
        """Return the given version."""
        return {"engine_version": self._version} if self._version else {}

    async def ask(self, request: ModelRequest, deadline: float) -> Timed | RequestFailure:
        """Return the script's result."""
        del deadline
        body = json.loads(request.body)
        self.requests.append(body)
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            outcome = answer() if self._script is None else self._script(len(self.requests) - 1, body)
            return outcome if isinstance(outcome, Timed | RequestFailure) else await outcome
        finally:
            self.in_flight -= 1
