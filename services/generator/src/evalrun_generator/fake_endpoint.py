"""An endpoint without a network, which does as it is told: for tests of whatever asks endpoints."""

import json
from collections.abc import Awaitable, Callable, Sequence

from evalrun_generator.endpoints import Timed
from evalrun_generator.openai_api import Answer, ModelRequest
from evalrun_generator.retry import Failure

Script = Callable[[int, dict[str, object]], "Timed | Failure | Awaitable[Timed | Failure]"]
"""(how many requests came before, the request's body) -> what becomes of it."""


def answer(text: str = "answer", *, finish_reason: str = "stop", model: str = "model") -> Timed:
    """Make an answer that took no time."""
    return Timed(Answer(text, finish_reason, 3, 5, model), 0.0, 0.0)


class FakeEndpoint:
    """Serves `models`, and answers requests by a script."""

    def __init__(
        self, name: str, script: Script | None = None, *, models: Sequence[str] | Failure = ("model",)
    ) -> None:
        self._name = name
        self._script = script
        self._models = models
        self.requests: list[dict[str, object]] = []
        self.in_flight = 0
        self.most_in_flight = 0

    @property
    def name(self) -> str:
        """As given."""
        return self._name

    async def models(self) -> list[str] | Failure:
        """Give the models, or the failure."""
        return self._models if isinstance(self._models, Failure) else list(self._models)

    async def ask(self, request: ModelRequest, deadline: float) -> Timed | Failure:
        """Follow the script."""
        del deadline
        body = json.loads(request.body)
        self.requests.append(body)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            outcome = answer() if self._script is None else self._script(len(self.requests) - 1, body)
            return outcome if isinstance(outcome, Timed | Failure) else await outcome
        finally:
            self.in_flight -= 1
