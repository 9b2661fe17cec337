"""One run from its first item to its outputs: what the service asks of it, and the driver that ends it."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from evalrun.ledger.v1 import ledger_pb2
from evalrun_aggregator.gate_watch import GateWatch
from evalrun_aggregator.judging.dispatcher import Dispatcher
from evalrun_aggregator.judging.judge_descriptions import JudgeDescriptions
from evalrun_aggregator.ledger.board import ItemState
from evalrun_aggregator.ledger.entries import StoredCompletion, StoredReplica
from evalrun_aggregator.ledger.errors import LedgerError, LedgerFullError
from evalrun_aggregator.ledger.items import ItemKey
from evalrun_aggregator.ledger.leases import Leases
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_aggregator.progress import Progress, may_write_outputs, run_state
from evalrun_aggregator.replicas import ReplicaRegistry
from evalrun_aggregator.run_end import RunEnd
from evalrun_aggregator.start.ledger_start import OpenedRun
from evalrun_aggregator.token_budget import TokenBudgets
from evalrun_aggregator.work_time import WorkTime
from evalrun_client.judge_client import JudgeRefusedError

logger = logging.getLogger(__name__)

MAX_ITEMS = 4096
"""Items that one GetWork may take."""


class UnknownItemError(Exception):
    """A key that is not of this run."""


class NothingToWriteError(Exception):
    """A run was told to end that has no completion yet."""


class OutputError(Exception):
    """The outputs could not be written; the ledger is whole, starting again writes them."""


class Events(Protocol):
    """Receiver of what was stored: the metrics."""

    def completed(self, dataset: str, completion: StoredCompletion) -> None:
        """Record a completion that was stored."""
        ...

    def progressed(self, now: float) -> None:
        """Record that a completion or verdict was stored; Unix seconds."""
        ...


class Outputs(Protocol):
    """Writer of the run's outputs and of its end."""

    @property
    def trouble(self) -> str:
        """Problem that keeps the outputs from being written, in one line; empty if there is none."""
        ...

    async def finish(self, partial: str) -> RunEnd:
        """Write the outputs, then record the end. Gives what is known then.

        Args:
            partial: why the run ends before everything was decided; empty for any other.

        Raises:
            OutputError: they could not be written; starting again writes them.
            LedgerError: the disk failed or is full.
        """
        ...


@dataclass(frozen=True)
class Clocks:
    """Sources of time."""

    now: Callable[[], float]
    """Unix seconds."""
    monotonic: Callable[[], float]


class Run:
    """A run that is under way, or has ended.

    Args:
        name: the run's name.
        opened: contents of the ledger at the start.
        ledger: open, owned by the caller.
        leases: over the board.
        replicas: as the ledger knew them.
        dispatcher: over the board and the ledger.
        judges: asked what they are while the run goes on.
        outputs: written by it once everything is decided.
        budget: opens a problem's next samples as its completions come; None: all were there from the start.
        events: the metrics.
        clocks: where time comes from.
        start_warnings: what is known before anything is generated.
        gate_watch: decides the sequential gates while results come; None: the run has none that may stop it.
    """

    def __init__(
        self,
        *,
        name: str,
        opened: OpenedRun,
        ledger: Ledger,
        leases: Leases,
        replicas: ReplicaRegistry,
        dispatcher: Dispatcher,
        judges: JudgeDescriptions,
        outputs: Outputs,
        budget: TokenBudgets | None,
        events: Events,
        clocks: Clocks,
        start_warnings: Sequence[str] = (),
        gate_watch: GateWatch | None = None,
    ) -> None:
        self.name = name
        self.board = opened.board
        self.replicas = replicas
        self._ledger = ledger
        self._leases = leases
        self._dispatcher = dispatcher
        self._judges = judges
        self._outputs = outputs
        self._output_tokens = opened.output_tokens
        self._started_at = opened.started_at
        self._ended = opened.ended
        self._budget = budget
        self._events = events
        self._clocks = clocks
        self._work_time = opened.work_time
        self._ended_early = opened.ended_early
        self._start_warnings = tuple(start_warnings)
        self._gate_watch = gate_watch
        self._results = asyncio.Event()
        self._asked_for_work = False
        self._failure: str | None = None
        self._storage_trouble: str | None = None
        self._writing = False
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._stores: set[asyncio.Task[int]] = set()
        dispatcher.on_stored = self._verdicts_stored

    def start(self) -> None:
        """Judge and finish in the background; a run that has ended only answers questions."""
        if self._ended is None:
            driving = {
                "judge": self._judge,
                "describe": self._describe_judges,
                "end": self._end_when_decided,
                "gates": self._watch_gates,
            }
            if self._ended_early:
                driving = {"end": self._end_when_decided}
            self._tasks = [asyncio.create_task(drive(), name=name) for name, drive in driving.items()]
            for task in self._tasks:
                task.add_done_callback(self._driver_ended)

    async def stop(self) -> None:
        """Stop judging; what is being stored is stored first."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._stores, return_exceptions=True)

    @property
    def progress(self) -> Progress:
        """Facts that the run's state is derived from."""
        board = self.board
        out = board.count(ItemState.PENDING, ItemState.LEASED, ItemState.ABSENT, ItemState.CANCELLED)
        generated = board.items.count - out
        return Progress(
            started=self._asked_for_work or generated > 0,
            remaining=board.remaining + board.may_follow,
            unjudged=board.unjudged,
            not_judged=board.count(ItemState.NOT_JUDGED),
            outputs_written=self._ended is not None,
            failure=self._failure,
            ended_early=bool(self._ended_early),
        )

    @property
    def state(self) -> "ledger_pb2.RunState.ValueType":
        """The run's state."""
        return run_state(self.progress)

    @property
    def message(self) -> str:
        """One line for people: what is wrong, or being waited for. Empty where there is nothing to say."""
        if self._failure is not None:
            return self._failure
        if self._ended is not None:
            return "; ".join(self._ended.warnings)
        if (full := self._storage_trouble or self._dispatcher.storage_trouble) is not None:
            return f"{full}: completions and verdicts wait until there is room"
        if self.board.unjudged and (trouble := self._judges.trouble or self._dispatcher.trouble) is not None:
            return f"waiting for the judge: {trouble}"
        if self.board.remaining and (trouble := self.replicas.trouble(self._clocks.monotonic())) is not None:
            return f"no endpoint answers: {trouble}"
        return (self._outputs.trouble or "writing outputs") if self._writing else ""

    @property
    def warnings(self) -> list[str]:
        """Warnings to the user, one line each: about endpoints and, at the end, about figures."""
        notices = self._dispatcher.broken_tests.first_lines() if self._ended is None else self._ended.notices
        lost = () if self._gate_watch is None else self._gate_watch.warnings
        return [*self._start_warnings, *lost, *self.replicas.warnings, *notices]

    @property
    def stopped_early(self) -> str:
        """Progress of the run when its gates decided, for people; empty if they did not stop it."""
        parts = [
            f"{each.name}: {each.cancelled} of {each.total + each.cancelled} answers were not needed"
            for each in self.board.datasets
            if each.cancelled
        ]
        return "; ".join(parts)

    @property
    def ended(self) -> RunEnd | None:
        """Facts about the end; None before it."""
        return self._ended

    @property
    def output_tokens(self) -> int:
        """Tokens generated, as far as servers counted them."""
        return self._output_tokens

    @property
    def judge_in_flight(self) -> int:
        """Requests at the judges."""
        return self._dispatcher.in_flight

    def elapsed_seconds(self) -> float:
        """Return the seconds from the first start to now, or to the end."""
        end = self._clocks.now() if self._ended is None else self._ended.finished_at
        return max(0.0, end - self._started_at)

    @property
    def work_time(self) -> WorkTime:
        """Time for which it has been at work."""
        return self._work_time

    @property
    def ended_early(self) -> str:
        """Reason why it was ended before everything was decided; empty if it was not."""
        return self._ended_early

    @property
    def remaining(self) -> int:
        """Items that a worker may still be asked for: leased ones, and later turns that a verdict may open."""
        return 0 if self._ended_early else self.board.remaining + self.board.may_follow

    def known_replicas(self) -> list[ledger_pb2.Replica]:
        """Return the replicas of every worker."""
        return self.replicas.all(self._clocks.monotonic())

    def take_work(self, worker: str, limit: int, *, fresh: bool) -> list[int]:
        """Lease pending items to a worker; `fresh`: it holds nothing, its earlier leases are void."""
        if self._ended_early:
            return []
        self._asked_for_work = True
        if fresh:
            self._leases.void(worker)
        return self._leases.take(worker, min(limit, MAX_ITEMS), self._clocks.monotonic())

    def index_of(self, key: ItemKey) -> int:
        """Return a key's item. Raises UnknownItemError."""
        index = self.board.items.index_of(key)
        if index is None or self.board.state(index) is ItemState.ABSENT:
            raise UnknownItemError(f"{key} is not of run {self.name}")
        return index

    async def submit(self, completions: Sequence[tuple[int, StoredCompletion]]) -> int:
        """Store completions; gives how many were new. When it returns they are on disk.

        A caller that goes away does not stop the storing: what the ledger has, the board must know.

        Raises:
            LedgerFullError: nothing of the batch was stored.
            LedgerBrokenError: the disk failed; the run has failed.
        """
        if self._ended_early:  # the outputs are being written without them
            return 0
        task = asyncio.create_task(self._submit(completions))
        self._stores.add(task)
        task.add_done_callback(self._stores.discard)
        return await asyncio.shield(task)

    async def _submit(self, completions: Sequence[tuple[int, StoredCompletion]]) -> int:
        # What a gate has made needless is dropped: whoever still works on it learns so when it asks for more.
        completions = [each for each in completions if self.board.state(each[0]) is not ItemState.CANCELLED]
        try:
            new = await self._ledger.add_completions([completion for _, completion in completions])
        except LedgerFullError as error:
            self._storage_trouble = str(error)
            raise
        except LedgerError as error:
            self._fail(str(error))
            raise
        self._storage_trouble = None
        for (index, completion), is_new in zip(completions, new, strict=True):
            if not is_new:
                continue
            if self.board.state(index) is ItemState.CANCELLED:
                continue
            self._leases.settle(index)
            self.board.move(index, ItemState.GENERATED)
            if self._budget is not None:
                self._budget.settle(self.board, index, completion.output_tokens)
            self._output_tokens += completion.output_tokens or 0
            self._work_time.completed(completion.started_at, completion.generation_seconds)
            self._events.completed(self.board.items.key_of(index).dataset, completion)
        if any(new):
            self._events.progressed(self._clocks.now())
            self._dispatcher.wake()
            self._changed.set()
        return sum(new)

    async def end_early(self, reason: str) -> None:
        """End the run with what there is. One that has ended, writes its outputs, or was told before, stays as it is.

        Raises:
            NothingToWriteError: there is no completion yet.
            LedgerError: the disk failed or is full: the run goes on.
        """
        if self._ended is not None or self._ended_early or self._writing:
            return
        if self.board.remaining == self.board.items.count - self.board.count(ItemState.ABSENT):
            raise NothingToWriteError(f"run {self.name} has no completion yet: there is nothing to write")
        await self._ledger.set_facts(ended_early=reason)
        self._ended_early = reason
        logger.info("the run ends early: %s", reason)
        for task in self._tasks:
            if task.get_name() in {"judge", "describe"}:
                task.cancel()
        self._changed.set()

    async def report_replicas(
        self,
        worker: str,
        replicas: Sequence[ledger_pb2.Replica],
        gpu_seconds: Mapping[str, float],
        warnings: Sequence[str] = (),
    ) -> None:
        """Keep what a worker says of its replicas. `gpu_seconds`: by holder. Raises LedgerError."""
        self.replicas.report(worker, replicas, gpu_seconds, self._clocks.monotonic(), warnings)
        stored = [
            StoredReplica(r.name, r.address, list(r.models), r.error, r.load_format, dict(r.engine)) for r in replicas
        ]
        await self._ledger.set_replicas(worker, stored, gpu_seconds)

    def _verdicts_stored(self, _count: int) -> None:
        now = self._clocks.now()
        self._work_time.judged(now)
        self._events.progressed(now)
        self._changed.set()
        self._results.set()

    def _driver_ended(self, task: "asyncio.Task[None]") -> None:
        """Turn an internal error into a failed run, instead of one that waits forever."""
        if broken := unexpected_end(task):
            self._fail(broken)

    def _fail(self, reason: str) -> None:
        logger.error("the run cannot go on: %s", reason)
        self._failure = self._failure or reason

    async def _judge(self) -> None:
        try:
            await self._judges.suitable.wait()
            await self._dispatcher.run()
        except (JudgeRefusedError, LedgerError) as error:
            self._fail(str(error))

    async def _describe_judges(self) -> None:
        try:
            await self._judges.run()
        except (JudgeRefusedError, LedgerError) as error:
            self._fail(str(error))

    async def _watch_gates(self) -> None:
        """Cancel what is left of a dataset once the gates have decided without it."""
        watch = self._gate_watch
        if watch is None:
            return
        self._results.set()  # what the ledger held may be enough
        try:
            while self._ended is None and not self._writing:
                await self._results.wait()
                self._results.clear()
                kept = await watch.look(self._ledger, self.board)
                if kept and not self._writing and not self._ended_early:
                    for index in self.board.cancel(kept):
                        self._leases.settle(index)
                    logger.info("the gates have decided: %s", self.stopped_early)
                    self._changed.set()
        except LedgerError as error:
            self._fail(str(error))

    async def _end_when_decided(self) -> None:
        """Write the outputs once everything is decided."""
        while self._ended is None:
            self._changed.clear()
            if not may_write_outputs(self.progress):
                await self._changed.wait()
                continue
            self._writing = True
            try:
                self._ended = await self._outputs.finish(self._ended_early)
            except (OutputError, LedgerError) as error:
                self._fail(str(error))
                return
            finally:
                self._writing = False


def unexpected_end(task: "asyncio.Task[None]") -> str:
    """Return how a task ended that nobody asked to end so; empty if it returned, or was cancelled by request."""
    if task.cancelled():
        return "" if task.cancelling() else f"the part {task.get_name()!r} of the run was cut off"
    error = task.exception()
    if error is None:
        return ""
    logger.error("a part of the run ended unexpectedly", exc_info=error)
    return f"unexpected {type(error).__name__}: {error}"
