"""Finds near-duplicates of reference texts: candidates by MinHash and shared 13-grams, each verified exactly.

The thresholds were measured on 2,225 labelled rows against HumanEval and MBPP 11-210; docs/data-governance.md has the
figures by kind. Rephrasings and translations share too little text: they are not found, and the report says so.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rensa import RMinHash, RMinHashLSH

from evalrun_data.governance.shingles import containment, jaccard, ngrams_of, shingles_of

MIN_JACCARD: Final = 0.4
MIN_CONTAINMENT: Final = 0.6
"""Of the reference's shingles, for a pair that also shares a 13-gram: a problem quoted inside a longer text."""

PERMUTATIONS: Final = 128
# 64 bands of two: a pair at similarity 0.4 becomes a candidate with probability 1 - (1 - 0.4^2)^64 = 0.99998, one at
# 0.02, where unrelated problems lie, with 0.025.
_BANDS: Final = 64
_SEED: Final = 1
_MIN_ESTIMATE: Final = 0.2
"""Of the similarity, from the signatures: candidates below are not verified. The estimate's standard deviation is at
most 0.044, so a pair at 0.4 falls below with a probability of 2 in a million."""


@dataclass(frozen=True, slots=True)
class ComparedText:
    """A problem as the audit compares it."""

    key: str
    """Names the problem in a report: `DATASET/PROBLEM_ID` or a row of a text file."""
    text: str


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Features that a text is compared by."""

    shingles: frozenset[str]
    grams: frozenset[str]
    signature: RMinHash

    @classmethod
    def of(cls, text: str) -> "Fingerprint":
        """Take the fingerprint of a text."""
        shingles = shingles_of(text)
        return cls(shingles, ngrams_of(text), _signature(shingles))


@dataclass(frozen=True, slots=True)
class NearPair:
    """Two texts that share so much that one is taken for the other's copy."""

    row: str
    reference: str
    jaccard: float
    containment: float
    """Share of the reference's shingles that the row has."""


@dataclass(frozen=True, slots=True)
class Matches:
    """Overlap of one row with the references."""

    near: tuple[NearPair, ...]
    """Verified pairs, most similar first."""
    ngram: tuple[str, ...]
    """Keys of the references that share a 13-gram with the row, whether or not they are near."""


class ReferenceIndex:
    """Reference texts in memory, asked row by row: rows may be a stream of any length."""

    def __init__(self, references: Sequence[ComparedText]) -> None:
        """Index the references."""
        self._keys = [reference.key for reference in references]
        self._shingles = [shingles_of(reference.text) for reference in references]
        self._signatures = [_signature(shingles) for shingles in self._shingles]
        self._lsh = RMinHashLSH(MIN_JACCARD, PERMUTATIONS, _BANDS)
        by_ngram: defaultdict[str, list[int]] = defaultdict(list)
        for position, reference in enumerate(references):
            if self._shingles[position]:
                self._lsh.insert(position, self._signatures[position])
            for ngram in ngrams_of(reference.text):
                by_ngram[ngram].append(position)
        self._by_ngram = dict(by_ngram)

    def matches(self, row: ComparedText, first: int = 0) -> Matches:
        """Return what the row has in common with the references, skipping those before `first`."""
        return self.matches_of(row.key, Fingerprint.of(row.text), first)

    def matches_of(self, key: str, row: Fingerprint, first: int = 0) -> Matches:
        """Return the same for a row whose fingerprint was taken."""
        if not row.shingles:
            return Matches((), ())
        shared = {position for ngram in row.grams for position in self._by_ngram.get(ngram, ()) if position >= first}
        near = []
        for position in sorted(shared | self._candidates(row.signature, first)):
            reference = self._shingles[position]
            similarity, contained = jaccard(row.shingles, reference), containment(reference, row.shingles)
            if similarity >= MIN_JACCARD or (position in shared and contained >= MIN_CONTAINMENT):
                near.append(NearPair(key, self._keys[position], similarity, contained))
        near.sort(key=lambda pair: -pair.jaccard)
        return Matches(tuple(near), tuple(self._keys[position] for position in sorted(shared)))

    def _candidates(self, signature: RMinHash, first: int) -> set[int]:
        return {
            position
            for position in self._lsh.query(signature)
            if position >= first and signature.jaccard(self._signatures[position]) >= _MIN_ESTIMATE
        }


def _signature(shingles: frozenset[str]) -> RMinHash:
    signature = RMinHash(PERMUTATIONS, _SEED)
    signature.update(list(shingles))
    return signature
