"""The run itself: lease work, have it answered, hand the answers over, until the ledger lacks nothing.

One task an item. Its waits are all here: for room at an endpoint, for the answer, for the next attempt. What was
answered is the submitter's; an item is *held* from its lease until the ledger has acknowledged its completion.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evalrun.ledger.v1 import ledger_pb2 as ledger
from evalrun_generator.endpoints import Timed
from evalrun_generator.fleet import Fleet, Permit
from evalrun_generator.ledger_client import Ledger
from evalrun_generator.openai_api import ModelRequest, request_for
from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_generator.retry import Action, Backoff, Failure
from evalrun_generator.submitter import Submitter
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

Key = tuple[str, str, int, int, int]

IDLE_POLL_SECONDS = 1.0
"""How often an exhausted ledger is asked for more while items are in flight: work of a token budget appears late."""

FAILURES_LOGGED = 20

FLUSH_SECONDS = 5.0
"""How long a run that ends in trouble tries to hand over what was answered."""


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


@dataclass(slots=True)
class History:
    """What happened to one item so far."""

    sent: int = 0
    counted: int = 0
    failed: int = 0
    first_failure_at: float = 0.0
    avoid: str | None = None


def key_of(key: ledger.WorkKey) -> Key:
    """Give a work key as something to put into a set."""
    return key.dataset, key.problem_id, key.sample, key.turn, key.repeat


def describe(key: Key) -> str:
    """Name an item for people."""
    dataset, problem, sample, turn, repeat = key
    extra = (f" turn {turn}" if turn else "") + (f" repeat {repeat}" if repeat else "")
    return f"{dataset} {problem} sample {sample}{extra}"


class WorkLoop:
    """Runs items to their completions.

    `run` returns when the ledger has every completion. It raises BadInputError where the user must change something,
    GenerationStoppedError where the run can be resumed; either way what was answered has been handed over before,
    as far as the ledger took it.
    """

    def __init__(self, ledger_client: Ledger, fleet: Fleet, plan: Plan, rng: random.Random) -> None:
        self._ledger = ledger_client
        self._fleet = fleet
        self._plan = plan
        self._rng = rng
        self._now = asyncio.get_running_loop().time
        self._submitter = Submitter(
            ledger_client,
            batch_size=plan.batch_size,
            delay=plan.batch_delay_seconds,
            acknowledged=self._acknowledged,
        )
        self._held: set[Key] = set()
        self._given_up: dict[Key, str] = {}
        self._tasks: dict[asyncio.Task[None], Key] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._room_made = asyncio.Event()
        self._nothing_held = asyncio.Event()
        self._trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._draining = False
        self._last_answer_at = float("-inf")
        self.answered = 0
        self.output_tokens = 0

    async def run(self) -> None:
        """Work until nothing remains."""
        submitting = asyncio.create_task(self._submitter.run())
        leasing = asyncio.create_task(self._lease())
        try:
            await asyncio.wait({submitting, leasing, self._trouble}, return_when=asyncio.FIRST_COMPLETED)
            for part in (self._trouble, submitting, leasing):
                if part.done():
                    part.result()
        finally:
            leasing.cancel()
            await asyncio.gather(leasing, return_exceptions=True)
            await self._end(submitting)

    async def drain(self, seconds: float) -> None:
        """Lease no more, let requests in flight end and be stored; gives up after `seconds`. `run` must be running."""
        self._draining = True
        for task in set(self._tasks) - self._sending:
            task.cancel()
        try:
            async with asyncio.timeout(seconds):
                while self._tasks:
                    await asyncio.wait(set(self._tasks))
                await self._submitter.flush()
        except TimeoutError:
            logger.warning(
                "%d requests and %d completions did not end within %.0f s",
                len(self._tasks),
                self._submitter.pending,
                seconds,
            )

    async def _end(self, submitting: asyncio.Task[None]) -> None:
        """Cut off what is in flight, then hand over what was answered, while the ledger takes it."""
        self._trouble.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not submitting.done():
            flushing = asyncio.create_task(self._submitter.flush())
            await asyncio.wait({flushing, submitting}, timeout=FLUSH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            flushing.cancel()
        submitting.cancel()
        await asyncio.gather(submitting, return_exceptions=True)
        if self._submitter.pending:
            logger.warning(
                "%d completions were not taken by the ledger; they will be asked for again", self._submitter.pending
            )

    # Leasing

    async def _lease(self) -> None:
        """Keep as many items in hand as the endpoints can take, and a few more; ends when nothing remains."""
        while True:
            self._room_made.clear()
            room = self._room()
            if room <= 0:
                await self._room_made.wait()
                continue
            # Holding nothing, whatever is still leased in our name was lost on the way.
            fresh = not self._held and not self._given_up
            response = await self._ledger.get_work(room, fresh=fresh)
            new = [item for item in response.items if self._is_new(key_of(item.key))]
            for item in new:
                self._begin(item)
            if response.remaining == 0:
                return
            if response.remaining <= len(self._given_up) and not self._held:
                raise GenerationStoppedError(self._given_up_message())
            if not new or response.remaining <= len(self._held) + len(self._given_up):
                await self._until_nothing_held(response.retry_after_ms / 1000 or IDLE_POLL_SECONDS)

    def _room(self) -> int:
        """Give how many items to ask for; 0 while it is not worth a call."""
        if self._draining or self._submitter.pending > max(1024, 4 * self._fleet.capacity()):
            return 0
        capacity = self._fleet.capacity()
        ahead = max(1, capacity // 8)
        room = capacity + ahead - len(self._tasks)
        return room if room >= max(1, ahead // 2) else 0

    async def _until_nothing_held(self, seconds: float) -> None:
        """Wait until what is in hand is acknowledged, at most `seconds`; the whole time where nothing is in hand."""
        self._nothing_held.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._nothing_held.wait()
        except TimeoutError:
            return  # then it is time to ask the ledger again

    def _is_new(self, key: Key) -> bool:
        return key not in self._held and key not in self._given_up

    def _begin(self, item: ledger.WorkItem) -> None:
        key = key_of(item.key)
        self._held.add(key)
        task = asyncio.create_task(self._complete(item, key))
        self._tasks[task] = key
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        del self._tasks[task]
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._trouble.done():
            self._trouble.set_exception(error)
        if not self._tasks:
            self._submitter.hurry()
        self._room_made.set()

    def _acknowledged(self, batch: Sequence[ledger.Completion]) -> None:
        for completion in batch:
            self._release(key_of(completion.key))
        self._room_made.set()

    def _release(self, key: Key) -> None:
        self._held.discard(key)
        if not self._held:
            self._nothing_held.set()

    # One item

    async def _complete(self, item: ledger.WorkItem, key: Key) -> None:
        """Ask until there is an answer, or none will come."""
        try:
            request = request_for(item, self._plan.model)
        except ValueError as error:
            self._give_up(key, str(error))
            return
        deadline = self._plan.deadline_for(item.sampling.max_tokens)
        history = History()
        while not self._draining:
            permit = await self._fleet.acquire(history.avoid, first=history.sent > 0)
            history.sent += 1
            outcome = await self._send(permit, request, deadline)
            if isinstance(outcome, Timed):
                self._hand_over(item.key, outcome, permit.endpoint.name, history.sent)
                return
            if not self._goes_on(key, outcome, permit.endpoint.name, history):
                return
            await asyncio.sleep(self._plan.backoff.delay(history.failed, self._rng))

    async def _send(self, permit: Permit, request: ModelRequest, deadline: float) -> Timed | Failure:
        task = asyncio.current_task()
        if task is not None:
            self._sending.add(task)
        try:
            outcome = await permit.endpoint.ask(request, deadline)
        except asyncio.CancelledError:
            self._fleet.give_up(permit)
            raise
        if task is not None:
            self._sending.discard(task)
        if isinstance(outcome, Timed):
            self._fleet.succeeded(permit)
        else:
            self._fleet.failed(permit, outcome)
        return outcome

    def _hand_over(self, key: ledger.WorkKey, timed: Timed, replica: str, attempts: int) -> None:
        answer = timed.answer
        self._last_answer_at = self._now()
        self.answered += 1
        self.output_tokens += answer.output_tokens or 0
        self._submitter.add(
            ledger.Completion(
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
        )

    def _goes_on(self, key: Key, failure: Failure, endpoint: str, history: History) -> bool:
        """Decide after a failure whether the item is asked for again; raises where the whole run ends."""
        reason = f"{endpoint}: {failure.reason}"
        if failure.action is Action.ABORT:
            raise BadInputError(f"endpoint {reason}")
        if failure.action is Action.REJECT:
            self._give_up(key, reason)
            return False
        if self._draining:
            return False
        now = self._now()
        history.avoid = endpoint
        history.failed += 1
        history.counted += failure.counted
        history.first_failure_at = history.first_failure_at or now
        logger.debug("%s: attempt %d failed: %s", describe(key), history.sent, reason)
        outage = self._fleet.outage_seconds()
        if outage >= self._plan.outage_seconds:
            raise GenerationStoppedError(f"no endpoint has answered for {outage:.0f} s; the last failure: {reason}")
        # While nothing at all is answered it is the endpoints that are ill, not the item: the outage decides.
        if history.counted >= self._plan.attempts and self._last_answer_at > history.first_failure_at:
            self._give_up(key, f"{history.counted} attempts failed, the last at {reason}")
            return False
        return True

    def _give_up(self, key: Key, reason: str) -> None:
        self._given_up[key] = reason
        self._release(key)
        if len(self._given_up) <= FAILURES_LOGGED:
            logger.error("%s is given up: %s", describe(key), reason)

    def _given_up_message(self) -> str:
        key, reason = next(iter(self._given_up.items()))
        others = f" (and {len(self._given_up) - 1} more)" if len(self._given_up) > 1 else ""
        return f"no completion for {describe(key)}{others}: {reason}. Everything else is stored; run again to resume"
