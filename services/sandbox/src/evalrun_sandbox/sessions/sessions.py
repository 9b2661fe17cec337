"""The sessions of a sandbox: executing, idle, and ended with the reason."""

import asyncio
import hashlib
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge

from evalrun_executor.errors import Busy, ExecutorLost
from evalrun_sandbox.sessions.footprint import Footprint, footprint
from evalrun_sandbox.sessions.interpreter import Interpreter, Interpreters, Outcome
from evalrun_sandbox.sessions.policy import Budget, Cause, Idle, to_end

logger = logging.getLogger(__name__)

WORKER_BYTES = 2 << 20
"""Assumed memory of a session's worker, which cannot be read."""
SWEEP_SECONDS = 0.5
"""Maximum delay of the end of an unused session. A sweep of 1,000 sessions takes about 2 ms."""
TURN_SECONDS = 0.5
"""Minimum time of an execution in a slot. After it the execution makes room for waiting callers, until its next turn.
"""
_LOOK_SECONDS = 0.1
"""Seconds between two checks whether somebody waits."""
MAX_PAUSED = 16
"""Maximum number of begun executions that wait for another turn. The files that they hold are not counted."""
_BUDGET_SECONDS = 0.25
"""Seconds between two measurements of what sessions hold, which cost more than most executions."""
MAX_PATIENCE_SECONDS = 60.0
"""Longest wait of an execution for a slot."""
_RETRY_MS = 1000
_KEPT_ENDED = 1024
_KEPT_REPLIES = 64
_RAN_SECONDS = 0.1
"""CPU time after which an interpreter counts as running although it should be stopped."""


class StateLost(Exception):  # noqa: N818 - an answer, not a failure of ours
    """The session does not exist: it ended, its process or pod is gone, or it was never created.

    The text names the case.
    """


class Conflict(Exception):  # noqa: N818 - an answer, not a failure of ours
    """The execution's number does not follow the last number."""


class SlotHolder(Protocol):
    """Source of slots: `evalrun_executor.executor.Executor`, or a fake."""

    def slot(self, patience_seconds: float | None) -> AbstractAsyncContextManager[None]:
        """Hold a slot inside the block. Raises Busy."""
        ...

    @property
    def waiting(self) -> int:
        """Number of callers that wait for slots."""
        ...


@dataclass(frozen=True)
class SessionLimits:
    """Limits of all sessions."""

    max_sessions: int
    memory_mib: int
    """Maximum memory of a session, at any time."""
    budget: Budget


@dataclass(frozen=True)
class Execution:
    """Code to execute, with its limits."""

    code: str
    time_seconds: float
    output_bytes: int

    @property
    def digest(self) -> bytes:
        """Digest of the code and its limits, by which a repeated request is recognized."""
        limits = f"{self.time_seconds} {self.output_bytes} "
        return hashlib.sha256((limits + self.code).encode()).digest()


@dataclass(eq=False)
class _Open:
    interpreter: Interpreter
    outcome: Outcome
    """Outcome of the last execution."""
    idle_since: float
    number: int = 0
    """Number of the last begun execution."""
    digest: bytes = b""
    task: "asyncio.Task[Outcome] | None" = None
    running: bool = False
    """Whether the session holds a slot. An execution that waits for a slot leaves the session stopped."""
    paused: bool = False
    """Whether the session's execution has begun and waits for another turn."""
    memory_bytes: int | None = None
    """Memory of the process; None if unknown."""
    cpu_seconds: float | None = None
    """CPU seconds of the process when it was stopped."""

    @property
    def executing(self) -> bool:
        return self.task is not None and not self.task.done()


@dataclass(frozen=True)
class _Ended:
    reason: str
    number: int = 0
    digest: bytes = b""
    outcome: Outcome | None = field(default=None)
    """Outcome of the execution that ended the session."""


class Sessions:
    """All sessions of this sandbox. For one event loop."""

    def __init__(
        self,
        slots: SlotHolder,
        interpreters: Interpreters,
        limits: SessionLimits,
        registry: CollectorRegistry,
        *,
        clock: Callable[[], float] = time.monotonic,
        look: Callable[[int, str], Footprint | None] = footprint,
    ) -> None:
        self._slots = slots
        self._interpreters = interpreters
        self.limits = limits
        self._clock = clock
        self._look = look
        self._open: dict[str, _Open] = {}
        self._ended: OrderedDict[str, _Ended] = OrderedDict()
        self._opening = 0
        self._ending: set[Interpreter] = set()
        self._unmeasured: dict[str, _Open] = {}
        self._measuring: asyncio.Task[None] | None = None
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep_again)
        count = Gauge("evalrun_sandbox_sessions", "Open live sessions.", registry=registry)
        count.set_function(lambda: len(self._open))
        memory = Gauge("evalrun_sandbox_session_memory_bytes", "Memory of all idle sessions.", registry=registry)
        memory.set_function(lambda: sum(one.memory_bytes for one in self._idle()))
        self._executions = Counter(
            "evalrun_sandbox_session_executions", "Executions in live sessions, by answer.", ["answer"],
            registry=registry,
        )  # fmt: skip
        self._lost = Counter(
            "evalrun_sandbox_sessions_lost", "Sessions that ended before their close, by cause.", ["cause"],
            registry=registry,
        )  # fmt: skip
        for answer in ("done", "busy", "lost"):
            self._executions.labels(answer)
        for cause in get_args(Cause):
            self._lost.labels(cause)

    async def create(self, files: Mapping[str, bytes] | None = None, memory_mib: int | None = None) -> str:
        """Open a session and return its unguessable name.

        Args:
            files: initial contents of the session's directory, by path.
            memory_mib: the session's memory limit, if lower than the common limit.

        Raises:
            Busy: the maximum number of sessions is open.
            Unusable: the zygote of the sessions cannot start.
            ExecutorLost: the session could not be opened now.
        """
        if len(self._open) + self._opening + len(self._ending) >= self.limits.max_sessions:
            raise Busy(0, _RETRY_MS)
        self._opening += 1
        try:
            memory = min(memory_mib or self.limits.memory_mib, self.limits.memory_mib)
            interpreter, outcome = await self._interpreters.open(memory, files or {})
        finally:
            self._opening -= 1
        session = secrets.token_hex(16)
        opened = _Open(interpreter, outcome, self._clock())
        self._open[session] = opened
        interpreter.ended.add_done_callback(lambda _: self._gone(session, opened))
        opened.cpu_seconds = _cpu_seconds(outcome.pid)
        await self._measure({session: opened})
        return session

    async def execute(self, session: str, execution: Execution, number: int | None = None) -> tuple[int, Outcome]:
        """Execute code. Return the execution's number and its outcome.

        The execution continues when the caller leaves. Code that is sent again with its number is not executed again.

        Args:
            session: name of the session.
            execution: the code.
            number: 1 for a session's first execution, and so on; None: the next.

        Raises:
            StateLost: there is no such session, or it was lost before it could reply.
            Conflict: the number does not follow the last number, or the last execution has not ended.
            Busy: no slot was free for long; nothing was executed.
        """
        ended = self._ended.get(session)
        if ended is not None:
            if ended.outcome is not None and (ended.number, ended.digest) == (number, execution.digest):
                return ended.number, ended.outcome
            raise StateLost(ended.reason)
        opened = self._find(session)
        if opened.task is not None and number == opened.number:
            if opened.digest != execution.digest:
                raise Conflict(f"execution {number} was another one: give the next the number {opened.number + 1}")
            return opened.number, await asyncio.shield(opened.task)
        if opened.executing:
            raise Conflict(f"execution {opened.number} has not ended")
        if number not in (None, opened.number + 1):
            raise Conflict(f"the next execution of this session has the number {opened.number + 1}, not {number}")
        opened.number += 1
        opened.digest = execution.digest
        opened.task = asyncio.create_task(self._execute(session, opened, execution))
        opened.task.add_done_callback(_retrieve)
        return opened.number, await asyncio.shield(opened.task)

    async def fetch(self, session: str, names: Sequence[str]) -> Mapping[str, bytes] | None:
        """Return files of a session's directory; None: they are too large together. Raises StateLost or Conflict."""
        opened = self._find(session)
        if opened.executing:
            raise Conflict(f"execution {opened.number} has not ended")
        try:
            return await opened.interpreter.fetch(names)
        except ExecutorLost as error:
            self._lose(session, opened, "gone", str(error))
            raise StateLost(str(error)) from error

    def end(self, session: str) -> None:
        """Close a session, even while it executes. Closing an unknown session succeeds."""
        opened = self._open.get(session)
        if opened is not None:
            self._remove(session, opened, _Ended("it was closed"))

    async def close(self) -> None:
        """End every session."""
        self._sweeping.cancel()
        if self._measuring is not None:
            self._measuring.cancel()
            await asyncio.gather(self._measuring, return_exceptions=True)
        await self._interpreters.close()
        for opened in self._open.values():
            opened.interpreter.close()
        self._open.clear()

    def sweep(self) -> None:
        """End the sessions that have expired, whose process is gone, or that ran while they were stopped."""
        for session, opened in list(self._open.items()):
            if opened.interpreter.gone:
                self._gone(session, opened)
            elif not opened.executing and opened.cpu_seconds is not None:
                now = _cpu_seconds(opened.outcome.pid)
                if now is not None and now > opened.cpu_seconds + _RAN_SECONDS:
                    self._lose(session, opened, "ran", "it used CPU time while it was stopped")
        self._ending = {interpreter for interpreter in self._ending if not interpreter.gone}
        self._end_excess()

    def _sweep_again(self) -> None:
        """Sweep now and schedule the next sweep first, so that an internal error is only logged by the event loop."""
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep_again)
        self.sweep()

    async def _execute(self, session: str, opened: _Open, execution: Execution) -> Outcome:
        previous = opened.cpu_seconds
        opened.cpu_seconds = None
        try:
            outcome = await self._execute_in_turns(session, opened, execution)
        except Busy:
            opened.number -= 1
            opened.task = None
            opened.cpu_seconds = previous
            self._executions.labels("busy").inc()
            raise
        except ExecutorLost as error:
            self._executions.labels("lost").inc()
            self._lose(session, opened, "gone", str(error))
            ended = self._ended.get(session)
            raise StateLost(ended.reason if ended is not None else str(error)) from error
        self._executions.labels("done").inc()
        opened.outcome = outcome
        opened.idle_since = self._clock()
        if outcome.lost:
            self._lose(session, opened, "ended", outcome.lost, outcome)
        else:
            self._measure_later(session, opened)
        return outcome

    async def _execute_in_turns(self, session: str, opened: _Open, execution: Execution) -> Outcome:
        """Execute code, which is paused between its turns: a loop would keep all others waiting until its limit.

        Raises:
            Busy: no slot was free for long; nothing was executed.
            ExecutorLost: the session was lost.
        """
        work: asyncio.Task[Outcome] | None = None
        try:
            while work is None or not work.done():
                async with self._slots.slot(MAX_PATIENCE_SECONDS if work is None else None):
                    opened.running, opened.paused = True, False
                    if work is None:
                        work = asyncio.create_task(
                            opened.interpreter.execute(execution.code, execution.time_seconds, execution.output_bytes)
                        )
                    else:
                        opened.interpreter.resume()
                    await self._have_turn(work)
                    opened.running = False
                    if not work.done():
                        opened.interpreter.pause()
                        opened.paused = True
                        self._measure_soon(session, opened)
            return work.result()
        finally:
            opened.running = opened.paused = False
            if work is not None:
                work.cancel()

    async def _have_turn(self, work: "asyncio.Task[Outcome]") -> None:
        """Wait until the work is done, or until it has had its turn and should make room for a waiting caller."""
        seconds = TURN_SECONDS
        while True:
            done, _ = await asyncio.wait({work}, timeout=seconds)
            if done or (self._slots.waiting and sum(one.paused for one in self._open.values()) < MAX_PAUSED):
                return
            seconds = _LOOK_SECONDS

    def _find(self, session: str) -> _Open:
        opened = self._open.get(session)
        if opened is not None and opened.interpreter.gone:
            self._gone(session, opened)
            opened = None
        if opened is None:
            ended = self._ended.get(session)
            raise StateLost(ended.reason if ended is not None else "this sandbox has no such session")
        return opened

    def _gone(self, session: str, opened: _Open) -> None:
        # An execution in progress reports the loss itself, with its cause.
        if not opened.executing:
            self._lose(session, opened, "gone", "its process is gone")

    def _lose(self, session: str, opened: _Open, cause: Cause, reason: str, outcome: Outcome | None = None) -> None:
        if self._open.get(session) is not opened:
            return
        self._lost.labels(cause).inc()
        logger.info("a session was lost (%s): %s", cause, reason)
        self._remove(session, opened, _Ended(reason, opened.number, opened.digest, outcome))

    def _remove(self, session: str, opened: _Open, ended: _Ended) -> None:
        del self._open[session]
        opened.interpreter.close()
        if not opened.interpreter.gone:
            interpreter = opened.interpreter
            self._ending.add(interpreter)
            interpreter.ended.add_done_callback(lambda _: self._ending.discard(interpreter))
        self._ended[session] = ended
        if len(self._ended) > _KEPT_ENDED:
            self._ended.popitem(last=False)
        for name in list(self._ended)[-_KEPT_REPLIES - 1 : -_KEPT_REPLIES]:
            self._ended[name] = _Ended(self._ended[name].reason)

    def _idle(self) -> list[Idle]:
        return [
            Idle(
                session,
                self._clock() if opened.executing else opened.idle_since,
                self._memory(opened),
                max(0, opened.outcome.threads - 1),
            )
            for session, opened in self._open.items()
            if not opened.running
        ]

    def _memory(self, opened: _Open) -> int:
        """Return the memory that counts for a session: its whole limit until the kernel reveals its use."""
        outcome = opened.outcome
        memory = self.limits.memory_mib << 20 if opened.memory_bytes is None else opened.memory_bytes
        return memory + outcome.held_bytes + len(outcome.stdout) + len(outcome.stderr) + WORKER_BYTES

    def _measure_later(self, session: str, opened: _Open) -> None:
        opened.cpu_seconds = _cpu_seconds(opened.outcome.pid)
        self._measure_soon(session, opened)

    def _measure_soon(self, session: str, opened: _Open) -> None:
        self._unmeasured[session] = opened
        if self._measuring is None or self._measuring.done():
            self._measuring = asyncio.create_task(self._measure_together())

    async def _measure_together(self) -> None:
        """Measure the sessions that have become idle, and end sessions over the budget."""
        while self._unmeasured:
            await asyncio.sleep(_BUDGET_SECONDS)
            idle = {session: opened for session, opened in self._unmeasured.items() if not opened.running}
            # A running session is measured again later.
            self._unmeasured.clear()
            await self._measure(idle)
            self._end_excess()

    async def _measure(self, idle: Mapping[str, _Open]) -> None:
        numbers = {session: opened.number for session, opened in idle.items()}
        wanted = [(opened.outcome.pid, opened.interpreter.place) for opened in idle.values()]
        footprints = await asyncio.to_thread(lambda: [self._look(*one) for one in wanted])
        for (session, opened), found in zip(idle.items(), footprints, strict=True):
            if self._open.get(session) is not opened or opened.number != numbers[session]:
                continue
            opened.memory_bytes = None if found is None else found.memory_bytes
            if found is not None and found.maps_removed_file:
                self._lose(session, opened, "memory", "it maps a file that it has removed, which nobody could count")

    def _end_excess(self) -> None:
        for ending in to_end(self._idle(), self.limits.budget, self._clock()):
            self._lose(ending.session, self._open[ending.session], ending.cause, ending.reason)


def _cpu_seconds(pid: int) -> float | None:
    """Return the CPU seconds of a process; None if the process has ended."""
    try:
        # The number names the process's own CPU clock: include/linux/posix-timers.h.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return None


def _retrieve(task: "asyncio.Task[Outcome]") -> None:
    if not task.cancelled():
        # The callers may have left, and asyncio reports an exception that nobody retrieves.
        task.exception()
