"""A replica as an endpoint that can be cut off: what it has in flight is asked elsewhere at once."""

import asyncio
from typing import Any

from evalrun_generator.endpoints import Endpoint, Timed
from evalrun_generator.openai_api import ModelRequest
from evalrun_generator.retry import Action, Blame, Failure


class ReplicaEndpoint:
    """Wraps the endpoint of one start of a replica."""

    def __init__(self, endpoint: Endpoint, name: str) -> None:
        self._endpoint = endpoint
        self._name = name
        self._cut: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()
        self.answered = 0
        """Completions so far: progress, whatever else it shows."""

    @property
    def name(self) -> str:
        """The replica's name, the same for each start on its slot."""
        return self._name

    async def models(self) -> list[str] | Failure:
        """Give the ids of the models that it serves."""
        return await self._endpoint.models()

    async def ask(self, request: ModelRequest, deadline: float) -> Timed | Failure:
        """Send one request; ends early when the replica is cut off."""
        asking: asyncio.Future[Timed | Failure] = asyncio.ensure_future(self._endpoint.ask(request, deadline))
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
            return outcome
        # Processes that are being killed reset connections: that says nothing about the prompt.
        return self._cut.result() if self._cut.done() else outcome

    def cut(self, reason: str) -> None:
        """End what is in flight. It uses up none of the items' attempts: the replica failed, not they."""
        if not self._cut.done():
            self._cut.set_result(Failure(Action.RETRY, Blame.NONE, counted=False, reason=f"the replica left: {reason}"))
