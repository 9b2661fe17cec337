"""Replays function tests' assertions in a contained child of the gateway, which never sees a candidate."""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from evalrun_executor.api import Level, Limits, ProgramRun, RunReply, RunRequest
from evalrun_executor.containment import ContainmentReport
from evalrun_executor.errors import ExecutorLost, RequestRefused, Unusable
from evalrun_executor.executor import Executor, ExecutorPlan
from evalrun_executor.harness import VALUES, Harness, list_modules
from evalrun_judge.function_tests import shared_assertions
from evalrun_judge.pool.slot_queue import NoSandboxError
from evalrun_judge.sandboxes import RunRefusedError
from evalrun_runtime.exits import BadInputError

ASSERTION_HARNESS = Harness(
    (
        *VALUES,
        *list_modules(
            "evalrun_judge.function_tests.harness",
            Path(__file__).parent / "harness",
            (
                *("current", "placeholders", "proxies", "stand_ins", "source", "definitions", "findings"),
                *("own_process", "problem", "run", "outcome", "main"),
            ),
        ),
    )
)
"""Runs a problem's assertions."""

MODE = "assertions"

ATTEMPTS = 3

MAX_BATCH = 8
"""Maximum number of requests that go to the executor together."""

GATHER_SECONDS = 0.05
"""Seconds that a request waits for others while programs wait for a sandbox. Nothing is idle meanwhile, and each of
eight requests that share a process costs a third of a request that has its own process."""


class AssertionRunner(Protocol):
    """Interface that runs the assertion harness on an input."""

    @property
    def level(self) -> Level:
        """Containment level of the child."""
        ...

    async def start(self) -> None:
        """Start the child. Raises BadInputError if it cannot be contained as required."""
        ...

    async def run(
        self, stdin: bytes, limits: Limits, on_slot: Callable[[], None], *, shareable: bool = False
    ) -> ProgramRun:
        """Replay what `stdin` describes. Waits for a slot, and then calls `on_slot`.

        Args:
            stdin: a request of the assertion harness.
            limits: limits of the process.
            on_slot: called once the request has a slot.
            shareable: the process may serve other requests too.

        Raises:
            NoSandboxError: nothing is known about the assertions.
            RunRefusedError: no process may have these limits.
        """
        ...

    async def close(self) -> None:
        """End the child."""
        ...


class ReplayExecutor(Protocol):
    """The part of `evalrun_executor.executor.Executor` that is used here."""

    @property
    def report(self) -> ContainmentReport:
        """Containment level reached; only after `start`."""
        ...

    async def start(self) -> None:
        """Start the child. Raises `errors.Unusable`."""
        ...

    async def run(self, request: RunRequest) -> RunReply:
        """Run a batch. Raises `errors.ExecutorLost`."""
        ...

    async def close(self) -> None:
        """End the child."""
        ...


def replay_executor(slots: int, required_level: Level, package_dirs: Sequence[Path] = ()) -> Executor:
    """Create an executor that has the assertion harness. Its `start` fails below the required level.

    Args:
        slots: maximum number of simultaneous processes.
        required_level: required containment level.
        package_dirs: directories of packages that tests may import.
    """
    plan = ExecutorPlan(
        slots=slots, required=required_level, preload={MODE: ASSERTION_HARNESS}, package_dirs=package_dirs
    )
    return Executor(plan)


@dataclass(frozen=True, slots=True, eq=False)
class _Replay:
    stdin: bytes
    limits: Limits
    on_slot: Callable[[], None]
    shareable: bool
    done: asyncio.Future[ProgramRun]


class ContainedAssertions:
    """Replays assertions in the sandbox's own executor, as a child of this process."""

    def __init__(self, executor: ReplayExecutor, slots: int, crowded: Callable[[], bool] = lambda: False) -> None:
        """Store the executor, not started yet.

        Args:
            executor: see `replay_executor`.
            slots: simultaneous batches; the executor admits that many.
            crowded: returns whether programs wait for a sandbox; see `GATHER_SECONDS`.
        """
        self._executor = executor
        self._crowded = crowded
        self._gathered: asyncio.TimerHandle | None = None
        self._slots = slots
        self._waiting: deque[_Replay] = deque()
        self._workers: set[asyncio.Task[None]] = set()

    @property
    def level(self) -> Level:
        """Containment level of the child."""
        return self._executor.report.level

    async def start(self) -> None:
        """Start the child; see `AssertionRunner.start`."""
        try:
            await self._executor.start()
        except Unusable as error:
            raise BadInputError(f"the judge's assertions cannot be contained here: {error}") from error

    async def close(self) -> None:
        """End the child."""
        self._stop_gathering()
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await self._executor.close()

    async def run(
        self, stdin: bytes, limits: Limits, on_slot: Callable[[], None], *, shareable: bool = False
    ) -> ProgramRun:
        """Replay assertions; see `AssertionRunner.run`."""
        shareable = shareable and len(stdin) <= shared_assertions.MAX_SHARED_BYTES
        # The callback runs in this request's context. The worker that calls it has the trace of another request.
        begin = partial(contextvars.copy_context().run, on_slot)
        replay = _Replay(stdin, limits, begin, shareable, asyncio.get_running_loop().create_future())
        self._waiting.append(replay)
        if self._gathers():
            self._gathered = self._gathered or asyncio.get_running_loop().call_later(GATHER_SECONDS, self._begin)
        else:
            self._begin()
        return await replay.done

    def _gathers(self) -> bool:
        """Return whether waiting requests may wait for more."""
        return len(self._waiting) < MAX_BATCH and self._crowded()

    def _stop_gathering(self) -> None:
        if self._gathered is not None:
            self._gathered.cancel()
            self._gathered = None

    def _begin(self) -> None:
        """Start another worker for the waiting requests, unless every slot has a worker."""
        self._stop_gathering()
        if len(self._workers) < self._slots:
            self._workers.add(asyncio.create_task(self._work()))

    async def _work(self) -> None:
        """Replay waiting requests, batch after batch."""
        try:
            await self._work_off()
        finally:
            # Remove the worker here, not in a done callback: requests that arrive in between would wait for a worker
            # that has ended.
            worker = asyncio.current_task()
            self._workers = {one for one in self._workers if one is not worker}

    async def _work_off(self) -> None:
        while batch := self._next_batch():
            try:
                for replay in batch:
                    replay.on_slot()
                ends = await self._run_replays(batch)
            except asyncio.CancelledError:
                for replay in batch:
                    replay.done.cancel()
                raise
            except Exception as error:  # noqa: BLE001 - waiters must get the error, or they would wait without end
                ends = [error] * len(batch)
            for replay, end in zip(batch, ends, strict=True):
                if replay.done.done():
                    continue
                if isinstance(end, Exception):
                    replay.done.set_exception(end)
                else:
                    replay.done.set_result(end)
            if self._gathered is not None and self._gathers():
                # The timer or the next request starts a worker again.
                return

    def _next_batch(self) -> list[_Replay]:
        """Take waiting requests with the same limits: a slot's share, or up to `MAX_BATCH` while programs wait."""
        size = MAX_BATCH if self._crowded() else min(MAX_BATCH, -(-len(self._waiting) // self._slots))
        batch: list[_Replay] = []
        while self._waiting and len(batch) < size:
            # A request whose caller is gone is dropped.
            if self._waiting[0].done.done():
                self._waiting.popleft()
            elif batch and self._waiting[0].limits != batch[0].limits:
                break
            else:
                batch.append(self._waiting.popleft())
        return batch

    async def _run_replays(self, batch: Sequence[_Replay]) -> list[ProgramRun | Exception]:
        """Return the result of each request: those that may share a process together first, then the rest alone."""
        limits = batch[0].limits
        sharing = [replay for replay in batch if replay.shareable]
        ends: dict[_Replay, ProgramRun | Exception] = {}
        if len(sharing) > 1:
            (run,) = await self._run_stdins([shared_assertions.together([replay.stdin for replay in sharing])], limits)
            if isinstance(run, ProgramRun):
                found = zip(sharing, shared_assertions.apart(run, len(sharing)), strict=True)
                ends.update((replay, end) for replay, end in found if end is not None)
        left = [replay for replay in batch if replay not in ends]
        if left:
            ends.update(zip(left, await self._run_stdins([replay.stdin for replay in left], limits), strict=True))
        return [ends[replay] for replay in batch]

    async def _run_stdins(self, stdins: Sequence[bytes], limits: Limits) -> list[ProgramRun | Exception]:
        """Return each run's result: NoSandboxError if nothing is known, RunRefusedError if it is never accepted."""
        request = RunRequest("python", "", list(stdins), limits, mode=MODE)
        error: ExecutorLost | None = None
        for _ in range(ATTEMPTS):
            try:
                return [*(await self._executor.run(request)).runs]
            except ExecutorLost as lost:
                error = lost
            except RequestRefused as refused:
                return [RunRefusedError(str(refused)) for _ in stdins]
        # Any of these requests may have killed the child. Each runs again alone, so that it cannot end the others.
        if len(stdins) > 1:
            return [end for stdin in stdins for end in await self._run_stdins([stdin], limits)]
        return [NoSandboxError(f"the assertions' child died {ATTEMPTS} times: {error}")]
