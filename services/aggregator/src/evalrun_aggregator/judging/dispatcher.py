"""Drives the judge: what is generated goes out on lanes, verdicts go to the ledger, then they count."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from evalrun.judge.v1 import judge_pb2
from evalrun_aggregator.judging.item_traces import ItemTraces
from evalrun_aggregator.judging.lane import Lane, LaneSettings
from evalrun_aggregator.judging.retry_policy import (
    Decision,
    NotJudged,
    Outage,
    Retry,
    RetryPolicy,
    decide_failure,
    decide_loss,
    decide_verdict,
    not_judged_verdict,
    reason_of,
)
from evalrun_aggregator.judging.work import Work, WorkSource
from evalrun_aggregator.ledger.board import Board, ItemState
from evalrun_aggregator.ledger.entries import StoredCompletion, StoredVerdict
from evalrun_aggregator.ledger.errors import LedgerFullError
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_client.failure_codes import FailureCode, code_of
from evalrun_client.judge_client import JudgeAddress
from evalrun_results.run_warnings import BrokenTests
from evalrun_runtime.connections.grpc_channel import MAX_MESSAGE_BYTES

logger = logging.getLogger(__name__)

FULL_DISK_RETRY_SECONDS = 1.0
ROOM_FOR_ENVELOPE = 4096
PATIENT_SECONDS = 60.0
"""Seconds of failures without any verdict after which they are told; shorter ones are a judge's everyday life."""

BuildRequest = Callable[[int, StoredCompletion], judge_pb2.JudgeRequest]
ReadVerdict = Callable[[int, judge_pb2.Verdict], judge_pb2.Verdict]
NextFeedback = Callable[[int, StoredCompletion, judge_pb2.Verdict], str]


@dataclass(frozen=True)
class DispatchSettings:
    """Bounds of the work with the judge."""

    in_flight: int = 64
    """Requests without an answer, over all judges."""
    streams: int = 4
    """Streams an address. Each sticks to one pod: with one stream one pod would get everything."""
    stream_age: float = 50.0
    answer_timeout: float = 900.0
    retries: RetryPolicy = field(default_factory=RetryPolicy)


class Dispatcher:
    """Judges whatever the board has to be judged, until cancelled.

    Args:
        board: what is to be judged; verdicts are counted there once they are on disk.
        ledger: completions come from it, verdicts go to it.
        judges: where to ask; each gets its share of what is in flight.
        build: an item and its completion -> the request.
        read: an item and what the judge said -> its verdict; None: what the judge said.
        feedback: an item, its completion and its verdict -> what opens its sample's next turn, empty if none opens;
            None: the run has no further turns.
        now: Unix seconds.
        clock: seconds, monotonic.
        chance: jitter of delays.
        traces: of the items; None: they have none.
    """

    def __init__(
        self,
        board: Board,
        ledger: Ledger,
        judges: Sequence[JudgeAddress],
        build: BuildRequest,
        settings: DispatchSettings,
        *,
        read: ReadVerdict | None = None,
        feedback: NextFeedback | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
        traces: ItemTraces | None = None,
    ) -> None:
        self._board = board
        self._ledger = ledger
        self._build = build
        self._read = read
        self._feedback = feedback
        self._traces = traces
        self._policy = settings.retries
        self._now = now
        self._clock = clock
        lanes = max(1, len(judges)) * settings.streams
        share = max(1, settings.in_flight // lanes)
        lane = LaneSettings(share, settings.stream_age, settings.answer_timeout)
        # Twice what is in flight: the others are read ahead, or wait for their commit.
        self._source = WorkSource(board, ledger, 2 * share * lanes + lanes, clock)
        chance = chance or random.Random()  # noqa: S311 - jitter
        self._lanes = [
            Lane(judge, self._source, self, lane, clock, chance) for judge in judges for _ in range(settings.streams)
        ]
        self._outcomes: asyncio.Queue[tuple[Work, StoredVerdict]] = asyncio.Queue()
        self._verdicts = 0
        self._suites_sent: set[bytes] = set()
        self._failing_since: float | None = None
        """Time of the first failure since the last verdict."""
        self._failure = ""
        """Message of the newest request that failed since then."""
        self.on_stored: Callable[[int], None] = lambda count: None
        """Called after verdicts were stored and counted, with their number."""
        self.broken_tests = BrokenTests()
        """Tests that no answer can pass, as far as is known."""
        self.storage_trouble: str | None = None
        """Set while the disk is full."""

    @property
    def in_flight(self) -> int:
        """Requests at the judges."""
        return sum(lane.in_flight for lane in self._lanes)

    @property
    def trouble(self) -> str | None:
        """Reason why no judge can be reached, or none gives a verdict; None while one does."""
        troubles = [lane.trouble for lane in self._lanes]
        if None not in troubles:
            return next(iter(troubles), "no judge is configured")
        if not self._failure or (seconds := self._failing_seconds) < PATIENT_SECONDS:
            return None
        return f"no verdict for {seconds:.0f} s; it says: {self._failure}"

    def wake(self) -> None:
        """Announce that completions were stored."""
        self._source.wake()

    async def run(self) -> None:
        """Judge until cancelled.

        Raises:
            JudgeRefusedError: a judge refuses this caller.
            LedgerBrokenError: the disk failed.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._store())
                for lane in self._lanes:
                    group.create_task(lane.run())
        except ExceptionGroup as errors:  # one cause is what the caller can act on
            raise errors.exceptions[0] from errors

    def request(self, work: Work) -> judge_pb2.JudgeRequest | None:
        """Return the request for an item; one too large for a message is not judged, one that was cancelled neither."""
        if self._board.state(work.index) is ItemState.CANCELLED:
            self._source.done()
            return None
        request = self._build(work.index, work.completion)
        if self._traces is not None:
            request.traceparent = self._traces.of(work.index)
        work.verdicts_at_sending = self._verdicts
        if request.suite_digest in self._suites_sent and not work.with_tests:
            request.ClearField("stdio")
        elif request.suite_digest:
            self._suites_sent.add(request.suite_digest)
        size = request.ByteSize()
        if size + ROOM_FOR_ENVELOPE > MAX_MESSAGE_BYTES:
            limit = MAX_MESSAGE_BYTES >> 20
            self._act(work, NotJudged(f"the request has {size >> 20} MiB; a message holds {limit} MiB"), None)
            return None
        return request

    def answered(self, work: Work, answer: judge_pb2.JudgeStreamResponse) -> None:
        """Take an answer."""
        if answer.HasField("failure"):
            if code_of(answer.failure) is FailureCode.NOT_FOUND and not work.with_tests:
                work.with_tests = True  # another pod than the one that they were sent to, or it had to let them go
                self._act(work, Retry(0.0, work.history), None)
                return
            self._failure = answer.failure.message
            self._act(work, decide_failure(answer.failure, work.history, self._outage(work), self._policy), None)
            return
        outage = self._outage(work)
        if answer.verdict.judged:
            self._failing_since, self._failure = None, ""
            self._verdicts += 1
        verdict = answer.verdict if self._read is None else self._read(work.index, answer.verdict)
        self._act(work, decide_verdict(verdict, work.history, outage, self._policy), verdict)

    def lost(self, work: Work, reason: str) -> None:
        """Take an item back whose stream ended before its answer."""
        self._act(work, decide_loss(reason, work.history, self._outage(work), self._policy), None)

    def _outage(self, work: Work) -> Outage:
        """Return the judge's state at a failure."""
        if self._failing_since is None:
            self._failing_since = self._clock()
        return Outage(self._verdicts > work.verdicts_at_sending, self._failing_seconds)

    @property
    def _failing_seconds(self) -> float:
        return 0.0 if self._failing_since is None else self._clock() - self._failing_since

    def _act(self, work: Work, decision: Decision, verdict: judge_pb2.Verdict | None) -> None:
        if isinstance(decision, Retry):
            work.history = decision.history
            self._source.put_back(work, decision.delay)
            return
        reason = ""
        if isinstance(decision, NotJudged) or verdict is None:
            reason = decision.reason if isinstance(decision, NotJudged) else ""
            verdict = not_judged_verdict()
        elif not verdict.judged:
            reason = reason_of(verdict)
        if not verdict.judged:
            key = self._board.items.key_of(work.index)
            self.broken_tests.add(key.dataset, key.problem_id, verdict)
            logger.warning("%s was not judged: %s", key, reason)
        stored = StoredVerdict(
            row=work.completion.row,
            verdict=verdict.SerializeToString(),
            final_status=verdict.final_status,
            judged=verdict.judged,
            accepted=verdict.accepted and verdict.judged,
            recorded_at=self._now(),
            attempts=1 + work.history.failures + work.history.losses + work.history.uncounted,
            reason=reason,
            feedback="" if self._feedback is None else self._feedback(work.index, work.completion, verdict),
        )
        self._outcomes.put_nowait((work, stored))

    async def _store(self) -> None:
        """Put verdicts on disk in batches: what comes while one is written makes up the next."""
        while True:
            batch = [await self._outcomes.get()]
            while not self._outcomes.empty():
                batch.append(self._outcomes.get_nowait())
            await self._store_batch([stored for _, stored in batch])
            for work, stored in batch:
                if self._board.state(work.index) is not ItemState.CANCELLED:
                    self._board.judge(
                        work.index, judged=stored.judged, accepted=stored.accepted, final_status=stored.final_status
                    )
                    if stored.feedback:
                        self._board.open_next_turn(work.index)
                self._source.done()
                if self._traces is not None:
                    self._traces.ended(work.index, work.completion, stored)
            self.on_stored(len(batch))

    async def _store_batch(self, verdicts: Sequence[StoredVerdict]) -> None:
        """Store; while the disk is full, wait: the judge gets no more work meanwhile."""
        while True:
            try:
                await self._ledger.add_verdicts(verdicts)
            except LedgerFullError as error:
                if self.storage_trouble is None:
                    logger.error("%s; verdicts wait until there is room", error)
                self.storage_trouble = str(error)
                await asyncio.sleep(FULL_DISK_RETRY_SECONDS)
            else:
                self.storage_trouble = None
                return
