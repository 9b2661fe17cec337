"""Sends requests to a judge over a single stream at a time, and opens the next stream when it ends."""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from evalrun_aggregator.judging.answers import Answers
from evalrun_aggregator.judging.requests import Requests
from evalrun_aggregator.judging.work import Work
from evalrun_client.judge_client import JudgeAddress, JudgeLostError, JudgeStream
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_runtime.backoff import backoff_seconds

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamSettings:
    """Settings of a stream worker's streams; times in seconds."""

    in_flight: int
    """Maximum number of requests without a reply."""
    stream_age: float = 50.0
    """Age at which a stream gets no more requests and the next stream is opened, to the next pod behind a name. It is
    shorter than the servers' own connection age of 60 s, so that a stream ends empty instead of being cut."""
    answer_timeout: float = 900.0
    """Maximum time of a reply. A slower judge counts as hung, and the stream is given up."""
    first_backoff: float = 0.1
    max_backoff: float = 5.0

    @property
    def deadline(self) -> float:
        """The deadline of a request. It is shorter than the stream worker's own timeout, so that a working judge can
        report the expiry in time and the stream's other requests continue."""
        return 0.9 * self.answer_timeout


class StreamWorker:
    """Sends requests to a judge and passes its replies on. `run` lasts until it is cancelled."""

    def __init__(
        self,
        judge: JudgeAddress,
        requests: Requests,
        answers: Answers,
        settings: StreamSettings,
        clock: Callable[[], float],
        chance: random.Random,
    ) -> None:
        self._judge = judge
        self._requests = requests
        self._answers = answers
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._sent: dict[str, Work] = {}
        self._room = asyncio.Semaphore(settings.in_flight)
        self._sequence = 0
        self._answered = 0
        self.trouble: str | None = None
        """Reason why the judge cannot be reached; None while it can."""

    @property
    def in_flight(self) -> int:
        """Number of requests without a reply."""
        return len(self._sent)

    async def run(self) -> None:
        """Judge until cancelled.

        Raises:
            JudgeRefusedError: the judge refuses this caller.
            LedgerError: the ledger cannot be read.
        """
        failures = 0
        while True:
            answered = self._answered
            try:
                await self._use_stream()
                failures = 0
            except JudgeLostError as error:
                failures = 0 if self._answered > answered else failures + 1
                self.trouble = str(error) if failures else None
                backoff = backoff_seconds(failures + 1, self._settings.first_backoff, self._settings.max_backoff)
                (logger.info if failures <= 1 else logger.warning)("%s; opening another stream", error)
                await asyncio.sleep(backoff * self._chance.uniform(0.5, 1.0))

    async def _use_stream(self) -> None:
        """Open a stream when there is work, use it until its maximum age, and wait for its last replies."""
        await self._requests.wait()
        async with self._judge.open() as stream:
            feeding = asyncio.create_task(self._feed(stream))
            reason = "the stream ended"
            try:
                await self._receive_all(stream, feeding)
            except JudgeLostError as error:
                reason = str(error)
                raise
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
                lost, self._sent = self._sent, {}
                for work in lost.values():
                    self._room.release()
                    self._answers.record_loss(work, reason)

    async def _feed(self, stream: JudgeStream) -> None:
        end = self._clock() + self._settings.stream_age
        while (taken := await self._next(end)) is not None:
            work, request = taken
            self._sequence += 1
            request.request_id = str(self._sequence)
            request.deadline_seconds = self._settings.deadline
            work.sent_at = self._clock()
            self._sent[request.request_id] = work
            await stream.send(request)
        await stream.finish_sending()

    async def _next(self, end: float) -> tuple[Work, judge_pb2.JudgeRequest] | None:
        """Return the next item to send with its request; None once it is `end`."""
        try:
            async with asyncio.timeout(max(0.0, end - self._clock())):
                await self._room.acquire()
                try:
                    return await self._requests.take()
                except BaseException:
                    self._room.release()
                    raise
        except TimeoutError:
            return None

    async def _receive_all(self, stream: JudgeStream, feeding: "asyncio.Task[None]") -> None:
        """Receive replies until the stream ends. Raises the error that ends the stream, or the sending, early."""
        while True:
            answer = await self._receive(stream, feeding)
            if answer is None:
                if self._sent or not feeding.done():
                    raise JudgeLostError(f"judge {self._judge.address}: the stream ended early")
                return
            self.trouble = None
            self._answered += 1
            work = self._sent.pop(answer.request_id, None)
            if work is None:
                logger.warning("judge %s: an answer to %r, which was not asked", self._judge.address, answer.request_id)
                continue
            self._room.release()
            self._answers.record(work, answer)

    async def _receive(
        self, stream: JudgeStream, feeding: "asyncio.Task[None]"
    ) -> judge_pb2.JudgeStreamResponse | None:
        """Return the next reply; None at the end of the stream."""
        reading = asyncio.create_task(stream.receive())
        try:
            while not reading.done():
                oldest = next(iter(self._sent.values()), None)
                since = self._clock() if oldest is None else oldest.sent_at
                left = since + self._settings.answer_timeout - self._clock()
                if left <= 0:
                    seconds = self._settings.answer_timeout
                    raise JudgeLostError(f"judge {self._judge.address}: no answer within {seconds:.0f} s")
                tasks: set[asyncio.Task[Any]] = {reading} if feeding.done() else {reading, feeding}
                await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if reading.cancelled() or feeding.cancelled():
                    # gRPC raises CancelledError in calls that it ends itself. Passed on, it would end the stream worker
                    # without a trace.
                    raise JudgeLostError(f"judge {self._judge.address}: the stream was cancelled")
                if feeding.done() and (error := feeding.exception()) is not None:
                    raise error
            return reading.result()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
