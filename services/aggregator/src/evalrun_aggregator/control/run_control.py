"""Performs acts of control on a run. Each act is an event in the ledger before it takes effect."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from evalrun_aggregator.control.acts import (
    Act,
    Effect,
    Pause,
    Refusal,
    RequeueNotJudged,
    Resume,
    SetConcurrency,
    Standing,
    Stop,
    decide,
)
from evalrun_aggregator.judging.dispatcher import Dispatcher
from evalrun_aggregator.ledger.entries import StoredEvent
from evalrun_aggregator.ledger.errors import LedgerError
from evalrun_aggregator.ledger.item_states import ItemState
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_aggregator.run_state import RunState
from evalrun_aggregator.start.facts import NOT_PAUSED, PAUSED, max_in_flight_facts

logger = logging.getLogger(__name__)

STOPPED: Final = "stopped by evalrun ctl"


@dataclass(frozen=True)
class ActResult:
    """Result of an act."""

    refusal: Refusal | None = None
    changed: bool = False
    requeued: int = 0


class RunControl:
    """Performs the acts of control on a run, one at a time.

    Args:
        state: the state of the run.
        ledger: stores events and lasting settings.
        dispatcher: stops sending while the run is paused.
        end_early: ends the run with what it has, and records it. Raises LedgerError.
    """

    def __init__(
        self, state: RunState, ledger: Ledger, dispatcher: Dispatcher, end_early: Callable[[], Awaitable[None]]
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._dispatcher = dispatcher
        self._end_early = end_early
        self._one_at_a_time = asyncio.Lock()
        dispatcher.pause(state.is_paused)

    async def perform(self, act: Act) -> ActResult:
        """Perform an act. It is on disk, and has its effect, when the call returns.

        Raises:
            LedgerError: the disk failed or is full: nothing was changed.
        """
        async with self._one_at_a_time:
            effect = decide(act, self._make_standing())
            if isinstance(effect, Refusal):
                return ActResult(refusal=effect)
            if effect is Effect.NOTHING:
                return ActResult()
            requeued = await self._change(act)
            logger.info("control: %s", act)
            return ActResult(changed=True, requeued=requeued)

    def _make_standing(self) -> Standing:
        state = self._state
        return Standing(
            ended=state.ended is not None,
            ending=state.is_writing or bool(state.ended_early),
            failed=state.failure is not None,
            paused=state.is_paused,
            max_in_flight=state.max_in_flight,
            not_judged=state.item_states.count(ItemState.NOT_JUDGED),
            has_answers=state.has_answers,
        )

    async def _change(self, act: Act) -> int:
        """Perform an act that changes something. Return how many completions are judged again."""
        state = self._state
        match act:
            case Pause():
                await self._ledger.record(self._event("pause"), **PAUSED)
                self._pause(paused=True)
            case Resume():
                await self._ledger.record(self._event("resume"), **NOT_PAUSED)
                self._pause(paused=False)
            case SetConcurrency(bound):
                shown = "default" if bound is None else str(bound)
                await self._ledger.record(self._event("set", f"concurrency={shown}"), **max_in_flight_facts(bound))
                state.max_in_flight = bound
            case RequeueNotJudged():
                return await self._requeue()
            case Stop():
                await self._end_early()
        return 0

    def _pause(self, *, paused: bool) -> None:
        # Whatever ended the run meanwhile has ended the pause too.
        if self._state.ended_early:
            return
        self._state.is_paused = paused
        self._dispatcher.pause(paused)

    async def _requeue(self) -> int:
        """Queue the items that were not judged.

        The states in memory change first: otherwise the outputs might be begun without these items meanwhile.
        """
        states = self._state.item_states
        indices = states.requeue_not_judged()
        try:
            await self._ledger.record(self._event("requeue-not-judged", f"{len(indices)} answers"))
        except LedgerError:
            for index in indices:
                if states.state(index) is ItemState.GENERATED:
                    states.move(index, ItemState.NOT_JUDGED)
            self._state.changed.set()
            raise
        self._dispatcher.wake()
        return len(indices)

    def _event(self, act: str, detail: str = "") -> StoredEvent:
        return StoredEvent(self._state.clocks.now(), act, detail)
