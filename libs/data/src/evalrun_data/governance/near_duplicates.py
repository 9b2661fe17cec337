"""Finds near-duplicates of reference texts, as a whole and by their parts; each candidate is verified exactly.

The thresholds were measured on labelled rows against HumanEval and MBPP 11-210; docs/data-governance.md has the figures
by kind. Rephrasings and translations share too little text: they are not found, and the report says so.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from rensa import RMinHash, RMinHashLSH

from evalrun_data.governance.part_matches import (
    MIN_COMMON,
    PartIndex,
    PartMatch,
    PartName,
    common_from,
    common_shingles,
    count_shingles,
    drop_siblings,
)
from evalrun_data.governance.shingles import (
    containment,
    hash_ngrams,
    jaccard,
    make_shingles,
    shingle_runs,
    split_words,
)

MIN_JACCARD: Final = 0.4
MIN_CONTAINMENT: Final = 0.6
"""Minimum share of the reference's shingles, for a pair that also shares a 13-gram: a problem quoted inside a longer
text."""

TEMPLATE_SHARE: Final = 0.5
"""Share of a training split's rows from which a common text is a template. A smaller share would hide a problem that
leaks often."""

PERMUTATIONS: Final = 128
# With 64 bands of two, a pair at similarity 0.4 becomes a candidate with probability 1 - (1 - 0.4^2)^64 = 0.99998, and
# a pair at 0.02, where unrelated problems lie, with 0.025.
_BANDS: Final = 64
_SEED: Final = 1
_MIN_ESTIMATE: Final = 0.2
"""Of the similarity, from the signatures: candidates below are not verified. The estimate's standard deviation is at
most 0.044, so a pair at 0.4 falls below with a probability of 2 in a million."""


@dataclass(frozen=True, slots=True)
class ComparedText:
    """The texts of a problem that the audit compares."""

    key: str
    """Names the problem in a report: `DATASET/PROBLEM_ID` or a row of a text file."""
    text: str
    """All of it."""
    dataset: str = ""
    parts: Mapping[PartName, str] = field(default_factory=dict)
    """Parts that are searched by themselves; empty for a row."""


@dataclass(frozen=True)
class Fingerprint:
    """Features that a text is compared by."""

    runs: Sequence[str]
    """Every shingle of the text, in order and with repeats."""
    grams: frozenset[int]
    signature: RMinHash

    @classmethod
    def from_text(cls, text: str) -> "Fingerprint":
        """Take the fingerprint of a text."""
        words = split_words(text)
        runs = shingle_runs("".join(words))
        return cls(runs, hash_ngrams(words), _signature(runs))

    # Made only when asked for: most rows resemble nothing, and their signature tells so.
    @cached_property
    def shingles(self) -> frozenset[str]:
        """The set of the text's shingles."""
        return frozenset(self.runs)


@dataclass(frozen=True, slots=True)
class NearPair:
    """Two texts so similar that one is considered a copy of the other."""

    row: str
    reference: str
    jaccard: float
    containment: float
    """Share of the reference that the row has: of its shingles, or of the part's weight by which it was found."""
    part: str
    """Part that matched: statement, solution or tests; whole, of all of them together."""


@dataclass(frozen=True, slots=True)
class Matches:
    """Overlap of a row with the references."""

    near: tuple[NearPair, ...]
    """Verified pairs, most similar first."""
    ngram: tuple[str, ...]
    """Keys of the references that share a 13-gram with the row that belongs to no template, whether or not they are
    near."""


class ReferenceIndex:
    """Reference texts in memory, asked row by row: rows may be a stream of any length."""

    def __init__(self, references: Sequence[ComparedText], templates: AbstractSet[str] = frozenset()) -> None:
        """Index the references.

        Args:
            references: the problems that must not leak.
            templates: shingles of the rows that say nothing, since most rows have them (`template_shingles`).
        """
        self._keys = [reference.key for reference in references]
        names = {name: number for number, name in enumerate(dict.fromkeys(each.dataset for each in references))}
        self._datasets = [names[reference.dataset] for reference in references]
        words = [split_words(reference.text) for reference in references]
        whole = [frozenset(shingle_runs("".join(each))) for each in words]
        common, counts = set(templates), []
        for number in range(len(names)):
            texts = [each for each, dataset in zip(whole, self._datasets, strict=True) if dataset == number]
            counts.append(count_shingles(texts))
            common |= common_shingles(counts[-1], len(texts))
        self._common = frozenset(common)
        self._shingles = [shingles - self._common for shingles in whole]
        self._signatures = [_signature(shingles) for shingles in self._shingles]
        self._parts = PartIndex(
            [reference.parts for reference in references], self._common, [counts[each] for each in self._datasets]
        )
        self._lsh = RMinHashLSH(MIN_JACCARD, PERMUTATIONS, _BANDS)
        by_ngram: defaultdict[int, list[int]] = defaultdict(list)
        for position, each in enumerate(words):
            if self._shingles[position]:
                self._lsh.insert(position, self._signatures[position])
            for ngram in hash_ngrams(each):
                by_ngram[ngram].append(position)
        sizes = Counter(self._datasets)
        self._by_ngram = {
            ngram: held
            for ngram, held in by_ngram.items()
            if len(held) < MIN_COMMON or not self._is_template(held, sizes)
        }
        self._ngrams = frozenset(self._by_ngram)

    def _is_template(self, references: Sequence[int], sizes: Mapping[int, int]) -> bool:
        """Return whether many problems of a dataset share the text of these references."""
        counts = Counter(self._datasets[each] for each in references)
        return any(count >= common_from(sizes[dataset]) for dataset, count in counts.items())

    def matches(self, row: ComparedText, first: int = 0) -> Matches:
        """Return the overlap of the row with the references, skipping those before `first`."""
        return self.match_fingerprint(row.key, Fingerprint.from_text(row.text), first)

    def match_fingerprint(self, key: str, row: Fingerprint, first: int = 0) -> Matches:
        """Return the same for a row whose fingerprint was taken."""
        if not row.runs:
            return Matches((), ())
        ngrams = row.grams & self._ngrams
        shared = {position for ngram in ngrams for position in self._by_ngram[ngram] if position >= first}
        parts = {each.reference: each for each in self._parts.matches(row.runs, shared, first)}
        near: dict[int, NearPair] = {}
        candidates = shared | self._candidates(row.signature, first) | parts.keys()
        if not candidates:
            return Matches((), ())
        telling = row.shingles - self._common
        for position in sorted(candidates):
            reference = self._shingles[position]
            similarity, contained = jaccard(telling, reference), containment(reference, telling)
            whole = similarity >= MIN_JACCARD or (position in shared and contained >= MIN_CONTAINMENT)
            part = parts.get(position)
            if part is not None and (not whole or part.share > contained):
                near[position] = NearPair(key, self._keys[position], similarity, part.share, part.part)
            elif whole:
                near[position] = NearPair(key, self._keys[position], similarity, contained, "whole")
        found = self._told_apart(near, parts, len(row.runs))
        found.sort(key=lambda pair: -pair.jaccard)
        return Matches(tuple(found), tuple(self._keys[position] for position in sorted(shared)))

    def _told_apart(self, near: Mapping[int, NearPair], parts: Mapping[int, PartMatch], length: int) -> list[NearPair]:
        """Return the pairs without siblings, which are problems that resemble the leaked problem."""
        everywhere = [
            parts.get(position) or PartMatch(position, "statement", pair.containment, 0.0, 0, length)
            for position, pair in near.items()
        ]
        return [near[each.reference] for each in drop_siblings(everywhere, self._datasets)]

    def _candidates(self, signature: RMinHash, first: int) -> set[int]:
        return {
            position
            for position in self._lsh.query(signature)
            if position >= first and signature.jaccard(self._signatures[position]) >= _MIN_ESTIMATE
        }


def template_shingles(rows: Iterable[str]) -> frozenset[str]:
    """Return the shingles that most of some rows have: of a template, or of a language."""
    found = [make_shingles(row) for row in rows]
    return common_shingles(count_shingles(found), len(found), TEMPLATE_SHARE)


def _signature(shingles: Iterable[str]) -> RMinHash:
    """Return the signature of a set of shingles. Repeats do not change it."""
    signature = RMinHash(PERMUTATIONS, _SEED)
    signature.update(shingles)
    return signature
