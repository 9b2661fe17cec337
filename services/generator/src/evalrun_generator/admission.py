"""Lets an endpoint into the fleet once it has shown that it serves the asked model."""

import asyncio
import logging
import random
from collections.abc import Sequence

from evalrun_generator.endpoints import Endpoint
from evalrun_generator.fleet import Fleet
from evalrun_generator.retry import Action, Backoff, Failure
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

PROBE_BACKOFF = Backoff(first=0.2, longest=5.0)


class Admission:
    """Asks each endpoint for its models until it answers.

    The run begins with the first that is admitted; the others join when they answer, however late. An endpoint that
    answers and serves something else ends the run at once: its completions would be another model's.
    """

    def __init__(
        self, fleet: Fleet, endpoints: Sequence[Endpoint], *, model: str, slots: int, verify: bool, rng: random.Random
    ) -> None:
        self._fleet = fleet
        self._endpoints = endpoints
        self._model = model
        self._slots = slots
        self._verify = verify
        self._rng = rng
        self._one = asyncio.Event()
        self.models: dict[str, list[str]] = {}
        """By endpoint: what it serves, once it has said so."""
        self.errors: dict[str, str] = {}
        """By endpoint: why it is not admitted yet."""

    @property
    def names(self) -> list[str]:
        """Every endpoint, admitted or not."""
        return [endpoint.name for endpoint in self._endpoints]

    async def run(self, start_seconds: float) -> None:
        """Admit all endpoints; ends when all are.

        Raises:
            BadInputError: one refuses, or serves another model, or none has answered within `start_seconds`.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for endpoint in self._endpoints:
                    group.create_task(self._admit(endpoint))
                group.create_task(self._watch_start(start_seconds))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None  # one line for the user; the others say the same of other endpoints

    async def _admit(self, endpoint: Endpoint) -> None:
        attempt = 0
        while self._verify:
            answer = await endpoint.models()
            if not isinstance(answer, Failure):
                self._check_model(endpoint, answer)
                break
            if answer.action is not Action.RETRY:
                raise BadInputError(f"endpoint {endpoint.name} refuses to list its models: {answer.reason}")
            attempt += 1
            self.errors[endpoint.name] = answer.reason
            await asyncio.sleep(PROBE_BACKOFF.delay(attempt, self._rng))
        self.errors.pop(endpoint.name, None)
        self._fleet.join(endpoint, self._slots)
        self._one.set()
        logger.info("endpoint %s joins with %d slots", endpoint.name, self._slots)

    def _check_model(self, endpoint: Endpoint, served: list[str]) -> None:
        self.models[endpoint.name] = served
        if self._model not in served:
            listed = ", ".join(served) or "none"
            raise BadInputError(f"endpoint {endpoint.name} does not serve model {self._model!r}; it serves: {listed}")

    async def _watch_start(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._one.wait()
        except TimeoutError as error:
            causes = "; ".join(f"{name} unreachable: {self.errors.get(name, 'no answer')}" for name in self.names)
            raise BadInputError(f"endpoint {causes} (waited {seconds:g} s)") from error
        for name, error_line in self.errors.items():
            logger.warning("the run begins without endpoint %s: %s", name, error_line)
