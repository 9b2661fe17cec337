"""EVAL@budget: which samples a problem gets before its tokens are spent (docs/protocols.md). Pure.

By the protocol a problem's samples are drawn one after the other: each may use the rest of the budget, at most
`max_new_tokens`, and none follows once nothing is left. Drawn strictly so, a problem would keep a single slot of a
replica busy and the rest idle. But while the budget holds a longest completion for each sample in progress and one
more, the next sample's allowance is `max_new_tokens` whatever the others turn out to use, so it can start at once.
Samples therefore run side by side at first and one by one near the end, and they are the same samples with the same
allowances as in sequential order.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from evalrun_aggregator.ledger.item_states import ItemState, ItemStates
from evalrun_aggregator.ledger.items import MAX_SAMPLES, RunItems, unpack_row
from evalrun_runtime.exits import BadInputError

MAX_ITEMS = 1 << 26
"""Maximum number of samples of all problems together: each takes a byte of memory."""


@dataclass(frozen=True)
class TokenBudget:
    """Maximum output tokens of each problem."""

    tokens: int
    max_new_tokens: int

    def allowance(self, spent: int) -> int:
        """Return the longest completion that a sample may have once `spent` tokens are accounted for; 0: no sample."""
        return max(0, min(self.max_new_tokens, self.tokens - spent))

    def charge(self, output_tokens: int | None) -> int:
        """Return the cost of a sample in tokens.

        An uncounted sample costs a longest completion, so that a server without `usage` cannot spend without end. An
        empty sample costs a token, or it could be drawn again and again.
        """
        return self.max_new_tokens if output_tokens is None else max(1, output_tokens)

    def may_open(self, spent: int, out: int) -> bool:
        """Return whether another sample's allowance is already known, with `out` samples in progress."""
        if out == 0:
            return spent < self.tokens
        return spent + (out + 1) * self.max_new_tokens <= self.tokens

    def max_samples(self, problems: int) -> int:
        """Return the largest possible number of samples of a problem: each costs at least a token.

        Raises:
            BadInputError: the number is too large to be numbered.
        """
        most = min(self.tokens, MAX_SAMPLES)
        if most * problems > MAX_ITEMS:
            raise BadInputError(
                f"spec.protocol.budget.outputTokensPerProblem: {self.tokens} for {problems} problems could be "
                f"{most * problems} samples, which is too many: write at most {MAX_ITEMS // problems}"
            )
        return most


class TokenBudgets:
    """The spent tokens and existing samples of every problem.

    All items are absent at first; `TokenBudgets` makes those pending that the budget allows.
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
            item_states: restored from the ledger; an item without a completion there becomes absent, or pending if it
                is due.
            answered: (row, output tokens) of every completion.
        """
        for row, tokens in answered:
            position, _, sample, _ = unpack_row(row)
            self._spent[position] += self._budget.charge(tokens)
            self._answered[position] += 1
            self._opened[position] = max(self._opened[position], sample + 1)
        item_states.settle_pending()
        for position in range(self._items.problems):
            # Samples start in order, so a sample before the last completed one was in progress when the ledger was
            # closed.
            for index in self._range(position, 0, int(self._opened[position])):
                if item_states.state(index) is ItemState.ABSENT:
                    item_states.move(index, ItemState.PENDING)
            self._open(item_states, position)

    def allowance(self, index: int) -> int:
        """Return the maximum number of tokens that a sample in progress may use."""
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
