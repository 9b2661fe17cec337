"""Receives what workers send: leases items to them, and stores their completions and replica reports."""

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
"""Items that one GetWork may take."""


class UnknownItemError(Exception):
    """A key that is not of this run."""


class Intake:
    """The workers' side of a run.

    Args:
        state: the run's.
        ledger: open, owned by the caller.
        leases: over the item states.
        replicas: as the ledger knew them.
        budget: opens a problem's next samples as its completions come; None: all were there from the start.
        wake: called after completions were stored: there is something to judge.
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
        """Set while the disk is full."""

    def take_work(self, worker: str, limit: int, *, fresh: bool) -> list[int]:
        """Lease pending items to a worker; `fresh`: the worker holds no items; void its earlier leases."""
        if self._state.ended_early:
            return []
        self._state.has_started = True
        if fresh:
            self._leases.void(worker)
        if self._state.is_paused:
            return []
        return self._leases.take(worker, min(limit, MAX_ITEMS), self._state.clocks.monotonic())

    def find_index(self, key: ItemKey) -> int:
        """Return a key's item. Raises UnknownItemError."""
        item_states = self._state.item_states
        index = item_states.items.find_index(key)
        if index is None or item_states.state(index) is ItemState.ABSENT:
            raise UnknownItemError(f"{key} is not of run {self._state.name}")
        return index

    async def submit(self, completions: Sequence[tuple[int, StoredCompletion]]) -> int:
        """Store completions and return the number of new completions. They are on disk when the call returns.

        A caller that goes away does not stop the storing: what the ledger has, the item states must know.

        Raises:
            LedgerFullError: nothing of the batch was stored.
            LedgerBrokenError: the disk failed; the run has failed.
        """
        if self._state.ended_early:  # the outputs are being written without them
            return 0
        task = asyncio.create_task(self._submit(completions))
        self._stores.add(task)
        task.add_done_callback(self._stores.discard)
        return await asyncio.shield(task)

    async def drain(self) -> None:
        """Wait until everything that is being stored is stored."""
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
        # What a gate has made needless is dropped: whoever still works on it learns so when it asks for more.
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
