"""Finds near-duplicates within a dataset of any length in a single pass.

A problem is compared with the first one of each group of near-duplicates; a problem that is near to that one opens no
group of its own. So memory holds one signature per group, and a dataset made from a template takes no longer.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rensa import RMinHash, RMinHashLSH

from evalrun_data.governance.near_duplicates import PERMUTATIONS, Fingerprint
from evalrun_data.governance.shingles import jaccard, make_shingles

MIN_INTRA_DATASET_JACCARD: Final = 0.6
"""The threshold is higher than between datasets: problems of the same author and contest resemble each other, and
nothing leaks."""

# With 32 bands of four, a pair at similarity 0.6 becomes a candidate with probability 1 - (1 - 0.6^4)^32 = 0.988, a
# pair at 0.7 with 0.9998, and a pair at 0.05 with 0.0002: among 100,000 problems that is 20 candidates each.
_BANDS: Final = 32
_MIN_ESTIMATE: Final = MIN_INTRA_DATASET_JACCARD - 0.18
"""Threshold of the estimate from the signatures, whose standard deviation is at most 0.044: candidates below are not
verified."""
MAX_VERIFIED: Final = 16
"""Candidates of a problem that are verified, the likeliest first. Where half of each text is one template, every
problem is a candidate of every other, and the time of verifying all grows with the square of the problems."""


@dataclass(frozen=True, slots=True)
class IntraDatasetDuplicate:
    """A problem that nearly equals an earlier problem of its own dataset."""

    dataset: str
    problem_id: str
    near_to: str
    """The first of its group."""
    jaccard: float


class IntraDatasetIndex:
    """The first problem of each group of near-duplicates."""

    def __init__(self, dataset: str, text_at: Callable[[int], str]) -> None:
        """Begin with none.

        Args:
            dataset: its name.
            text_at: returns the text of an earlier problem by its position, for the exact comparison.
        """
        self._dataset = dataset
        self._text_at = text_at
        self._lsh = RMinHashLSH(MIN_INTRA_DATASET_JACCARD, PERMUTATIONS, _BANDS)
        self._groups: dict[int, tuple[str, RMinHash]] = {}

    def take(self, position: int, problem_id: str, found: Fingerprint) -> IntraDatasetDuplicate | None:
        """Return the problem's nearest group, or open a new group if none is near."""
        if not found.runs:
            return None
        nearest = max(
            (
                (jaccard(found.shingles, make_shingles(self._text_at(other))), -other)
                for other in self._candidates(found)
            ),
            default=(0.0, 0),
        )
        if nearest[0] >= MIN_INTRA_DATASET_JACCARD:
            return IntraDatasetDuplicate(self._dataset, problem_id, self._groups[-nearest[1]][0], nearest[0])
        self._groups[position] = (problem_id, found.signature)
        self._lsh.insert(position, found.signature)
        return None

    def _candidates(self, found: Fingerprint) -> list[int]:
        estimates = (
            (found.signature.jaccard(self._groups[position][1]), -position)
            for position in self._lsh.query(found.signature)
        )
        likely = (each for each in estimates if each[0] >= _MIN_ESTIMATE)
        return [-place for _, place in heapq.nlargest(MAX_VERIFIED, likely)]
