"""Drives the judge: sends completions over streams, stores the verdicts in the ledger, then counts them.

References go one way: the dispatcher holds the stream workers, a stream worker holds its requests and their replies,
and these hold the work, the item states and the ledger. No lower part refers to a higher part.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from evalrun_aggregator.clocks import Clocks
from evalrun_aggregator.judging.answers import Answers
from evalrun_aggregator.judging.item_rules import ItemRules
from evalrun_aggregator.judging.item_traces import ItemTraces
from evalrun_aggregator.judging.judge_health import JudgeHealth
from evalrun_aggregator.judging.requests import Requests
from evalrun_aggregator.judging.retry_policy import RetryPolicy
from evalrun_aggregator.judging.stream_worker import StreamSettings, StreamWorker
from evalrun_aggregator.judging.verdict_store import VerdictStore
from evalrun_aggregator.judging.work import WorkSource
from evalrun_aggregator.ledger.item_states import ItemStates
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_client.judge_client import JudgeAddress


@dataclass(frozen=True)
class DispatchSettings:
    """Bounds of the work with the judge."""

    in_flight: int = 64
    """Maximum number of requests without a reply, over all judges."""
    streams: int = 4
    """Streams per address. Each stream sticks to one pod, so a single stream would load a single pod."""
    stream_age: float = 50.0
    answer_timeout: float = 900.0
    retries: RetryPolicy = field(default_factory=RetryPolicy)


class Dispatcher:
    """Judges all generated items, until cancelled.

    Args:
        item_states: the states of the items; verdicts are counted there once they are on disk.
        ledger: holds the completions, and stores the verdicts.
        judges: the judges; each gets its share of the requests in flight.
        rules: turn items into requests, and replies into verdicts.
        settings: bounds of the work with the judge.
        clocks: the sources of time.
        chance: jitter of delays.
        traces: traces of the items; None: they have none.
        on_stored: called after verdicts were stored and counted.
    """

    def __init__(
        self,
        item_states: ItemStates,
        ledger: Ledger,
        judges: Sequence[JudgeAddress],
        rules: ItemRules,
        settings: DispatchSettings,
        *,
        clocks: Clocks,
        chance: random.Random,
        traces: ItemTraces | None,
        on_stored: Callable[[], None],
    ) -> None:
        streams = max(1, len(judges)) * settings.streams
        share = max(1, settings.in_flight // streams)
        clock = clocks.monotonic
        # The limit is twice the requests in flight: the other items are read ahead, or wait for their commit.
        self._source = WorkSource(item_states, ledger, 2 * share * streams + streams, clock)
        self._health = JudgeHealth(clock)
        self._store = VerdictStore(item_states, ledger, self._source, traces, on_stored)
        answers = Answers(item_states, self._source, self._store, self._health, rules, settings.retries, clocks.now)
        requests = Requests(item_states, self._source, answers, self._health, rules, traces)
        stream = StreamSettings(share, settings.stream_age, settings.answer_timeout)
        self._workers = [
            StreamWorker(judge, requests, answers, stream, clock, chance)
            for judge in judges
            for _ in range(settings.streams)
        ]
        self.broken_tests = answers.broken_tests
        """Tests that no completion can pass, as far as is known."""

    @property
    def in_flight(self) -> int:
        """Number of requests at the judges."""
        return sum(worker.in_flight for worker in self._workers)

    @property
    def trouble(self) -> str | None:
        """Why no judge can be reached or gives verdicts; None while a judge gives verdicts."""
        troubles = [worker.trouble for worker in self._workers]
        return self._health.trouble if None in troubles else next(iter(troubles), "no judge is configured")

    @property
    def storage_trouble(self) -> str | None:
        """The error while the disk is full, else None."""
        return self._store.trouble

    def wake(self) -> None:
        """Announce that completions were stored."""
        self._source.wake()

    def pause(self, paused: bool) -> None:
        """Send nothing more to the judges while paused. Replies to earlier requests are still processed."""
        self._source.pause(paused)

    async def run(self) -> None:
        """Judge until cancelled.

        Raises:
            JudgeRefusedError: a judge refuses this caller.
            LedgerBrokenError: the disk failed.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._store.run())
                for worker in self._workers:
                    group.create_task(worker.run())
        # The caller can act on a single cause only.
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
