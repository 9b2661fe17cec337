"""What state every item of a run is in, and the counts that follow. Pure; kept as the ledger changes, never scanned.

One byte an item: a million items cost a megabyte, and the next item in a given state is found by `bytearray.find`.
"""

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from evalrun_aggregator.items import RunItems


class ItemState(IntEnum):
    """Where an item is on its way. The values are bytes of `Board`'s table."""

    PENDING = 0
    LEASED = 1
    """A worker has it."""
    GENERATED = 2
    """Its completion is on disk, its verdict is to be reached."""
    JUDGING = 3
    """The dispatcher has it."""
    ACCEPTED = 4
    REJECTED = 5
    NOT_JUDGED = 6
    """The judge could not tell, and was asked often enough."""
    ABSENT = 7
    """Not part of this run: no answer was given for it, where answers are made elsewhere."""


STATES = tuple(ItemState)


@dataclass
class DatasetCounts:
    """Samples of one dataset in the run itself (repeat 0)."""

    name: str
    states: list[int]
    """How many are in each `ItemState`, by its value."""
    final_status: Counter[int]
    """Verdicts by `FinalStatus` number; what was not judged is in `states` alone."""
    rate_sum: float = 0.0
    """Sum over problems of accepted / judged samples."""
    rated_problems: int = 0
    """Problems with a judged sample."""

    @property
    def total(self) -> int:
        """Samples of the run."""
        return sum(self.states) - self.states[ItemState.ABSENT]

    @property
    def generated(self) -> int:
        """Samples with a completion."""
        return self.total - self.states[ItemState.PENDING] - self.states[ItemState.LEASED]

    @property
    def accepted(self) -> int:
        """Samples that passed."""
        return self.states[ItemState.ACCEPTED]

    @property
    def judged(self) -> int:
        """Samples with a verdict."""
        return self.states[ItemState.ACCEPTED] + self.states[ItemState.REJECTED]

    @property
    def not_judged(self) -> int:
        """Samples that the judge gave up."""
        return self.states[ItemState.NOT_JUDGED]

    @property
    def accepted_at_1(self) -> float | None:
        """Mean over problems of accepted / judged samples so far (evaluation.md section 7); None before any."""
        return self.rate_sum / self.rated_problems if self.rated_problems else None


class Board:
    """The state of every item. Items start as PENDING."""

    def __init__(self, items: RunItems) -> None:
        self.items = items
        self._states = bytearray(items.count)
        self._totals = [0] * len(STATES)
        self._totals[ItemState.PENDING] = items.count
        self._judged = array("I", bytes(4 * items.problems))
        self._accepted = array("I", bytes(4 * items.problems))
        self.datasets = []
        for dataset in items.datasets:
            states = [0] * len(STATES)
            states[ItemState.PENDING] = len(dataset.problem_ids) * items.samples
            self.datasets.append(DatasetCounts(dataset.name, states, Counter()))

    def state(self, index: int) -> ItemState:
        """Give an item's state."""
        return STATES[self._states[index]]

    def count(self, *states: ItemState) -> int:
        """Give how many items are in any of these states, noise-floor passes included."""
        return sum(self._totals[state] for state in states)

    @property
    def remaining(self) -> int:
        """Items without a completion, leased ones included."""
        return self.count(ItemState.PENDING, ItemState.LEASED)

    @property
    def unjudged(self) -> int:
        """Items with a completion whose verdict is still to be reached."""
        return self.count(ItemState.GENERATED, ItemState.JUDGING)

    def first(self, state: ItemState, start: int = 0) -> int | None:
        """Give the first item in this state from `start` on, then from the beginning; None where there is none."""
        if self._totals[state] == 0:
            return None
        found = self._states.find(state, start)
        if found < 0 and start > 0:
            found = self._states.find(state, 0, start)
        return found if found >= 0 else None

    def move(self, index: int, state: ItemState) -> None:
        """Put an item into another state; use `judge` for a verdict."""
        before = self._states[index]
        self._states[index] = state
        self._totals[before] -= 1
        self._totals[state] += 1
        if index < self.items.own_count:
            states = self.datasets[self.items.dataset_at(self.items.position_of(index))].states
            states[before] -= 1
            states[state] += 1

    def judge(self, index: int, *, judged: bool, accepted: bool, final_status: int) -> None:
        """Record that an item's verdict is on disk."""
        self.move(index, ItemState.NOT_JUDGED if not judged else ItemState.ACCEPTED if accepted else ItemState.REJECTED)
        if not judged or index >= self.items.own_count:
            return
        position = self.items.position_of(index)
        counts = self.datasets[self.items.dataset_at(position)]
        counts.final_status[final_status] += 1
        before = self._accepted[position] / self._judged[position] if self._judged[position] else 0.0
        counts.rated_problems += self._judged[position] == 0
        self._judged[position] += 1
        self._accepted[position] += accepted
        counts.rate_sum += self._accepted[position] / self._judged[position] - before

    def restore(
        self,
        completed: Iterable[int],
        verdicts: Iterable[tuple[int, int, bool, bool]],
        *,
        keep_not_judged: bool,
    ) -> list[int]:
        """Take over what a ledger holds.

        Args:
            completed: rows with a completion.
            verdicts: (row, final status, judged, accepted).
            keep_not_judged: what was not judged stays so; otherwise it is to be judged again.

        Returns:
            Rows that are not of this run.
        """
        foreign = []
        for row in completed:
            index = self.items.index_of_row(row)
            if index is None:
                foreign.append(row)
            else:
                self.move(index, ItemState.GENERATED)
        for row, final_status, judged, accepted in verdicts:
            index = self.items.index_of_row(row)
            if index is not None and (judged or keep_not_judged):
                self.judge(index, judged=judged, accepted=accepted, final_status=final_status)
        return foreign

    def leave_out_pending(self) -> int:
        """Take every item without a completion out of the run; gives how many."""
        left, index = 0, self.first(ItemState.PENDING)
        while index is not None:
            self.move(index, ItemState.ABSENT)
            left, index = left + 1, self.first(ItemState.PENDING, index)
        return left
