"""Drives a run to its outputs in the background."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from evalrun_aggregator.gate_stop import GateStop
from evalrun_aggregator.judging.dispatcher import Dispatcher
from evalrun_aggregator.judging.judge_descriptions import JudgeDescriptions
from evalrun_aggregator.ledger.entries import StoredEvent
from evalrun_aggregator.ledger.errors import LedgerError
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_aggregator.progress import may_write_outputs
from evalrun_aggregator.run_end import OutputError, Outputs
from evalrun_aggregator.run_state import RunState
from evalrun_aggregator.start.facts import NOT_PAUSED, STOPPED_BY_USER
from evalrun_aggregator.storage_watch import StorageWatch
from evalrun_client.judge_client import JudgeRefusedError

logger = logging.getLogger(__name__)


class NothingToWriteError(Exception):
    """A run that was told to end has no completion yet."""


class RunDriver:
    """The background parts of a run: judging, describing the judges, gates, outputs.

    Args:
        state: the state of the run.
        ledger: the ledger, open and owned by the caller.
        dispatcher: judges the items.
        judges: requests the judges' descriptions while the run lasts.
        outputs: writes the outputs once everything is decided.
        gates: cancels items that the sequential gates do not need; None: no gate may stop the run.
        storage: fails the run if the disk stays full; None: the run waits.
    """

    def __init__(
        self,
        state: RunState,
        ledger: Ledger,
        dispatcher: Dispatcher,
        judges: JudgeDescriptions,
        outputs: Outputs,
        gates: GateStop | None,
        storage: StorageWatch | None = None,
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._dispatcher = dispatcher
        self._judges = judges
        self._outputs = outputs
        self._gates = gates
        self._storage = storage
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Judge and finish in the background. A run that has ended only reports its status."""
        if self._state.ended is not None:
            return
        self._drive("end", self._end_when_decided)
        if self._state.ended_early:
            return
        self._drive("judge", self._judge)
        self._drive("describe", self._judges.run)
        if self._gates is not None:
            self._drive("gates", self._gates.run)
        if self._storage is not None:
            self._drive("storage", self._storage.run)

    async def stop(self) -> None:
        """Stop all background parts."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def end_early(self, reason: str, *, by_user: bool = False) -> None:
        """End the run with partial results. A run that has ended, or is ending, is not changed.

        Args:
            reason: a line for people.
            by_user: a person ends the run, and not a deadline.

        Raises:
            NothingToWriteError: there is no completion yet.
            LedgerError: the disk failed or is full: the run continues.
        """
        state = self._state
        if state.ended is not None or state.ended_early or state.is_writing:
            return
        if not state.has_answers:
            raise NothingToWriteError(f"run {state.name} has no completion yet: there is nothing to write")
        event = StoredEvent(state.clocks.now(), "stop" if by_user else "end", reason)
        facts = {"ended_early": reason, **NOT_PAUSED, **(STOPPED_BY_USER if by_user else {})}
        await self._ledger.record(event, **facts)
        # Another call may have ended the run meanwhile.
        if state.ended is not None or state.ended_early:
            return
        state.ended_early, state.is_stopped_by_user, state.is_paused = reason, by_user, False
        logger.info("the run ends early: %s", reason)
        for task in self._tasks:
            if task.get_name() in {"judge", "describe"}:
                task.cancel()
        state.changed.set()

    def _drive(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.create_task(self._fail_with(part), name=name)
        task.add_done_callback(self._note_end)
        self._tasks.append(task)

    async def _fail_with(self, part: Callable[[], Awaitable[None]]) -> None:
        """Run a part. A refusal by a judge, or a failure of the ledger or of the outputs, fails the run."""
        try:
            await part()
        except (JudgeRefusedError, LedgerError, OutputError) as error:
            self._state.fail(str(error))

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        """Turn an internal error into a failed run, which would otherwise wait forever."""
        if broken := explain_unexpected_end(task):
            self._state.fail(broken)

    async def _judge(self) -> None:
        await self._judges.suitable.wait()
        await self._dispatcher.run()

    async def _end_when_decided(self) -> None:
        """Write the outputs once everything is decided. Raises OutputError, LedgerError."""
        state = self._state
        while state.ended is None:
            state.changed.clear()
            if not may_write_outputs(state.progress):
                await state.changed.wait()
                continue
            state.is_writing = True
            try:
                state.ended = await self._outputs.finish(state.ended_early)
            finally:
                state.is_writing = False


def explain_unexpected_end(task: "asyncio.Task[None]") -> str:
    """Describe the unexpected end of a task; empty if the task returned, or was cancelled on request."""
    if task.cancelled():
        return "" if task.cancelling() else f"the part {task.get_name()!r} of the run was cut off"
    error = task.exception()
    if error is None:
        return ""
    logger.error("a part of the run ended unexpectedly", exc_info=error)
    return f"unexpected {type(error).__name__}: {error}"
