"""One run from its first item to its outputs: what the service asks of it, and the driver that ends it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from evalrun.ledger.v1 import ledger_pb2
from evalrun_aggregator.board import Board, ItemState
from evalrun_aggregator.dispatcher import Dispatcher
from evalrun_aggregator.items import ItemKey
from evalrun_aggregator.judge_book import JudgeBook
from evalrun_aggregator.judge_client import JudgeRefusedError
from evalrun_aggregator.leases import Leases
from evalrun_aggregator.ledger import Ledger
from evalrun_aggregator.ledger_errors import LedgerError, LedgerFullError
from evalrun_aggregator.progress import Progress, may_write_outputs, run_state
from evalrun_aggregator.replicas import ReplicaBook
from evalrun_aggregator.rows import StoredCompletion, StoredReplica
from evalrun_aggregator.token_budget import BudgetBook

logger = logging.getLogger(__name__)

MOST_ITEMS = 4096
"""Items that one GetWork may take."""


class UnknownItemError(Exception):
    """A key that is not of this run."""


class OutputError(Exception):
    """The outputs could not be written; the ledger is whole, starting again writes them."""


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class DecidedGate:
    """What the run's gate decided."""

    reason: str
    """Of the condition GatePassed: NoRegression, Regression, Inconclusive or BaselineNotFound."""
    message: str
    """One line for people."""


@dataclass(frozen=True)
class Ended:
    """What is known once the outputs are written."""

    finished_at: float
    """Unix seconds."""
    output_url: str
    accepted_at_1: dict[str, Interval]
    """By dataset."""
    gate: DecidedGate | None = None
    """None where the run has no gate."""
    wandb_url: str = ""
    """The run at Weights & Biases; empty where it is not there."""
    warnings: tuple[str, ...] = ()
    """What went wrong without harm to the results, one line each."""


class Events(Protocol):
    """Who wants to know what was stored: the metrics."""

    def completed(self, dataset: str, completion: StoredCompletion) -> None:
        """Take note of a completion that was stored."""
        ...

    def progressed(self, now: float) -> None:
        """Take note that a completion or verdict was stored; Unix seconds."""
        ...


@dataclass(frozen=True)
class Clocks:
    """Where time comes from."""

    now: Callable[[], float]
    """Unix seconds."""
    monotonic: Callable[[], float]


class Run:
    """A run that is under way, or has ended.

    Args:
        name: the run's name.
        board: every item's state, restored from the ledger.
        ledger: open, owned by the caller.
        leases: over the board.
        replicas: as the ledger knew them.
        dispatcher: over the board and the ledger.
        judges: asked what they are while the run goes on.
        finish: writes outputs and the run's end; gives what is known then. Raises OutputError, LedgerError.
        started_at: when the run first started; Unix seconds.
        ended: set where the ledger says that the run has ended.
        budget: opens a problem's next samples as its completions come; None: all were there from the start.
        events: the metrics.
        clocks: where time comes from.
    """

    def __init__(
        self,
        *,
        name: str,
        board: Board,
        ledger: Ledger,
        leases: Leases,
        replicas: ReplicaBook,
        dispatcher: Dispatcher,
        judges: JudgeBook,
        finish: Callable[[], Awaitable[Ended]],
        output_tokens: int,
        started_at: float,
        ended: Ended | None,
        budget: BudgetBook | None,
        events: Events,
        clocks: Clocks,
    ) -> None:
        self.name = name
        self.board = board
        self.replicas = replicas
        self._ledger = ledger
        self._leases = leases
        self._dispatcher = dispatcher
        self._judges = judges
        self._finish = finish
        self._output_tokens = output_tokens
        self._started_at = started_at
        self._ended = ended
        self._budget = budget
        self._events = events
        self._clocks = clocks
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
            driving = (self._judge(), self._describe_judges(), self._end_when_decided())
            self._tasks = [asyncio.create_task(each) for each in driving]
            for task in self._tasks:
                task.add_done_callback(self._driver_ended)

    async def stop(self) -> None:
        """Stop judging; what is being stored is stored first."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._stores, return_exceptions=True)

    @property
    def progress(self) -> Progress:
        """What the run's state follows from."""
        board = self.board
        generated = board.items.count - board.count(ItemState.PENDING, ItemState.LEASED, ItemState.ABSENT)
        return Progress(
            started=self._asked_for_work or generated > 0,
            remaining=board.remaining,
            unjudged=board.unjudged,
            not_judged=board.count(ItemState.NOT_JUDGED),
            outputs_written=self._ended is not None,
            failure=self._failure,
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
        if self.board.unjudged and (trouble := self._dispatcher.trouble) is not None:
            return f"waiting for the judge: {trouble}"
        return "writing outputs" if self._writing else ""

    @property
    def ended(self) -> Ended | None:
        """What is known of the end; None before."""
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
        """Seconds from the first start to now, or to the end."""
        end = self._clocks.now() if self._ended is None else self._ended.finished_at
        return max(0.0, end - self._started_at)

    def known_replicas(self) -> list[ledger_pb2.Replica]:
        """Give the replicas of every worker."""
        return self.replicas.all(self._clocks.monotonic())

    def take_work(self, worker: str, limit: int, *, fresh: bool) -> list[int]:
        """Lease pending items to a worker; `fresh`: it holds nothing, its earlier leases are void."""
        self._asked_for_work = True
        if fresh:
            self._leases.void(worker)
        return self._leases.take(worker, min(limit, MOST_ITEMS), self._clocks.monotonic())

    def index_of(self, key: ItemKey) -> int:
        """Give a key's item. Raises UnknownItemError."""
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
        task = asyncio.create_task(self._submit(completions))
        self._stores.add(task)
        task.add_done_callback(self._stores.discard)
        return await asyncio.shield(task)

    async def _submit(self, completions: Sequence[tuple[int, StoredCompletion]]) -> int:
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
            self._leases.settle(index)
            self.board.move(index, ItemState.GENERATED)
            if self._budget is not None:
                self._budget.settle(self.board, index, completion.output_tokens)
            self._output_tokens += completion.output_tokens or 0
            self._events.completed(self.board.items.key_of(index).dataset, completion)
        if any(new):
            self._events.progressed(self._clocks.now())
            self._dispatcher.wake()
            self._changed.set()
        return sum(new)

    async def report_replicas(
        self,
        worker: str,
        replicas: Sequence[ledger_pb2.Replica],
        gpu_seconds: Mapping[str, float],
        warnings: Sequence[str] = (),
    ) -> None:
        """Keep what a worker says of its replicas. `gpu_seconds`: by holder. Raises LedgerError."""
        self.replicas.report(worker, replicas, gpu_seconds, self._clocks.monotonic(), warnings)
        stored = [StoredReplica(r.name, r.address, list(r.models), r.error, r.load_format) for r in replicas]
        await self._ledger.set_replicas(worker, stored, gpu_seconds)

    def _verdicts_stored(self, _count: int) -> None:
        self._events.progressed(self._clocks.now())
        self._changed.set()

    def _driver_ended(self, task: "asyncio.Task[None]") -> None:
        """Let a mistake of ours show as a failed run, not as one that waits for ever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a part of the run ended unexpectedly", exc_info=error)
            self._fail(f"unexpected {type(error).__name__}: {error}")

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

    async def _end_when_decided(self) -> None:
        """Write the outputs once everything is decided."""
        while self._ended is None:
            self._changed.clear()
            if not may_write_outputs(self.progress):
                await self._changed.wait()
                continue
            self._writing = True
            try:
                self._ended = await self._finish()
            except (OutputError, LedgerError) as error:
                self._fail(str(error))
                return
            finally:
                self._writing = False
