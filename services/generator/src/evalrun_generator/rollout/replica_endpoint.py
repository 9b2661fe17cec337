"""An endpoint for a replica that can be cut off, so that its requests in flight are retried elsewhere at once."""

import asyncio
from dataclasses import replace
from typing import Any

from evalrun_generator.endpoints.endpoint import Endpoint, Timed
from evalrun_generator.endpoints.openai_api import ModelRequest
from evalrun_generator.endpoints.retry import Blame, RequestFailure, RetryAction


class ReplicaEndpoint:
    """Wraps the endpoint of a replica's start."""

    def __init__(self, endpoint: Endpoint, name: str, model: str | None = None, weights_version: str = "") -> None:
        """Create the endpoint.

        Args:
            endpoint: endpoint of the replica's server.
            name: name of the replica.
            model: model that is recorded with its completions; None: the model that the server reports.
            weights_version: version of the weights that is recorded with its completions; empty if unknown.
        """
        self._model = model
        self._weights_version = weights_version
        self._endpoint = endpoint
        self._name = name
        self._cut: asyncio.Future[RequestFailure] = asyncio.get_running_loop().create_future()
        self.answered = 0
        """Completions so far, as a measure of progress."""

    @property
    def name(self) -> str:
        """The replica's name, which is the same for each start on its slot."""
        return self._name

    async def models(self) -> list[str] | RequestFailure:
        """Return the ids of the models that the replica serves."""
        return await self._endpoint.models()

    async def facts(self) -> dict[str, str]:
        """Return the server's facts; its machine reports more, see `engine_facts`."""
        return await self._endpoint.facts()

    async def ask(self, request: ModelRequest, deadline: float) -> Timed | RequestFailure:
        """Send one request; fail early if the replica is cut off."""
        asking: asyncio.Future[Timed | RequestFailure] = asyncio.ensure_future(self._endpoint.ask(request, deadline))
        try:
            both: list[asyncio.Future[Any]] = [asking, self._cut]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
        if asking.cancelled():
            return self._cut.result()
        outcome = asking.result()
        if isinstance(outcome, Timed):
            self.answered += 1
            model = outcome.answer.model if self._model is None else self._model
            answer = replace(outcome.answer, model=model, weights_version=self._weights_version)
            return replace(outcome, answer=answer)
        # Processes that are being killed reset connections, which proves nothing about the prompt.
        return self._cut.result() if self._cut.done() else outcome

    def cut(self, reason: str) -> None:
        """Fail the requests in flight without counting an attempt: the replica failed, not the items."""
        if not self._cut.done():
            self._cut.set_result(
                RequestFailure(RetryAction.RETRY, Blame.NONE, counted=False, reason=f"the replica left: {reason}")
            )
