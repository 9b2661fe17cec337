"""Admits an endpoint to the fleet once it has confirmed that it serves the requested model."""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

from evalrun_generator.endpoints.endpoint import NO_SUCH_PATH, Endpoint
from evalrun_generator.endpoints.endpoint_fleet import EndpointFleet
from evalrun_generator.endpoints.retry import Backoff, RequestFailure, RetryAction
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

PROBE_BACKOFF = Backoff(first=0.2, max_wait=5.0)


class EndpointAdmission:
    """Asks each endpoint for its list of models until it replies.

    The run begins with the first admitted endpoint; the others join whenever they reply. An endpoint that serves a
    different model ends the run at once, because its completions would be another model's. An endpoint without a list
    of models is used with a warning.
    """

    def __init__(
        self,
        fleet: EndpointFleet,
        endpoints: Sequence[Endpoint],
        *,
        model: str,
        slots: Sequence[int],
        verify: bool,
        rng: random.Random,
    ) -> None:
        self._fleet = fleet
        self._endpoints = endpoints
        self._model = model
        self._slots = {endpoint.name: count for endpoint, count in zip(endpoints, slots, strict=True)}
        self._verify = verify
        self._rng = rng
        self._one = asyncio.Event()
        self.models: dict[str, list[str]] = {}
        """Models served, by endpoint, once it has replied."""
        self.facts: dict[str, dict[str, str]] = {}
        """Each server's facts about its engine, once it was asked."""
        self.errors: dict[str, str] = {}
        """Reason why an endpoint is not admitted yet, by endpoint."""
        self.warnings: list[str] = []
        """Warnings for the user about admitted endpoints, one line each."""
        self.on_trouble: list[Callable[[], None]] = []
        """Called whenever the reason why an endpoint is not admitted changes."""

    @property
    def names(self) -> list[str]:
        """Names of all endpoints, admitted or not."""
        return [endpoint.name for endpoint in self._endpoints]

    async def run(self, start_seconds: float) -> None:
        """Admit all endpoints; return once every endpoint is admitted.

        Raises:
            BadInputError: an endpoint refuses or serves another model, or none answered within `start_seconds`.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for endpoint in self._endpoints:
                    group.create_task(self._admit(endpoint))
                group.create_task(self._watch_start(start_seconds))
        except ExceptionGroup as failed:
            raise failed.exceptions[
                0
                # The user sees a single line: the other errors say the same about other endpoints.
            ] from None

    async def _admit(self, endpoint: Endpoint) -> None:
        attempt = 0
        while self._verify:
            answer = await endpoint.models()
            if not isinstance(answer, RequestFailure):
                self._check_model(endpoint, answer)
                break
            if answer.status in NO_SUCH_PATH:
                self._warn(
                    f"endpoint {endpoint.name} does not list its models ({answer.reason}): using it without checking "
                    f"that it serves {self._model}"
                )
                break
            if answer.action is not RetryAction.RETRY:
                raise BadInputError(
                    f"endpoint {endpoint.name} refuses to list its models: {answer.reason}{answer.remedy}"
                )
            attempt += 1
            self._note(endpoint.name, answer.reason)
            await asyncio.sleep(PROBE_BACKOFF.delay(attempt, self._rng))
        self.facts[endpoint.name] = await endpoint.facts()
        self.errors.pop(endpoint.name, None)
        self._fleet.join(endpoint, self._slots[endpoint.name])
        self._one.set()
        logger.info("endpoint %s joins with %d slots", endpoint.name, self._slots[endpoint.name])

    def _note(self, endpoint: str, reason: str) -> None:
        if self.errors.get(endpoint) != reason:
            logger.warning("endpoint %s is not ready: %s; asking again", endpoint, reason)
            self.errors[endpoint] = reason
            for notify in self.on_trouble:
                notify()

    def _warn(self, warning: str) -> None:
        logger.warning("%s", warning)
        self.warnings.append(warning)

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
            logger.warning("starting without endpoint %s: %s", name, error_line)
