"""State of every item of a run, and the counts by state. Pure; updated with the ledger, never scanned.

In a run with several turns, the item of a later turn is ABSENT until the verdict on the previous completion opens that
turn. An item takes a byte, so a million items take a megabyte, and `bytearray.find` finds the next item in a given
state.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from evalrun_aggregator.ledger.items import RunItems, unpack_rows

Integers: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

CHUNK = 1 << 16
VERDICT_ROW = np.dtype([("row", np.int64), ("status", np.int64), ("judged", np.bool_), ("accepted", np.bool_)])


class ItemState(IntEnum):
    """Progress of an item. The values are bytes of `ItemStates`'s table."""

    PENDING = 0
    LEASED = 1
    """A worker holds the item."""
    GENERATED = 2
    """The completion is on disk, and the verdict is still to come."""
    JUDGING = 3
    """The dispatcher holds the item."""
    ACCEPTED = 4
    REJECTED = 5
    NOT_JUDGED = 6
    """The judge could not decide, and was asked often enough."""
    ABSENT = 7
    """The item is not part of this run, or a later turn that has not opened."""
    CANCELLED = 8
    """The run's gates have decided without the item: it is not generated, or its result does not count."""
    MISSING = 9
    """No completion was given, in a run that judges completions made elsewhere: the item counts as not judged."""


STATES = tuple(ItemState)
UNJUDGED = (ItemState.GENERATED, ItemState.JUDGING)
SETTLED = frozenset({ItemState.ACCEPTED, ItemState.REJECTED, ItemState.NOT_JUDGED, ItemState.ABSENT, ItemState.MISSING})
"""States in which an item no longer changes."""


@dataclass
class DatasetCounts:
    """Counts of the samples of a dataset, without repeats."""

    name: str
    states: list[int]
    """Number of items in each `ItemState`, by its value."""
    final_status: Counter[int]
    """Number of verdicts by `FinalStatus` number; items that were not judged are counted only in `states`."""
    rate_sum: float = 0.0
    """Sum over problems of accepted / judged samples."""
    rated_problems: int = 0
    """Problems with a judged sample."""
    may_follow: int = 0
    """Maximum number of completions of later turns: one per completion whose verdict can open another turn."""

    @property
    def total(self) -> int:
        """Number of the dataset's completions in the run, including later turns that may follow."""
        return sum(self.states) - self.states[ItemState.ABSENT] - self.states[ItemState.CANCELLED] + self.may_follow

    @property
    def generated(self) -> int:
        """Number of existing completions."""
        out = (ItemState.PENDING, ItemState.LEASED, ItemState.MISSING)
        return self.total - self.may_follow - sum(self.states[state] for state in out)

    @property
    def accepted(self) -> int:
        """Number of accepted samples."""
        return self.states[ItemState.ACCEPTED]

    @property
    def judged(self) -> int:
        """Number of samples with a verdict."""
        return self.states[ItemState.ACCEPTED] + self.states[ItemState.REJECTED]

    @property
    def not_judged(self) -> int:
        """Number of samples that the judge gave up, or that have no completion."""
        return self.states[ItemState.NOT_JUDGED] + self.states[ItemState.MISSING]

    @property
    def cancelled(self) -> int:
        """Number of samples that the gates made needless."""
        return self.states[ItemState.CANCELLED]

    @property
    def accepted_at_1(self) -> float | None:
        """Mean over problems of accepted / judged first completions (docs/outputs.md); None before any verdict."""
        return self.rate_sum / self.rated_problems if self.rated_problems else None


class ItemStates:
    """The states of all items. Items start as PENDING."""

    def __init__(self, items: RunItems) -> None:
        self.items = items
        self._states = bytearray(items.count)
        self._totals = [0] * len(STATES)
        self._totals[ItemState.PENDING] = items.count
        self._statuses = bytearray(items.own_count)
        """Final status of each own item that has a verdict."""
        self._judged = array("I", bytes(4 * items.problems))
        self._accepted = array("I", bytes(4 * items.problems))
        self._opens_turns = False
        self.datasets = []
        for dataset in items.datasets:
            states = [0] * len(STATES)
            states[ItemState.PENDING] = len(dataset.problem_ids) * items.width
            self.datasets.append(DatasetCounts(dataset.name, states, Counter()))

    def state(self, index: int) -> ItemState:
        """Return the state of an item."""
        return STATES[self._states[index]]

    def count(self, *states: ItemState) -> int:
        """Return the number of items in any of these states, noise-floor repeats included."""
        return sum(self._totals[state] for state in states)

    @property
    def remaining(self) -> int:
        """Number of items without a completion, including leased items."""
        return self.count(ItemState.PENDING, ItemState.LEASED)

    @property
    def unjudged(self) -> int:
        """Number of items with a completion whose verdict is still to come."""
        return self.count(*UNJUDGED)

    @property
    def may_follow(self) -> int:
        """Maximum number of completions of later turns, over all datasets; runs with turns have no repeats."""
        return sum(counts.may_follow for counts in self.datasets)

    def first(self, state: ItemState, start: int = 0) -> int | None:
        """Return the first item in this state, searching from `start` and then from the beginning, or None."""
        if self._totals[state] == 0:
            return None
        found = self._states.find(state, start)
        if found < 0 and start > 0:
            found = self._states.find(state, 0, start)
        return found if found >= 0 else None

    def move(self, index: int, state: ItemState) -> None:
        """Change the state of an item. Verdicts go through `judge`."""
        before = self._states[index]
        self._states[index] = state
        self._totals[before] -= 1
        self._totals[state] += 1
        if index < self.items.own_count:
            counts = self.datasets[self.items.find_dataset_number(self.items.get_position(index))]
            counts.states[before] -= 1
            counts.states[state] += 1
            if self._opens_turns and self.items.get_turn(index) + 1 < self.items.turns:
                counts.may_follow += (state in UNJUDGED) - (before in UNJUDGED)

    def open_next_turn(self, index: int) -> None:
        """Set the turn after a rejected completion to pending, unless it is open already or no longer needed."""
        if self.state(index) is ItemState.REJECTED and self.state(index + 1) is ItemState.ABSENT:
            self.move(index + 1, ItemState.PENDING)

    def judge(self, index: int, *, judged: bool, accepted: bool, final_status: int) -> None:
        """Record that an item's verdict is on disk."""
        self.move(index, ItemState.NOT_JUDGED if not judged else ItemState.ACCEPTED if accepted else ItemState.REJECTED)
        if not judged or index >= self.items.own_count:
            return
        position = self.items.get_position(index)
        counts = self.datasets[self.items.find_dataset_number(position)]
        counts.final_status[final_status] += 1
        self._statuses[index] = final_status
        if self.items.get_turn(index):
            return
        before = self._accepted[position] / self._judged[position] if self._judged[position] else 0.0
        counts.rated_problems += self._judged[position] == 0
        self._judged[position] += 1
        self._accepted[position] += accepted
        counts.rate_sum += self._accepted[position] / self._judged[position] - before

    def restore(
        self, completed: Iterable[int], verdicts: Iterable[tuple[int, int, bool, bool]], *, keep_not_judged: bool
    ) -> int:
        """Restore the states of a ledger's items; only for new item states. A million items take a second.

        Args:
            completed: rows with a completion.
            verdicts: (row, final status, judged, accepted).
            keep_not_judged: items that were not judged stay so; otherwise they are judged again.

        Returns:
            how many rows do not belong to this run.
        """
        states, foreign = np.frombuffer(self._states, dtype=np.uint8), 0
        statuses = np.frombuffer(self._statuses, dtype=np.uint8)
        for rows in _chunks(completed, np.dtype(np.int64)):
            indices, known = self._find_indices(rows)
            states[indices[known]] = ItemState.GENERATED
            foreign += int(np.count_nonzero(~known))
        for chunk in _chunks(verdicts, VERDICT_ROW):
            indices, known = self._find_indices(chunk["row"])
            reached = np.where(chunk["accepted"], np.uint8(ItemState.ACCEPTED), np.uint8(ItemState.REJECTED))
            kept = known & (chunk["judged"] | keep_not_judged)
            states[indices[kept]] = np.where(chunk["judged"], reached, np.uint8(ItemState.NOT_JUDGED))[kept]
            own = kept & chunk["judged"] & (indices < self.items.own_count)
            statuses[indices[own]] = chunk["status"][own]
            self._tally(indices[own], chunk["status"][own])
        self._recount(states)
        return foreign

    def settle_pending(self, asked: Sequence[int] = ()) -> int:
        """Settle every item without a completion, because none will come. Return how many are missing.

        Args:
            asked: how many samples each problem should have, by the dataset's number. A further sample without a
                completion is ABSENT.
        """
        states = np.frombuffer(self._states, dtype=np.uint8)
        pending = states == ItemState.PENDING
        states[pending] = ItemState.ABSENT
        shape = 1 + self.items.repeats, self.items.problems, self.items.samples, self.items.turns
        by_sample, is_pending = states.reshape(shape), pending.reshape(shape)
        for number, samples in enumerate(asked):
            start = self.items.get_start(number)
            problems = slice(start, start + len(self.items.datasets[number].problem_ids))
            # Whether a later turn follows depends on the verdicts.
            wanted = by_sample[:, problems, :samples, :1]
            wanted[is_pending[:, problems, :samples, :1]] = ItemState.MISSING
        self._recount(states)
        return self.count(ItemState.MISSING)

    def leave_out_later_turns(self, opening: Iterable[int]) -> None:
        """Take every unopened later turn out of the run, and count the turns that may follow; called after `restore`.

        Args:
            opening: rows of the completions whose feedback is on disk: the turns after them are open.
        """
        items = self.items
        self._opens_turns = True
        states = np.frombuffer(self._states, dtype=np.uint8).reshape(-1, items.turns)
        later = states[:, 1:]
        is_open = np.zeros((len(states), items.turns - 1), dtype=np.bool_)
        for rows in _chunks(opening, np.dtype(np.int64)):
            indices, known = self._find_indices(rows)
            indices = indices[known & (indices % items.turns + 1 < items.turns)]
            is_open[indices // items.turns, indices % items.turns] = True
        later[(later == ItemState.PENDING) & ~is_open] = ItemState.ABSENT
        self._recount(states.reshape(-1))

    def find_missing_rows(self) -> Iterator[int]:
        """Return the rows of the items without a completion that are part of the run, in order."""
        states = np.frombuffer(self._states, dtype=np.uint8)
        missing = np.flatnonzero(np.isin(states, (ItemState.PENDING, ItemState.LEASED, ItemState.MISSING)))
        return iter(sorted(self.items.get_row(int(index)) for index in missing))

    def count_absent_problems(self) -> int:
        """Return how many problems have no item in the run, which happens if completions are judged as given."""
        states = np.frombuffer(self._states, dtype=np.uint8)
        shape = 1 + self.items.repeats, self.items.problems, self.items.samples * self.items.turns
        return int((states.reshape(shape) == ItemState.ABSENT).all(axis=(0, 2)).sum())

    def requeue_not_judged(self) -> list[int]:
        """Queue the items that the judge gave up to be judged again, and return them. Verdicts stay."""
        states = np.frombuffer(self._states, dtype=np.uint8)
        found: list[int] = np.flatnonzero(states == ItemState.NOT_JUDGED).tolist()
        for index in found:
            self.move(index, ItemState.GENERATED)
        return found

    def is_settled(self, position: int) -> bool:
        """Return whether no item of a problem changes any more, repeats left out."""
        first = position * self.items.width
        return all(state in SETTLED for state in self._states[first : first + self.items.width])

    def cancel(self, kept: Mapping[int, int]) -> list[int]:
        """Cancel items that the gates do not need, and return those that were leased.

        Args:
            kept: number of problems whose results count, by the dataset's number, from its first problem on. Repeats
                that are not complete are cancelled too.
        """
        if not kept:
            return []
        states = np.frombuffer(self._states, dtype=np.uint8)
        by_pass = states.reshape(1 + self.items.repeats, self.items.problems, self.items.width)
        leased = states == ItemState.LEASED
        for number, count in kept.items():
            start = self.items.get_start(number)
            end = start + len(self.items.datasets[number].problem_ids)
            needless = by_pass[:, start + count : end]
            needless[needless != ItemState.ABSENT] = ItemState.CANCELLED
            later = by_pass[1:, start:end]
            later[np.isin(later, [ItemState.PENDING, ItemState.LEASED])] = ItemState.CANCELLED
        reached = np.isin(states[: self.items.own_count], [ItemState.ACCEPTED, ItemState.REJECTED])
        for counts in self.datasets:
            counts.final_status.clear()
        self._tally(np.flatnonzero(reached), np.frombuffer(self._statuses, dtype=np.uint8)[reached].astype(np.int64))
        self._recount(states)
        found: list[int] = np.flatnonzero(leased & (states == ItemState.CANCELLED)).tolist()
        return found

    def _find_indices(self, rows: Integers) -> tuple[Integers, Flags]:
        """Return `items.index_of_row` of many rows, and a flag for each row that belongs to this run."""
        items, parts = self.items, unpack_rows(rows)
        known = (parts.problem < items.problems) & (parts.repeat <= items.repeats)
        known &= (parts.sample < items.samples) & (parts.turn < items.turns)
        samples = (parts.repeat * items.problems + parts.problem) * items.samples + parts.sample
        return samples * items.turns + parts.turn, known

    def _tally(self, indices: Integers, statuses: Integers) -> None:
        starts = [self.items.get_start(number) for number in range(len(self.datasets))]
        numbers = np.searchsorted(starts, indices // self.items.width, side="right") - 1
        for number, counts in enumerate(self.datasets):
            found = np.unique(statuses[numbers == number], return_counts=True)
            counts.final_status.update(dict(zip(*(column.tolist() for column in found), strict=True)))

    def _recount(self, states: NDArray[np.uint8]) -> None:
        """Compute every count but `final_status` from the states."""
        items = self.items
        self._totals = np.bincount(states, minlength=len(STATES)).tolist()
        own = states[: items.own_count].reshape(items.problems, items.samples, items.turns)
        first = own[:, :, 0]
        accepted = np.count_nonzero(first == ItemState.ACCEPTED, axis=1)
        judged = accepted + np.count_nonzero(first == ItemState.REJECTED, axis=1)
        self._accepted, self._judged = array("I", accepted.tolist()), array("I", judged.tolist())
        for number, counts in enumerate(self.datasets):
            start = items.get_start(number)
            problems = slice(start, start + len(items.datasets[number].problem_ids))
            rated = judged[problems] > 0
            counts.states = np.bincount(own[problems].ravel(), minlength=len(STATES)).tolist()
            waiting = np.isin(own[problems, :, :-1], UNJUDGED) if self._opens_turns else np.zeros(0)
            counts.may_follow = int(np.count_nonzero(waiting))
            counts.rated_problems = int(np.count_nonzero(rated))
            counts.rate_sum = float(np.sum(accepted[problems][rated] / judged[problems][rated]))


def _chunks(values: Iterable[Any], dtype: "np.dtype[Any]") -> Iterator[NDArray[Any]]:
    """Yield the values in arrays of bounded size; Any: both plain rows and records come through here."""
    iterator = iter(values)
    while (chunk := np.fromiter(islice(iterator, CHUNK), dtype)).size:
        yield chunk
