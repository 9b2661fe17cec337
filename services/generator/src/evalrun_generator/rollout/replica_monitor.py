"""Admits a replica once it has generated a token, then monitors it, with a `ReplicaMonitor` per start."""

import asyncio
import json
import logging
from collections.abc import Callable

from evalrun_generator.endpoints.endpoint import Timed
from evalrun_generator.endpoints.openai_api import COMPLETION_PATH, ModelRequest
from evalrun_generator.endpoints.retry import RequestFailure
from evalrun_generator.rollout.engine import EnginePlan
from evalrun_generator.rollout.engine_facts import is_same_model
from evalrun_generator.rollout.replica_api import ReplicaApi
from evalrun_generator.rollout.replica_endpoint import ReplicaEndpoint
from evalrun_generator.rollout.starts import Start
from evalrun_generator.rollout.vital_signs import ProbeLimits, VitalSigns, should_ask, trouble
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)


class UnfitReplicaError(Exception):
    """The replica does not reply correctly; another start may."""


class ReplicaMonitor:
    """Monitors a serving replica, from its first test to its end."""

    def __init__(
        self,
        start: Start,
        api: ReplicaApi,
        plan: EnginePlan,
        patience: ProbeLimits,
        *,
        tick_seconds: float,
        wake: Callable[[], None],
    ) -> None:
        """Create the monitor; `wake` is called when `trouble` is set."""
        self.start = start
        model = None if plan.kept is None else plan.kept.model
        self.endpoint = ReplicaEndpoint(api.endpoint, start.name, model, start.weights_version)
        self.models: list[str] = []
        self.trouble = ""
        self._api = api
        self._plan = plan
        self._patience = patience
        self._tick_seconds = tick_seconds
        self._wake = wake
        self._now = asyncio.get_running_loop().time
        body = {"model": plan.served_model, "prompt": "1", "max_tokens": 1, "temperature": 0}
        self._question = ModelRequest(COMPLETION_PATH, json.dumps(body).encode())

    async def admit(self) -> None:
        """Check that the replica serves the requested model with real weights, and that it replies.

        Raises:
            BadInputError: the replica serves something else, as every other start would.
            UnfitReplicaError: the replica does not reply.
        """
        if self.start.load_format == "dummy" and self._plan.load_format != "dummy":
            raise BadInputError(
                f"{self.start.name} loaded dummy weights, though rollout.loadFormat is {self._plan.load_format}: its "
                "answers would be noise. Check the versions of verl and the engine in the image"
            )
        asked, loaded = str(self._plan.model_config["path"]), self.start.engine.get("model", "")
        # /v1/models only repeats the configured name.
        if loaded and not is_same_model(asked, loaded):
            raise BadInputError(
                f"{self.start.name} loaded {loaded}, though model.path is {asked}: its answers would be another "
                "model's. Check the versions of verl and the engine in the image"
            )
        models = await self.endpoint.models()
        if isinstance(models, RequestFailure):
            raise UnfitReplicaError(f"/v1/models: {models.reason}")
        self.models = models
        if self._plan.served_model not in models:
            listed = ", ".join(models) or "none"
            raise BadInputError(f"{self.start.name} does not serve model {self._plan.served_model!r}, but {listed}")
        error = await self._ask_tiny()
        if error is not None:
            raise UnfitReplicaError(f"a tiny completion failed: {error}")

    async def run(self) -> None:
        """Watch the replica until something is wrong, then set `trouble` and return."""
        signs = VitalSigns(progress_at=self._now(), answered=self.endpoint.answered)
        question: asyncio.Task[str | None] | None = None
        try:
            while not self.trouble:
                signs = signs.apply_health(await self._api.health())
                signs = signs.apply_count(self.endpoint.answered, await self._api.tokens(), self._now())
                if question is not None and question.done():
                    signs = signs.apply_reply(question.result(), self._now())
                    question = None
                if question is None and should_ask(signs, self._patience, self._now()):
                    question = asyncio.create_task(self._ask_tiny())
                    signs = signs.apply_asking(self._now())
                self.trouble = trouble(signs, self._patience, self._now())
                if not self.trouble:
                    await asyncio.sleep(self._tick_seconds)
        finally:
            if question is not None:
                question.cancel()
                await asyncio.gather(question, return_exceptions=True)
        logger.warning("%s is %s", self.start.name, self.trouble)
        self._wake()

    async def _ask_tiny(self) -> str | None:
        """Request a single token. Return the error, if any. The request bypasses the balancer and is no completion."""
        outcome = await self._api.endpoint.ask(self._question, 2 * self._patience.hang_seconds)
        return None if isinstance(outcome, Timed) else outcome.reason
