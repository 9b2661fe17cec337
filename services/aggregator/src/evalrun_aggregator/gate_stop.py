"""Cancels the rest of a dataset once the sequential gates have decided without it."""

import logging

from evalrun_aggregator.gate_watch import GateWatch
from evalrun_aggregator.ledger.leases import Leases
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_aggregator.run_state import RunState

logger = logging.getLogger(__name__)


class GateStop:
    """Checks the gates whenever verdicts arrive.

    Args:
        watch: decides the gates.
        state: the state of the run.
        ledger: stores the gates' decisions.
        leases: the leases of the items.
    """

    def __init__(self, watch: GateWatch, state: RunState, ledger: Ledger, leases: Leases) -> None:
        self._watch = watch
        self._state = state
        self._ledger = ledger
        self._leases = leases

    async def run(self) -> None:
        """Cancel items that the gates do not need, until the outputs are written. Raises LedgerError."""
        state = self._state
        # The verdicts that the ledger already has may be enough.
        state.judged.set()
        while state.ended is None and not state.is_writing:
            await state.judged.wait()
            state.judged.clear()
            kept = await self._watch.look(self._ledger, state.item_states)
            if kept and not state.is_writing and not state.ended_early:
                for index in state.item_states.cancel(kept):
                    self._leases.settle(index)
                logger.info("the gates have decided: %s", state.stopped_early)
                state.changed.set()
