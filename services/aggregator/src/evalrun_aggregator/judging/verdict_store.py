"""Stores verdicts in batches, and counts each verdict once it is on disk."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from evalrun_aggregator.judging.item_traces import ItemTraces
from evalrun_aggregator.judging.work import Work, WorkSource
from evalrun_aggregator.ledger.entries import StoredVerdict
from evalrun_aggregator.ledger.errors import LedgerFullError
from evalrun_aggregator.ledger.item_states import ItemState, ItemStates
from evalrun_aggregator.ledger.ledger import Ledger

logger = logging.getLogger(__name__)

FULL_DISK_RETRY_SECONDS = 1.0


class VerdictStore:
    """Writes verdicts into the ledger.

    Args:
        item_states: counts the stored verdicts.
        ledger: stores the verdicts.
        source: releases more work once verdicts are stored.
        traces: traces of the items; None: they have none.
        on_stored: called after verdicts were stored and counted.
    """

    def __init__(
        self,
        item_states: ItemStates,
        ledger: Ledger,
        source: WorkSource,
        traces: ItemTraces | None,
        on_stored: Callable[[], None],
    ) -> None:
        self._item_states = item_states
        self._ledger = ledger
        self._source = source
        self._traces = traces
        self._on_stored = on_stored
        self._waiting: asyncio.Queue[tuple[Work, StoredVerdict]] = asyncio.Queue()
        self.trouble: str | None = None
        """The error while the disk is full, else None."""

    def add(self, work: Work, verdict: StoredVerdict) -> None:
        """Store an item's verdict with the next batch."""
        self._waiting.put_nowait((work, verdict))

    async def run(self) -> None:
        """Store verdicts until cancelled. Verdicts that arrive while a batch is written form the next batch.

        Raises:
            LedgerBrokenError: the disk failed.
        """
        while True:
            batch = [await self._waiting.get()]
            while not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            await self._store([stored for _, stored in batch])
            for work, stored in batch:
                self._count(work, stored)
            self._on_stored()

    async def _store(self, verdicts: Sequence[StoredVerdict]) -> None:
        """Store a batch. While the disk is full, wait: the judge gets no more work meanwhile."""
        while True:
            try:
                await self._ledger.add_verdicts(verdicts)
            except LedgerFullError as error:
                if self.trouble is None:
                    logger.error("%s; verdicts wait until there is room", error)
                self.trouble = str(error)
                await asyncio.sleep(FULL_DISK_RETRY_SECONDS)
            else:
                self.trouble = None
                return

    def _count(self, work: Work, stored: StoredVerdict) -> None:
        if self._item_states.state(work.index) is not ItemState.CANCELLED:
            self._item_states.judge(
                work.index, judged=stored.judged, accepted=stored.accepted, final_status=stored.final_status
            )
            if stored.feedback:
                self._item_states.open_next_turn(work.index)
        self._source.done()
        if self._traces is not None:
            self._traces.record_root_span(work.index, work.completion, stored)
