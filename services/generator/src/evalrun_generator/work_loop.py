"""The run itself: lease work, have it answered, hand the answers over, until the ledger lacks nothing.

One task an item, which the asker sees to its answer; what was answered is the submitter's. An item is *held* from its
lease until the ledger has acknowledged its completion.
"""

import asyncio
import logging
import random
from collections.abc import Sequence

from evalrun.ledger.v1 import ledger_pb2 as ledger
from evalrun_generator.asker import Asker, ItemGivenUpError, Plan
from evalrun_generator.fleet import Fleet
from evalrun_generator.keys import Key, describe, key_of
from evalrun_generator.ledger_client import Ledger
from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_generator.submitter import Submitter

logger = logging.getLogger(__name__)

IDLE_POLL_SECONDS = 1.0
"""How often an exhausted ledger is asked for more while items are in flight: work of a token budget appears late."""

FAILURES_LOGGED = 20

FLUSH_SECONDS = 5.0
"""How long a run that ends in trouble tries to hand over what was answered."""


class WorkLoop:
    """Runs items to their completions.

    `run` returns when the ledger has every completion. It raises BadInputError where the user must change something,
    GenerationStoppedError where the run can be resumed; either way what was answered has been handed over before,
    as far as the ledger took it.
    """

    def __init__(self, ledger_client: Ledger, fleet: Fleet, plan: Plan, rng: random.Random) -> None:
        self._ledger = ledger_client
        self._fleet = fleet
        self._asker = Asker(fleet, plan, rng)
        self._submitter = Submitter(
            ledger_client,
            batch_size=plan.batch_size,
            delay=plan.batch_delay_seconds,
            acknowledged=self._acknowledged,
        )
        self._held: set[Key] = set()
        self._given_up: dict[Key, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._room_made = asyncio.Event()
        fleet.on_join.append(self._room_made.set)
        self._ask_again = asyncio.Event()
        self._trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._draining = False
        self.answered = 0
        self.output_tokens = 0
        self.remaining: int | None = None
        """Completions that the ledger lacked when it was last asked; None before it has said."""

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
        self._draining = self._asker.draining = True
        for task in self._tasks - self._asker.sending:
            task.cancel()
        try:
            async with asyncio.timeout(seconds):
                while self._tasks:
                    await asyncio.wait(self._tasks)
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
            self.remaining = response.remaining
            new = [item for item in response.items if self._is_new(key_of(item.key))]
            for item in new:
                self._begin(item)
            if response.remaining == 0:
                return
            if response.remaining <= len(self._given_up) and not self._held:
                raise GenerationStoppedError(self._given_up_message())
            if not new or response.remaining <= len(self._held) + len(self._given_up):
                await self._until_worth_asking(response.retry_after_ms / 1000 or IDLE_POLL_SECONDS)

    def _room(self) -> int:
        """Give how many items to ask for; 0 while it is not worth a call."""
        if self._draining or self._submitter.pending > max(1024, 4 * self._fleet.capacity()):
            return 0
        capacity = self._fleet.capacity()
        ahead = max(1, capacity // 8)
        room = capacity + ahead - len(self._tasks)
        return room if room >= max(1, ahead // 2) else 0

    async def _until_worth_asking(self, seconds: float) -> None:
        """Wait until something in hand is acknowledged or given up, at most `seconds`."""
        self._ask_again.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._ask_again.wait()
        except TimeoutError:
            return  # then it is time to ask the ledger again

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

    def _acknowledged(self, batch: Sequence[ledger.Completion]) -> None:
        for completion in batch:
            self._release(key_of(completion.key))
        # What a problem's token budget still holds shows once an answer is stored: waiting for the poll would idle a
        # replica's slot for up to a second a sample.
        self._ask_again.set()
        self._room_made.set()

    def _release(self, key: Key) -> None:
        self._held.discard(key)
        if not self._held:
            self._ask_again.set()

    async def _complete(self, item: ledger.WorkItem, key: Key) -> None:
        try:
            completion = await self._asker.complete(item)
        except ItemGivenUpError as error:
            self._give_up(key, str(error))
            return
        if completion is not None:
            self.answered += 1
            self.output_tokens += completion.output_tokens
            self._submitter.add(completion)

    def _give_up(self, key: Key, reason: str) -> None:
        self._given_up[key] = reason
        self._release(key)
        if len(self._given_up) <= FAILURES_LOGGED:
            logger.error("%s is given up: %s", describe(key), reason)

    def _given_up_message(self) -> str:
        key, reason = next(iter(self._given_up.items()))
        others = f" (and {len(self._given_up) - 1} more)" if len(self._given_up) > 1 else ""
        return f"no completion for {describe(key)}{others}: {reason}. Everything else is stored; run again to resume"
