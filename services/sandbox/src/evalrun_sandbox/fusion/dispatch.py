"""Queues requests for the executor and maps its errors to this API's.

A client that is told to retry keeps its place in the queue, or finds its answer ready. Otherwise all waiting clients
would lose their places at the same moment, the slots would idle until they return, and some would never be served (4
of 64 with verl's client on a busy machine). A request whose client does not return is dropped.
"""

import asyncio
import hashlib
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from evalrun_executor.api import RunReply, RunRequest
from evalrun_executor.errors import Busy, ExecutorLost, RequestRefused
from evalrun_sandbox.fusion.refusals import BadRequest, TryAgain
from evalrun_sandbox.fusion.turns import Turns

logger = logging.getLogger(__name__)

GRACE_SECONDS = 15.0
"""Seconds for which the job of a client that was told to retry is kept. verl's client sleeps at most 2 s between two
attempts, SandboxFusion's 9 s before its fifth and last attempt."""


class ProgramExecutor(Protocol):
    """Runs programs: `evalrun_executor.executor.Executor`, or a fake."""

    @property
    def slots(self) -> int:
        """Programs that run at the same time."""
        ...

    @property
    def languages(self) -> list[str]:
        """Languages that the executor can run."""
        ...

    async def run(self, request: RunRequest) -> RunReply:
        """Run a program. Raises RequestRefused, Busy or ExecutorLost."""
        ...


class _Job:
    """A request that is waiting, running, or done."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        """Time at which the caller stops waiting for the start of the job."""
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[RunReply]
        self.abandon_timer: asyncio.TimerHandle | None = None
        """Ends the job if its caller does not return in time."""


class Dispatcher:
    """Queues programs, because `Executor.run` refuses requests beyond its slots and clients have no other sandbox."""

    def __init__(
        self,
        executor: ProgramExecutor,
        turns: Turns | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self._executor = executor
        self._clock = clock
        self._sleep = sleep
        self._grace_seconds = grace_seconds
        self._left: defaultdict[bytes, list[_Job]] = defaultdict(list)
        self.turns = turns or Turns(executor.slots)

    @property
    def languages(self) -> list[str]:
        return self._executor.languages

    async def run(self, request: RunRequest, weight: int, patience_seconds: float) -> RunReply:
        """Wait for a slot and run. Cancelling the caller also stops its program.

        Args:
            request: the executor's request.
            weight: bytes the caller holds while waiting.
            patience_seconds: maximum wait before the program starts.

        Raises:
            BadRequest: the executor cannot serve this request.
            TryAgain: no slot became free in time, or the executor failed during the run.
        """
        deadline = self._clock() + patience_seconds
        job = self._resume(request, deadline) or self._begin(request, weight, deadline)
        try:
            either: set[asyncio.Future[None] | asyncio.Task[RunReply]] = {job.task, job.started}
            await asyncio.wait(either, timeout=patience_seconds, return_when=asyncio.FIRST_COMPLETED)
            if job.task.done() or job.started.done():
                return await job.task
        except asyncio.CancelledError:
            job.task.cancel()
            raise
        self._leave(request, job)
        raise TryAgain(f"no turn came within {patience_seconds:.0f} s: every slot is busy; the request keeps its place")

    def _begin(self, request: RunRequest, weight: int, deadline: float) -> _Job:
        job = _Job(deadline)
        job.task = asyncio.create_task(self._run_in_turn(request, weight, job))
        return job

    async def _run_in_turn(self, request: RunRequest, weight: int, job: _Job) -> RunReply:
        async with self.turns.turn(weight):
            job.started.set_result(None)
            while True:
                try:
                    return await self._executor.run(request)
                except Busy as busy:
                    # Callers of the batch API hold every place of the executor's queue.
                    delay = busy.retry_after_ms / 1000
                    if self._clock() + delay > job.deadline:
                        raise TryAgain("no turn came in time: every slot is busy") from busy
                    await self._sleep(delay)
                except RequestRefused as error:
                    raise BadRequest(str(error)) from error
                except ExecutorLost as error:
                    logger.warning("a run was lost: %s", error)
                    raise TryAgain(f"the sandbox lost the program: {error}") from error

    def _leave(self, request: RunRequest, job: _Job) -> None:
        """Keep the job of a caller that was told to retry, until it returns or the grace period ends."""
        key = _hash_request(request)
        self._left[key].append(job)
        job.deadline = self._clock() + self._grace_seconds
        job.abandon_timer = asyncio.get_running_loop().call_later(self._grace_seconds, self._give_up, key, job)

    def _give_up(self, key: bytes, job: _Job) -> None:
        if job not in self._left.get(key, ()):
            # The job's caller has returned, or the job was dropped.
            return
        self._drop(key, job)
        if not job.task.cancel() and not job.task.cancelled():
            # An exception that nobody retrieves is reported by asyncio.
            job.task.exception()

    def _resume(self, request: RunRequest, deadline: float) -> _Job | None:
        """Return the oldest kept job of an equal request. Each job serves one caller, because programs may be
        random."""
        if not self._left:
            return None
        key = _hash_request(request)
        if key not in self._left:
            return None
        job = self._left[key][0]
        self._drop(key, job)
        if job.abandon_timer is not None:
            # The old timer would cut short the time that the caller has after the next attempt.
            job.abandon_timer.cancel()
        job.deadline = deadline
        failed = job.task.done() and job.task.exception() is not None
        return None if failed else job

    def _drop(self, key: bytes, job: _Job) -> None:
        self._left[key].remove(job)
        if not self._left[key]:
            del self._left[key]


def _hash_request(request: RunRequest) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode(request)).digest()
