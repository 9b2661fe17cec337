"""Builds the messages of the items that a worker leases."""

from collections.abc import Sequence

from evalrun_aggregator.judging.item_traces import ItemTraces
from evalrun_aggregator.ledger.items import pack_row, unpack_row
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_aggregator.start.problems import RunProblems
from evalrun_aggregator.token_budget import TokenBudgets
from evalrun_proto.ledger.v1 import ledger_pb2


class WorkItems:
    """Creates work items.

    Args:
        problems: the problems of the run.
        ledger: has the earlier turns of a sample.
        budget: limits a completion to the tokens that its problem may still spend; None: there is no budget.
        traces: traces of the items.
    """

    def __init__(self, problems: RunProblems, ledger: Ledger, budget: TokenBudgets | None, traces: ItemTraces) -> None:
        self._problems = problems
        self._ledger = ledger
        self._budget = budget
        self._traces = traces

    async def list_items(self, indices: Sequence[int]) -> list[ledger_pb2.WorkItem]:
        """Return the work items. Raises LedgerError if earlier turns cannot be read."""
        return [await self._make_item(index) for index in indices]

    async def _make_item(self, index: int) -> ledger_pb2.WorkItem:
        row = self._problems.items.get_row(index)
        parts = unpack_row(row)
        first = pack_row(parts.problem, parts.repeat, parts.sample)
        item = self._problems.work_item(index, await self._ledger.exchanges(first, row) if parts.turn else ())
        if self._budget is not None:
            item.sampling.max_tokens = self._budget.allowance(index)
        item.traceparent = self._traces.get_traceparent(index)
        return item
