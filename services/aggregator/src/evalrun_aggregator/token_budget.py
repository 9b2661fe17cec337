"""EVAL@budget: which samples a problem gets before its tokens are spent (docs/protocols.md). Pure.

By the protocol a problem's samples are drawn one after the other: each may use what is left of the budget, at most
`max_new_tokens`, and none follows once nothing is left. Drawn strictly so, a problem would keep one slot of a replica
busy and the rest idle. But while the budget holds a longest answer for each sample that is out and one more, the next
sample's allowance is `max_new_tokens` whatever the others turn out to use: it can start at once. So samples run side
by side at first and one by a near the end, and they are the very samples, with the very allowances, of the
sequential order.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from evalrun_aggregator.ledger.item_states import ItemState, ItemStates
from evalrun_aggregator.ledger.items import MAX_SAMPLES, RunItems, unpack_row
from evalrun_runtime.exits import BadInputError

MAX_ITEMS = 1 << 26
"""Samples of all problems together that a run can number: one byte of memory each."""


@dataclass(frozen=True)
class TokenBudget:
    """Maximum output tokens of each problem."""

    tokens: int
    max_new_tokens: int

    def allowance(self, spent: int) -> int:
        """Return the longest answer that a sample may have once `spent` tokens are accounted for; 0: no sample."""
        return max(0, min(self.max_new_tokens, self.tokens - spent))

    def charge(self, output_tokens: int | None) -> int:
        """Return the cost of a sample in tokens.

        One that was not counted costs a longest answer, so that a server without `usage` cannot spend without end; an
        empty one costs a token, or it could be drawn forever.
        """
        return self.max_new_tokens if output_tokens is None else max(1, output_tokens)

    def may_open(self, spent: int, out: int) -> bool:
        """Return whether another sample's allowance is already known, with `out` samples not answered yet."""
        if out == 0:
            return spent < self.tokens
        return spent + (out + 1) * self.max_new_tokens <= self.tokens

    def max_samples(self, problems: int) -> int:
        """Return the largest possible number of samples of a problem: each costs at least one token.

        Raises:
            BadInputError: more than can be numbered.
        """
        most = min(self.tokens, MAX_SAMPLES)
        if most * problems > MAX_ITEMS:
            raise BadInputError(
                f"spec.protocol.budget.outputTokensPerProblem: {self.tokens} for {problems} problems could be "
                f"{most * problems} samples, which is too many: write at most {MAX_ITEMS // problems}"
            )
        return most


class TokenBudgets:
    """Spent tokens and existing samples of every problem.

    The item states's items are all absent at first; the book makes those pending that the budget allows.
    """

    def __init__(self, budget: TokenBudget, items: RunItems) -> None:
        self._budget = budget
        self._items = items
        self._spent = np.zeros(items.problems, np.int64)
        self._opened = np.zeros(items.problems, np.int64)
        self._answered = np.zeros(items.problems, np.int64)

    def restore(self, item_states: ItemStates, answered: Iterable[tuple[int, int | None]]) -> None:
        """Open the samples that the ledger contains and the samples that follow them.

        Args:
            item_states: restored from the ledger; what has no completion there becomes absent, or pending where it is
                due.
            answered: (row, output tokens) of every completion.
        """
        for row, tokens in answered:
            position, _, sample, _ = unpack_row(row)
            self._spent[position] += self._budget.charge(tokens)
            self._answered[position] += 1
            self._opened[position] = max(self._opened[position], sample + 1)
        item_states.settle_pending()
        for position in range(self._items.problems):
            # Samples start in order: one before the last that was answered was out when the ledger was closed.
            for index in self._range(position, 0, int(self._opened[position])):
                if item_states.state(index) is ItemState.ABSENT:
                    item_states.move(index, ItemState.PENDING)
            self._open(item_states, position)

    def allowance(self, index: int) -> int:
        """Return the most tokens that a sample which is out may use."""
        return self._budget.allowance(int(self._spent[self._items.get_position(index)]))

    def settle(self, item_states: ItemStates, index: int, output_tokens: int | None) -> None:
        """Charge a completion that is on disk, and make the next sample pending if the budget allows it."""
        position = self._items.get_position(index)
        self._spent[position] += self._budget.charge(output_tokens)
        self._answered[position] += 1
        self._open(item_states, position)

    def _open(self, item_states: ItemStates, position: int) -> None:
        start = end = int(self._opened[position])
        spent, answered = int(self._spent[position]), int(self._answered[position])
        while end < self._items.samples and self._budget.may_open(spent, end - answered):
            end += 1
        self._opened[position] = end
        for index in self._range(position, start, end):
            item_states.move(index, ItemState.PENDING)

    def _range(self, position: int, start: int, end: int) -> range:
        first = position * self._items.samples
        return range(first + start, first + end)
