"""One item, from its lease to its answer: wait for room at an endpoint, ask, and after a failure ask again or not."""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from evalrun.ledger.v1 import ledger_pb2 as ledger
from evalrun_generator.endpoints import Timed
from evalrun_generator.fleet import Fleet, Permit
from evalrun_generator.keys import describe, key_of
from evalrun_generator.openai_api import ModelRequest, request_for
from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_generator.retry import Action, Backoff, Failure
from evalrun_generator.token_counts import TokenCounter
from evalrun_runtime.exits import BadInputError
from evalrun_runtime.tracing import span

logger = logging.getLogger(__name__)


class ItemGivenUpError(Exception):
    """This item gets no completion from anybody; the others may. The message says why."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How items are asked for."""

    model: str
    attempts: int
    backoff: Backoff
    deadline_for: Callable[[int], float]
    """max_tokens -> seconds that a request may take."""
    outage_seconds: float
    batch_size: int
    batch_delay_seconds: float
    tokens: TokenCounter = field(default_factory=lambda: TokenCounter(None))
    """For answers without `usage`."""


@dataclass(slots=True)
class History:
    """What happened to one item so far."""

    sent: int = 0
    failed: int = 0
    counted: int = 0
    """Failures that use up attempts."""
    first_failure_at: float | None = None
    avoid: str | None = None
    """Where it failed last."""


class Asker:
    """Asks the fleet for completions."""

    def __init__(self, fleet: Fleet, plan: Plan, rng: random.Random) -> None:
        self._fleet = fleet
        self._plan = plan
        self._rng = rng
        self._now = asyncio.get_running_loop().time
        self._last_answer_at = float("-inf")
        self.sending: set[asyncio.Task[object]] = set()
        """Tasks whose request is in flight."""
        self.draining = False
        """Set: requests in flight may end, nothing is sent any more."""

    async def complete(self, item: ledger.WorkItem) -> ledger.Completion | None:
        """Give an item's completion; None where draining came in between.

        Raises:
            ItemGivenUpError: nobody will answer this item.
            BadInputError: nobody will answer any item.
            GenerationStoppedError: nobody has answered for too long.
        """
        try:
            request = request_for(item, self._plan.model)
        except ValueError as error:
            raise ItemGivenUpError(str(error)) from error
        deadline = self._plan.deadline_for(item.sampling.max_tokens)
        history = History()
        while not self.draining:
            permit = await self._fleet.acquire(history.avoid, first=history.sent > 0)
            history.sent += 1
            with span("generate", item.traceparent, {"endpoint": permit.endpoint.name, "attempt": history.sent}):
                outcome = await self._send(permit, request, deadline)
            if isinstance(outcome, Timed):
                self._last_answer_at = self._now()
                answer = outcome.answer
                if answer.output_tokens is None:
                    outcome = replace(
                        outcome, answer=replace(answer, output_tokens=await self._plan.tokens.count(answer.text))
                    )
                return _completion(item.key, outcome, permit.endpoint.name, history.sent)
            where, what = permit.endpoint.name, describe(key_of(item.key))
            logger.debug("%s: attempt %d at %s: %s", what, history.sent, where, outcome.reason)
            self._note_failure(outcome, where, history)
            if not self.draining:
                await asyncio.sleep(self._plan.backoff.delay(history.failed, self._rng))
        return None

    async def _send(self, permit: Permit, request: ModelRequest, deadline: float) -> Timed | Failure:
        task = asyncio.current_task()
        if task is not None:
            self.sending.add(task)
        try:
            outcome = await permit.endpoint.ask(request, deadline)
        except asyncio.CancelledError:
            self._fleet.give_up(permit)
            raise
        finally:
            if task is not None:
                self.sending.discard(task)
        if isinstance(outcome, Timed):
            self._fleet.succeeded(permit)
        else:
            self._fleet.failed(permit, outcome)
        return outcome

    def _note_failure(self, failure: Failure, endpoint: str, history: History) -> None:
        """Count a failure; raises where the item, or the whole run, ends with it."""
        reason = f"{endpoint}: {failure.reason}"
        if failure.action is Action.ABORT:
            raise BadInputError(f"endpoint {reason}")
        if failure.action is Action.REJECT:
            raise ItemGivenUpError(reason)
        now = self._now()
        history.avoid = endpoint
        history.failed += 1
        history.counted += failure.counted
        history.first_failure_at = now if history.first_failure_at is None else history.first_failure_at
        outage = self._fleet.outage_seconds()
        if outage >= self._plan.outage_seconds:
            raise GenerationStoppedError(
                f"no endpoint has answered for {outage:.0f} s; the last failure: {reason}. Run again to resume"
            )
        # While nothing at all is answered it is the endpoints that are ill, not the item: the outage decides.
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
    )
