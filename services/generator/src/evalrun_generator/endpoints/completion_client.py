"""Gets the completion of a leased item: waits for a free slot at an endpoint, sends the request, retries failures."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from evalrun_generator.endpoints.endpoint import Timed
from evalrun_generator.endpoints.endpoint_fleet import EndpointFleet, Permit
from evalrun_generator.endpoints.openai_api import ModelRequest, request_for
from evalrun_generator.endpoints.request_timeout import RequestTimeout
from evalrun_generator.endpoints.retry import Backoff, RequestFailure, RetryAction
from evalrun_generator.ledger.keys import describe, key_of
from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_generator.token_counts import TokenCounter
from evalrun_proto.ledger.v1 import ledger_pb2 as ledger
from evalrun_runtime.exits import BadInputError
from evalrun_runtime.tracing import span

logger = logging.getLogger(__name__)


class ItemGivenUpError(Exception):
    """No endpoint can complete this item; other items may succeed. The message names the reason."""


class ItemRefusedError(ItemGivenUpError):
    """The server understood the request and refused it: retrying does not help."""


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """Settings for requesting completions."""

    model: str
    attempts: int
    backoff: Backoff
    deadline_for: Callable[[int], float]
    """Maps max_tokens to the request's timeout in seconds."""
    outage_seconds: float
    batch_size: int
    batch_delay_seconds: float
    tokens: TokenCounter = field(default_factory=lambda: TokenCounter(None))
    """Counts the tokens of completions without `usage`."""


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request without a reply yet."""

    endpoint: str
    sent_at: float
    """Unix seconds."""
    limit_seconds: float


@dataclass(slots=True)
class AttemptHistory:
    """The attempts at one item so far."""

    sent: int = 0
    failed: int = 0
    counted: int = 0
    """Failures that count as attempts."""
    timeouts: int = 0
    first_failure_at: float | None = None
    avoid: str | None = None
    """The endpoint of the last failure."""


class CompletionClient:
    """Requests completions from the endpoint fleet."""

    def __init__(
        self, fleet: EndpointFleet, plan: RequestPolicy, rng: random.Random, clock: Callable[[], float] = time.time
    ) -> None:
        """Create the client; `clock` returns Unix seconds."""
        self._fleet = fleet
        self._plan = plan
        self._timeout = RequestTimeout(plan.deadline_for)
        self._clock = clock
        self._rng = rng
        self._now = asyncio.get_running_loop().time
        self._last_answer_at = float("-inf")
        self.sending: dict[asyncio.Task[object], OpenRequest] = {}
        """Tasks whose request is in flight."""
        self.draining = False
        """If set, requests in flight may finish and no new ones are sent."""
        self.asks_log_probs = False
        """Whether a request asked for log-probabilities."""
        self._mute: set[str] = set()
        """Endpoints that returned no log-probabilities although they were asked."""
        self.warnings: list[str] = []
        """Warnings for the user about completions, one line per endpoint."""

    def oldest_requests(self) -> Mapping[str, OpenRequest]:
        """Return the oldest request in flight at each endpoint that has one."""
        oldest: dict[str, OpenRequest] = {}
        for request in self.sending.values():
            known = oldest.get(request.endpoint)
            if known is None or request.sent_at < known.sent_at:
                oldest[request.endpoint] = request
        return oldest

    async def complete(self, item: ledger.WorkItem) -> ledger.Completion | None:
        """Return an item's completion, or None if draining started first.

        Raises:
            ItemGivenUpError: this item cannot be completed. ItemRefusedError: the server refused it.
            BadInputError: no item can be completed.
            GenerationStoppedError: no endpoint has answered for too long.
        """
        try:
            request = request_for(item, self._plan.model)
        except ValueError as error:
            raise ItemGivenUpError(str(error)) from error
        self.asks_log_probs |= item.sampling.log_probs
        history = AttemptHistory()
        while not self.draining:
            permit = await self._fleet.acquire(history.avoid, first=history.sent > 0)
            history.sent += 1
            deadline = self._timeout.limit(item.sampling.max_tokens, history.timeouts)
            with span("generate", item.traceparent, {"endpoint": permit.endpoint.name, "attempt": history.sent}):
                outcome = await self._send(permit, request, deadline)
            if isinstance(outcome, Timed):
                self._last_answer_at = self._now()
                answer = outcome.answer
                if answer.output_tokens is None:
                    outcome = replace(
                        outcome, answer=replace(answer, output_tokens=await self._plan.tokens.count(answer.text))
                    )
                self._timeout.note_answer(outcome.seconds, outcome.answer.output_tokens)
                if item.sampling.log_probs and answer.text and not answer.log_probs:
                    self._note_mute(permit.endpoint.name)
                return _completion(item.key, outcome, permit.endpoint.name, history.sent)
            where, what = permit.endpoint.name, describe(key_of(item.key))
            logger.debug("%s: attempt %d at %s: %s", what, history.sent, where, outcome.reason)
            self._note_failure(outcome, where, history)
            if not self.draining:
                await asyncio.sleep(self._plan.backoff.delay(history.failed, self._rng))
        return None

    async def _send(self, permit: Permit, request: ModelRequest, deadline: float) -> Timed | RequestFailure:
        task = asyncio.current_task()
        if task is not None:
            self.sending[task] = OpenRequest(permit.endpoint.name, self._clock(), deadline)
        try:
            outcome = await permit.endpoint.ask(request, deadline)
        except asyncio.CancelledError:
            self._fleet.give_up(permit)
            raise
        finally:
            if task is not None:
                self.sending.pop(task, None)
        if isinstance(outcome, Timed):
            self._fleet.record_success(permit)
        else:
            self._fleet.record_failure(permit, outcome)
        return outcome

    def _note_mute(self, endpoint: str) -> None:
        """Warn once per endpoint that the endpoint returns no log-probabilities."""
        if endpoint in self._mute:
            return
        self._mute.add(endpoint)
        warning = (
            f"endpoint {endpoint} gives no log-probabilities, which spec.protocol.calculateLogProbs asks for: "
            "log_probs is null in the results of its answers"
        )
        logger.warning("%s", warning)
        self.warnings.append(warning)

    def _note_failure(self, failure: RequestFailure, endpoint: str, history: AttemptHistory) -> None:
        """Count a failure. Raises if it ends the item or the whole run."""
        reason = f"{endpoint}: {failure.reason}"
        if failure.action is RetryAction.ABORT:
            raise BadInputError(f"endpoint {reason}{failure.remedy}")
        if failure.action is RetryAction.REJECT:
            raise ItemRefusedError(reason)
        now = self._now()
        history.avoid = endpoint
        history.failed += 1
        history.counted += failure.counted
        history.timeouts += failure.timed_out
        history.first_failure_at = now if history.first_failure_at is None else history.first_failure_at
        outage = self._fleet.outage_seconds()
        if outage >= self._plan.outage_seconds:
            raise GenerationStoppedError(
                f"no endpoint has answered for {outage:.0f} s; the last failure: {reason}. Run again to resume"
            )
        # While no request succeeds at all, the endpoints are at fault and not the item: the outage limit decides.
        if history.counted >= self._plan.attempts and self._last_answer_at > history.first_failure_at:
            raise ItemGivenUpError(f"{history.counted} attempts failed, the last at {reason}")


def _completion(key: ledger.WorkKey, timed: Timed, replica: str, attempts: int) -> ledger.Completion:
    answer = timed.answer
    return ledger.Completion(
        key=key,
        text=answer.text,
        finish_reason=answer.finish_reason,
        prompt_tokens=answer.prompt_tokens,
        output_tokens=answer.output_tokens,
        generation_seconds=timed.seconds,
        started_at=timed.started_at,
        replica=replica,
        model=answer.model,
        attempts=attempts,
        weights_version=answer.weights_version,
        log_probs=answer.log_probs,
    )
