"""Numbers the items of a run. Pure.

An item is a completion and its verdict: (dataset, problem, sample, turn, repeat). It has two numbers:

- its *index*, 0 to `RunItems.count - 1`, repeat outermost, then problem, sample and turn. State is kept by index in a
  byte per item, so that a million items take a megabyte.
- its *row*, the 63-bit key under which the ledger stores it: problem, repeat, sample, turn, in this order. New items of
  a run land near each other in the file, and reading in row order is reading problem by problem.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

TURN_BITS = 8
SAMPLE_BITS = 20
REPEAT_BITS = 8
PROBLEM_SHIFT = TURN_BITS + SAMPLE_BITS + REPEAT_BITS
MAX_SAMPLES = 1 << SAMPLE_BITS
MAX_REPEATS = 1 << REPEAT_BITS
MAX_TURNS = 1 << TURN_BITS
MAX_PROBLEMS = 1 << (63 - PROBLEM_SHIFT)


class ItemKey(NamedTuple):
    """Permanent id of an item."""

    dataset: str
    problem_id: str
    sample: int = 0
    turn: int = 0
    repeat: int = 0

    def __str__(self) -> str:
        text = f"{self.dataset} {self.problem_id} sample {self.sample}"
        if self.turn:
            text += f" turn {self.turn}"
        return f"{text} repeat {self.repeat}" if self.repeat else text


class ItemPosition(NamedTuple):
    """The parts of a row number."""

    problem: int
    repeat: int
    sample: int
    turn: int


def pack_row(problem: int, repeat: int, sample: int, turn: int = 0) -> int:
    """Return the row number. `problem` is the problem's position in the run, from 0."""
    return (problem << PROBLEM_SHIFT) | (repeat << (SAMPLE_BITS + TURN_BITS)) | (sample << TURN_BITS) | turn


def unpack_row(row: int) -> ItemPosition:
    """Return the parts of a row number."""
    return ItemPosition(
        row >> PROBLEM_SHIFT,
        (row >> (SAMPLE_BITS + TURN_BITS)) & (MAX_REPEATS - 1),
        (row >> TURN_BITS) & (MAX_SAMPLES - 1),
        row & ((1 << TURN_BITS) - 1),
    )


class RowArrays(NamedTuple):
    """The parts of many row numbers."""

    problem: NDArray[np.int64]
    repeat: NDArray[np.int64]
    sample: NDArray[np.int64]
    turn: NDArray[np.int64]


def unpack_rows(rows: NDArray[np.int64]) -> RowArrays:
    """Return the parts of many row numbers."""
    return RowArrays(
        rows >> PROBLEM_SHIFT,
        (rows >> (SAMPLE_BITS + TURN_BITS)) & (MAX_REPEATS - 1),
        (rows >> TURN_BITS) & (MAX_SAMPLES - 1),
        rows & ((1 << TURN_BITS) - 1),
    )


@dataclass(frozen=True)
class DatasetItems:
    """The problems of a dataset, in order."""

    name: str
    problem_ids: Sequence[str]


@dataclass(frozen=True)
class RunItems:
    """Every item of a run: problems by dataset, each with `samples` samples of `turns` turns, in `1 + repeats` passes.

    Raises:
        ValueError: more problems, samples, turns or repeats than row numbers can hold.
    """

    datasets: Sequence[DatasetItems]
    samples: int = 1
    repeats: int = 0
    turns: int = 1
    _starts: list[int] = field(init=False, repr=False)
    _positions: dict[tuple[str, str], int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        starts: list[int] = []
        positions: dict[tuple[str, str], int] = {}
        for dataset in self.datasets:
            starts.append(len(positions))
            for problem_id in dataset.problem_ids:
                positions[dataset.name, problem_id] = len(positions)
        bounds = (self.samples, MAX_SAMPLES), (self.repeats, MAX_REPEATS - 1), (self.turns, MAX_TURNS)
        if len(positions) > MAX_PROBLEMS or any(number > most for number, most in bounds):
            raise ValueError(
                f"at most {MAX_PROBLEMS} problems, {MAX_SAMPLES} samples, {MAX_REPEATS - 1} repeats, {MAX_TURNS} turns"
            )
        object.__setattr__(self, "_starts", starts)
        object.__setattr__(self, "_positions", positions)

    @property
    def problems(self) -> int:
        """Number of problems of all datasets together."""
        return len(self._positions)

    @property
    def count(self) -> int:
        """Number of items, repeats included."""
        return self.problems * self.width * (1 + self.repeats)

    @property
    def width(self) -> int:
        """Number of items per problem and repeat."""
        return self.samples * self.turns

    @property
    def own_count(self) -> int:
        """Number of items of the run itself (repeat 0); their indices come first."""
        return self.problems * self.width

    def names(self) -> Iterator[tuple[str, str]]:
        """Return (dataset, problem id) of each problem in order of position."""
        return iter(self._positions)

    def find_index(self, key: ItemKey) -> int | None:
        """Return the index of a key; None if the key does not belong to this run."""
        position = self._positions.get((key.dataset, key.problem_id))
        if position is None or key.sample >= self.samples or key.repeat > self.repeats or key.turn >= self.turns:
            return None
        return ((key.repeat * self.problems + position) * self.samples + key.sample) * self.turns + key.turn

    def get_key(self, index: int) -> ItemKey:
        """Return the key of an index."""
        position, repeat, sample, turn = self._split(index)
        number = self.find_dataset_number(position)
        dataset = self.datasets[number]
        return ItemKey(dataset.name, dataset.problem_ids[position - self._starts[number]], sample, turn, repeat)

    def get_row(self, index: int) -> int:
        """Return the ledger's row of an index."""
        position, repeat, sample, turn = self._split(index)
        return pack_row(position, repeat, sample, turn)

    def index_of_row(self, row: int) -> int | None:
        """Return the index of a row; None if the row does not belong to this run."""
        problem, repeat, sample, turn = unpack_row(row)
        if problem >= self.problems or repeat > self.repeats or sample >= self.samples or turn >= self.turns:
            return None
        return ((repeat * self.problems + problem) * self.samples + sample) * self.turns + turn

    def get_turn(self, index: int) -> int:
        """Return the item's turn, from 0. The next index is the next turn of the same sample, if any."""
        return index % self.turns

    def get_position(self, index: int) -> int:
        """Return the position of the item's problem, over all datasets."""
        return index // self.width % self.problems

    def find_dataset_number(self, position: int) -> int:
        """Return the number of the dataset that the problem at this position belongs to."""
        return bisect_right(self._starts, position) - 1

    def get_start(self, dataset: int) -> int:
        """Return the position of the dataset's first problem."""
        return self._starts[dataset]

    def _split(self, index: int) -> tuple[int, int, int, int]:
        rest, turn = divmod(index, self.turns)
        rest, sample = divmod(rest, self.samples)
        repeat, position = divmod(rest, self.problems)
        return position, repeat, sample, turn
