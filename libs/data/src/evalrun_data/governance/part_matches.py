"""Finds the statement, the tests or the solution of a reference inside a longer row.

A part is found where a stretch of the row, about as long as the part, holds most of the part's shingles. Each shingle
weighs the more, the fewer references have it, and weighs nothing where many problems of a dataset do: templates tell
nothing, and neither does "write a function that".
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Literal

from evalrun_data.governance.shingles import SHINGLE_CHARACTERS, shingle_runs, squeeze

PartName = Literal["statement", "solution", "tests"]

MIN_SHARES: Final[Mapping[PartName, float]] = {"statement": 0.57, "solution": 0.8, "tests": 0.8}
"""Minimum share of a part's weight in a stretch of the row. Programs and tests resemble each other more than
statements."""
MIN_SHARE_WITH_NGRAM: Final = 0.5
"""Minimum share of a statement's weight if the row also has a run of thirteen words of the reference."""
MIN_SHINGLES: Final = 10
"""That weigh: shorter parts are compared as a part of the whole text alone."""
MAX_SHINGLES: Final = 256
"""Maximum number of shingles of a part: of a longer part every second, third, ... shingle counts."""
SHORT: Final = 30
MIN_OF_SHORT: Final = 0.6
"""A part of fewer shingles that weigh is found only with this share of all its shingles: "the perimeter of the square"
stands in many a text, and with "write a function that finds" before it in few."""
LEAD: Final = 25
"""Word characters before the first shingle that weighs, which are still of the part and not of a template."""
COMMON_SHARE: Final = 0.1
MIN_COMMON: Final = 5
"""A shingle that more than this share of a dataset's problems have, and at least so many, weighs nothing."""
STRETCH: Final = 1.2
STRETCH_MORE: Final = 10
"""Length of the stretch: so many times the part's, and so many characters more."""
SAME_SHARE: Final = 0.05
"""Shares, and weights relative to each other, that differ by less count as equal."""
_INDEXED: Final = 48
"""Shingles of a part that are looked up in every row; the rest only if these suggest that the part is there."""
_MIN_INDEXED_SHARE: Final = 0.35


@dataclass(frozen=True, slots=True)
class PartMatch:
    """A part of a reference inside a row."""

    reference: int
    part: PartName
    share: float
    """Share of the part's weight."""
    weight: float
    """Weight of the part in the row: of two parts that the row contains completely, the longer weighs more."""
    begin: int
    end: int
    """End of the stretch, in word characters of the row."""

    def outdoes(self, other: "PartMatch") -> bool:
        """Return whether this part fits the same place of the row better."""
        if self.begin >= other.end or other.begin >= self.end:
            return False
        if abs(self.share - other.share) <= SAME_SHARE:
            return self.weight > other.weight * (1 + SAME_SHARE)
        return self.share > other.share


@dataclass(frozen=True, slots=True)
class _Part:
    reference: int
    name: PartName
    weights: Mapping[str, float]
    total: float
    stretch: int
    every: frozenset[str]
    """Its shingles, for a short part; else empty."""


def count_shingles(texts: Iterable[AbstractSet[str]]) -> Counter[str]:
    """Count in how many texts each shingle occurs."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    return counts


def common_shingles(counts: Mapping[str, int], texts: int, share: float = COMMON_SHARE) -> frozenset[str]:
    """Return the shingles that more than a share of so many texts have, and at least `MIN_COMMON`."""
    least = common_from(texts, share)
    return frozenset(shingle for shingle, count in counts.items() if count >= least)


def common_from(texts: int, share: float = COMMON_SHARE) -> int:
    """Return the number of texts in which a piece must occur to be common."""
    return max(MIN_COMMON, math.floor(share * texts) + 1)


class PartIndex:
    """The parts of all references."""

    def __init__(
        self,
        references: Sequence[Mapping[PartName, str]],
        common: AbstractSet[str],
        counts: Sequence[Mapping[str, int]],
    ) -> None:
        """Index the parts.

        Args:
            references: the texts of each reference's parts.
            common: shingles that weigh nothing.
            counts: for each reference, in how many problems of its dataset each shingle occurs.
        """
        self._parts: list[_Part] = []
        self._by_shingle: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        weights = [math.log((len(references) + 1) / (count + 0.5)) for count in range(len(references) + 1)]
        for reference, parts in enumerate(references):
            for name, text in parts.items():
                runs = _cut_telling_stretch(shingle_runs(squeeze(text)), common)
                telling = list(dict.fromkeys(each for each in runs if each not in common))
                step = math.ceil(len(telling) / MAX_SHINGLES)
                held = {each: weights[counts[reference].get(each, 0)] for each in telling[:: max(1, step)]}
                if len(held) >= MIN_SHINGLES:
                    stretch = int(STRETCH * len(runs)) + STRETCH_MORE
                    every = frozenset(runs) if len(held) < SHORT else frozenset()
                    self._add(_Part(reference, name, held, sum(held.values()), stretch, every))
        # A set intersects with a row's list, so no set of the row has to be made.
        self._indexed = frozenset(self._by_shingle)

    def _add(self, part: _Part) -> None:
        number = len(self._parts)
        self._parts.append(part)
        shingles = list(part.weights)
        size = math.ceil(len(shingles) / _INDEXED)
        # The rarest shingles of each stretch are chosen: they are found fast, and a changed word removes few of them.
        chosen = [
            max(shingles[start : start + size], key=part.weights.__getitem__) for start in range(0, len(shingles), size)
        ]
        total = sum(part.weights[each] for each in chosen)
        for each in chosen:
            self._by_shingle[each].append((number, part.weights[each] / total))

    def matches(self, runs: Sequence[str], ngram: AbstractSet[int], first: int) -> list[PartMatch]:
        """Return the parts that a row holds, the best of each reference.

        Args:
            runs: the row's shingles, in order and with repeats.
            ngram: references of which the row has a run of thirteen words.
            first: references before this one are left out.
        """
        shares: defaultdict[int, float] = defaultdict(float)
        by_shingle = self._by_shingle
        for shingle in self._indexed.intersection(runs):
            for number, share in by_shingle[shingle]:
                shares[number] += share
        likely = [number for number, share in shares.items() if share >= _MIN_INDEXED_SHARE]
        parts = [self._parts[number] for number in sorted(likely) if self._parts[number].reference >= first]
        if not parts:
            return []
        places = _places(runs)
        best: dict[int, PartMatch] = {}
        for part in parts:
            found = _densest(part, places)
            low = part.name == "statement" and part.reference in ngram
            least = MIN_SHARE_WITH_NGRAM if low else MIN_SHARES[part.name]
            if part.every and _share_around(part, runs, found) < MIN_OF_SHORT:
                continue
            if found.share >= least and (part.reference not in best or found.share > best[part.reference].share):
                best[part.reference] = found
        return list(best.values())


def drop_siblings(found: Sequence[PartMatch], same_dataset: Sequence[int]) -> list[PartMatch]:
    """Return the matches without references that resemble a better match at the same place of the row.

    Args:
        found: in one row.
        same_dataset: the dataset of each reference, as a number.
    """
    return [
        each
        for each in found
        if not any(
            same_dataset[other.reference] == same_dataset[each.reference] and other.outdoes(each) for other in found
        )
    ]


def _cut_telling_stretch(runs: list[str], common: AbstractSet[str]) -> list[str]:
    """Return the shingles from the first to the last uncommon shingle, with some before them."""
    telling = [place for place, each in enumerate(runs) if each not in common]
    return runs[max(0, telling[0] - LEAD) : telling[-1] + 1] if telling else []


def _places(runs: Sequence[str]) -> dict[str, list[int]]:
    places: defaultdict[str, list[int]] = defaultdict(list)
    for begin, shingle in enumerate(runs):
        places[shingle].append(begin)
    return places


def _share_around(part: _Part, runs: Sequence[str], found: PartMatch) -> float:
    """Return the share of the part's shingles that occur at or around the place where it was found."""
    # A shingle lies within the stretch if its last character does.
    end = found.begin + part.stretch - SHINGLE_CHARACTERS + 1
    return len(part.every.intersection(runs[max(0, found.end - part.stretch) : end])) / len(part.every)


def _densest(part: _Part, places: Mapping[str, Sequence[int]]) -> PartMatch:
    """Return the stretch of a row that has most of a part's weight; a shingle counts once in a stretch."""
    hits = sorted((at, shingle) for shingle in part.weights.keys() & places.keys() for at in places[shingle])
    held: Counter[str] = Counter()
    weight = best = 0.0
    first, span = 0, (0, 0)
    for at, shingle in hits:
        held[shingle] += 1
        if held[shingle] == 1:
            weight += part.weights[shingle]
        while hits[first][0] < at - part.stretch:
            gone = hits[first][1]
            held[gone] -= 1
            if held[gone] == 0:
                weight -= part.weights[gone]
            first += 1
        if weight > best:
            best, span = weight, (hits[first][0], at + SHINGLE_CHARACTERS)
    return PartMatch(part.reference, part.name, min(1.0, best / part.total), best, *span)
