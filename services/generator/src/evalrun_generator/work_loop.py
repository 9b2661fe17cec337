"""The main loop: leases work, requests completions and submits them until the ledger is complete.

Each item has a task that gets its completion from the completion client and passes it to the submitter. An item is
*held* from its lease until the ledger has acknowledged its completion.
"""

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence

from evalrun_generator.endpoints.completion_client import (
    CompletionClient,
    ItemGivenUpError,
    ItemRefusedError,
    OpenRequest,
    RequestPolicy,
)
from evalrun_generator.endpoints.endpoint_fleet import EndpointFleet
from evalrun_generator.ledger.keys import Key, describe, key_of
from evalrun_generator.ledger.ledger_client import LedgerClient
from evalrun_generator.ledger.submitter import Submitter
from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_proto.ledger.v1 import ledger_pb2 as ledger
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

IDLE_POLL_SECONDS = 1.0
"""Seconds between polls of an exhausted ledger while items are in flight: work of a token budget appears late."""

STILL_NEEDED_SECONDS = 5.0
"""Interval at which a ledger is asked whether the requests in flight are still needed, while there is no room for more:
gates may have decided without them, and long completions would hold the GPUs for minutes."""

LIMITED_ASK_SECONDS = 0.5
"""The same interval while the ledger limits the requests in flight, so that the end of a pause is seen in time."""

FAILURES_LOGGED = 20

FLUSH_SECONDS = 5.0
"""Seconds for which a failing run tries to submit its remaining completions."""


class WorkLoop:
    """Completes all items of a run.

    `run` returns when the ledger has every completion. It raises BadInputError if the user must change the input, and
    GenerationStoppedError if the run can be resumed. In both cases it first submits the completions it has, as far as
    the ledger accepts them.
    """

    def __init__(
        self,
        ledger_client: LedgerClient,
        fleet: EndpointFleet,
        plan: RequestPolicy,
        rng: random.Random,
        *,
        ask_seconds: float = STILL_NEEDED_SECONDS,
    ) -> None:
        self._ledger = ledger_client
        self._ask_seconds = ask_seconds
        self._fleet = fleet
        self._client = CompletionClient(fleet, plan, rng)
        self._submitter = Submitter(
            ledger_client,
            batch_size=plan.batch_size,
            delay=plan.batch_delay_seconds,
            acknowledged=self._release_batch,
        )
        self._held: set[Key] = set()
        self._given_up: dict[Key, str] = {}
        self._refused: set[Key] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._room_made = asyncio.Event()
        fleet.on_join.append(self._room_made.set)
        self._ask_again = asyncio.Event()
        self._trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._draining = False
        self.answered = 0
        self.output_tokens = 0
        self.remaining: int | None = None
        """Completions missing from the ledger at its last reply; None before the first."""

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

    def oldest_requests(self) -> Mapping[str, OpenRequest]:
        """Return the oldest request in flight at each endpoint that has one."""
        return self._client.oldest_requests()

    @property
    def warnings(self) -> list[str]:
        """Warnings for the user about completions, one line each."""
        return self._client.warnings

    async def drain(self, seconds: float) -> None:
        """Stop leasing and wait up to `seconds` until requests in flight are stored. `run` must be running."""
        self._draining = self._client.draining = True
        for task in self._tasks - self._client.sending.keys():
            task.cancel()
        try:
            async with asyncio.timeout(seconds):
                while self._tasks:
                    await asyncio.wait(self._tasks)
                await self._submitter.flush()
        except TimeoutError:
            logger.warning(
                "%d requests and %d unsubmitted completions were left after %.0f s",
                len(self._tasks),
                self._submitter.pending,
                seconds,
            )

    async def _end(self, submitting: asyncio.Task[None]) -> None:
        """Cancel requests in flight, then submit the remaining completions if the ledger accepts them."""
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
                "the ledger did not accept %d completions; they will be requested again", self._submitter.pending
            )

    # Leasing

    async def _lease(self) -> None:
        """Hold as many items as the endpoints can take, plus a few; return when nothing remains."""
        while True:
            self._room_made.clear()
            room = self._room()
            if room <= 0:
                if not await self._is_needed_while_full():
                    return
                continue
            # If we hold nothing, any remaining lease in our name was lost in transit.
            fresh = not self._held and not self._given_up
            response = await self._ledger.get_work(room, fresh=fresh)
            self._obey(response)
            new = [item for item in response.items if self._is_new(key_of(item.key))]
            for item in new:
                self._begin(item)
            if response.remaining == 0:
                return
            if response.remaining <= len(self._given_up) and not self._held:
                raise self._end_of_given_up()
            if not new or response.remaining <= len(self._held) + len(self._given_up):
                await self._wait_until_worth_asking(response.retry_after_ms / 1000 or IDLE_POLL_SECONDS)

    def _room(self) -> int:
        """Return how many items to lease; 0 while a call is not worthwhile."""
        if self._draining or self._submitter.pending > max(1024, 4 * self._fleet.capacity()):
            return 0
        capacity = self._fleet.capacity()
        ahead = max(1, capacity // 8)
        room = capacity + ahead - len(self._tasks)
        return room if room >= max(1, ahead // 2) else 0

    async def _is_needed_while_full(self) -> bool:
        """Wait for room.

        Return False if the ledger needs nothing more: the run's gates have decided without the rest.
        """
        limited = self._fleet.max_in_flight is not None
        try:
            async with asyncio.timeout(min(self._ask_seconds, LIMITED_ASK_SECONDS) if limited else self._ask_seconds):
                await self._room_made.wait()
        except TimeoutError:
            if not self._draining:
                self._obey(response := await self._ledger.get_work(0, fresh=False))
                return response.remaining > 0
        return True

    def _obey(self, response: ledger.GetWorkResponse) -> None:
        """Apply the ledger's reply to the run as a whole."""
        self.remaining = response.remaining
        self._fleet.limit(response.max_in_flight if response.HasField("max_in_flight") else None)

    async def _wait_until_worth_asking(self, seconds: float) -> None:
        """Wait until a held item is acknowledged or given up, at most `seconds`."""
        self._ask_again.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._ask_again.wait()
        except TimeoutError:
            # It is time to ask the ledger again.
            return

    def _is_new(self, key: Key) -> bool:
        return key not in self._held and key not in self._given_up

    def _begin(self, item: ledger.WorkItem) -> None:
        key = key_of(item.key)
        self._held.add(key)
        task = asyncio.create_task(self._complete(item, key))
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._trouble.done():
            self._trouble.set_exception(error)
        if not self._tasks:
            self._submitter.hurry()
        self._room_made.set()

    def _release_batch(self, batch: Sequence[ledger.Completion]) -> None:
        for completion in batch:
            self._release(key_of(completion.key))
        # The rest of a problem's token budget is known once a completion is stored. Waiting for the poll would idle a
        # replica's slot for up to a second per sample.
        self._ask_again.set()
        self._room_made.set()

    def _release(self, key: Key) -> None:
        self._held.discard(key)
        if not self._held:
            self._ask_again.set()

    async def _complete(self, item: ledger.WorkItem, key: Key) -> None:
        try:
            completion = await self._client.complete(item)
        except ItemGivenUpError as error:
            self._give_up(key, error)
            # A refusal takes milliseconds, a completion seconds: a few overlong prompts may be refused before any
            # completion.
            if self.answered == 0 and len(self._refused) >= max(1, self._fleet.capacity()):
                raise self._end_of_given_up() from error
            return
        if completion is not None:
            self.answered += 1
            self.output_tokens += completion.output_tokens
            self._submitter.add(completion)

    def _give_up(self, key: Key, error: ItemGivenUpError) -> None:
        reason = str(error)
        self._given_up[key] = reason
        if isinstance(error, ItemRefusedError):
            self._refused.add(key)
        self._release(key)
        if len(self._given_up) <= FAILURES_LOGGED:
            logger.error("%s is given up: %s", describe(key), reason)

    def _end_of_given_up(self) -> BadInputError | GenerationStoppedError:
        """Return the error of a run whose remaining items were all given up."""
        key, reason = next(iter(self._given_up.items()))
        refused = len(self._refused)
        if refused == len(self._given_up) and self.answered == 0:
            return BadInputError(
                f"endpoint {reason}. The first {refused} requests were refused and none was answered: fix the "
                f"run's model or protocol, or the server{self._log_probs_remedy()}"
            )
        others = f" (and {len(self._given_up) - 1} more)" if len(self._given_up) > 1 else ""
        remedy = "resume once the server accepts it" if refused == len(self._given_up) else "run again to resume"
        return GenerationStoppedError(
            f"no completion for {describe(key)}{others}: {reason}. All other completions are stored; {remedy}"
        )

    def _log_probs_remedy(self) -> str:
        if not self._client.asks_log_probs:
            return ""
        return ". The requests asked for log-probabilities: if the server has none, remove protocol.calculateLogProbs"
