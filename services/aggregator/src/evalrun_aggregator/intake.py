"""Serves workers: leases items to them, and stores their completions and replica reports."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from evalrun_aggregator.ledger.entries import StoredCompletion, StoredReplica
from evalrun_aggregator.ledger.errors import LedgerError, LedgerFullError
from evalrun_aggregator.ledger.item_states import ItemState
from evalrun_aggregator.ledger.items import ItemKey
from evalrun_aggregator.ledger.leases import Leases
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_aggregator.replicas import ReplicaRegistry
from evalrun_aggregator.run_state import RunState
from evalrun_aggregator.token_budget import TokenBudgets
from evalrun_proto.ledger.v1 import ledger_pb2

MAX_ITEMS = 4096
"""Maximum number of items per GetWork."""


class UnknownItemError(Exception):
    """A key does not belong to this run."""


class Intake:
    """The workers' side of a run.

    Args:
        state: the state of the run.
        ledger: the ledger, open and owned by the caller.
        leases: the leases of the items.
        replicas: the replicas in the ledger.
        budget: opens a problem's next samples as its completions arrive; None: all were open from the start.
        wake: called after completions were stored, because there is something to judge.
    """

    def __init__(
        self,
        state: RunState,
        ledger: Ledger,
        leases: Leases,
        replicas: ReplicaRegistry,
        budget: TokenBudgets | None,
        wake: Callable[[], None],
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._leases = leases
        self._replicas = replicas
        self._budget = budget
        self._wake = wake
        self._stores: set[asyncio.Task[int]] = set()
        self.storage_trouble: str | None = None
        """The error while the disk is full, else None."""

    def take_work(self, worker: str, limit: int, *, fresh: bool) -> list[int]:
        """Lease pending items to a worker. `fresh`: the worker holds no items, so its earlier leases are void."""
        if self._state.ended_early:
            return []
        self._state.has_started = True
        if fresh:
            self._leases.void(worker)
        if self._state.is_paused:
            return []
        return self._leases.take(worker, min(limit, MAX_ITEMS), self._state.clocks.monotonic())

    def find_index(self, key: ItemKey) -> int:
        """Return the index of a key's item. Raises UnknownItemError."""
        item_states = self._state.item_states
        index = item_states.items.find_index(key)
        if index is None or item_states.state(index) is ItemState.ABSENT:
            raise UnknownItemError(f"{key} is not of run {self._state.name}")
        return index

    async def submit(self, completions: Sequence[tuple[int, StoredCompletion]]) -> int:
        """Store completions and return how many were new. They are on disk when the call returns.

        A caller that goes away does not stop the storing, because the item states must know everything that the ledger
        has.

        Raises:
            LedgerFullError: nothing of the batch was stored.
            LedgerBrokenError: the disk failed; the run has failed.
        """
        # The outputs are being written without these completions.
        if self._state.ended_early:
            return 0
        task = asyncio.create_task(self._submit(completions))
        self._stores.add(task)
        task.add_done_callback(self._stores.discard)
        return await asyncio.shield(task)

    async def drain(self) -> None:
        """Wait until all pending writes are done."""
        await asyncio.gather(*self._stores, return_exceptions=True)

    async def report_replicas(
        self,
        worker: str,
        replicas: Sequence[ledger_pb2.Replica],
        gpu_seconds: Mapping[str, float],
        warnings: Sequence[str] = (),
    ) -> None:
        """Store a worker's report about its replicas. `gpu_seconds`: by holder. Raises LedgerError."""
        self._replicas.report(worker, replicas, gpu_seconds, self._state.clocks.monotonic(), warnings)
        stored = [
            StoredReplica(r.name, r.address, list(r.models), r.error, r.load_format, dict(r.engine)) for r in replicas
        ]
        await self._ledger.set_replicas(worker, stored, gpu_seconds)

    async def _submit(self, completions: Sequence[tuple[int, StoredCompletion]]) -> int:
        item_states = self._state.item_states
        # Completions that a gate has made needless are dropped. Their worker learns it when it asks for more work.
        completions = [each for each in completions if item_states.state(each[0]) is not ItemState.CANCELLED]
        try:
            new = await self._ledger.add_completions([completion for _, completion in completions])
        except LedgerFullError as error:
            self.storage_trouble = str(error)
            raise
        except LedgerError as error:
            self._state.fail(str(error))
            raise
        self.storage_trouble = None
        for (index, completion), is_new in zip(completions, new, strict=True):
            if is_new and item_states.state(index) is not ItemState.CANCELLED:
                self._count(index, completion)
        if any(new):
            self._state.note_completions()
            self._wake()
        return sum(new)

    def _count(self, index: int, completion: StoredCompletion) -> None:
        item_states = self._state.item_states
        self._leases.settle(index)
        item_states.move(index, ItemState.GENERATED)
        if self._budget is not None:
            self._budget.settle(item_states, index, completion.output_tokens)
        self._state.count_completion(index, completion)
