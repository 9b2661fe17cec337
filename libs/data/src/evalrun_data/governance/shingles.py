"""Text similarity for the leakage audit: character shingles, and the 13-gram check beside them. Pure.

Shingles are taken over letters, digits and underscores alone, in lower case. So re-wrapping, re-indenting, other
comment signs and markdown change nothing, and a renamed variable or a typing error changes only the shingles around it.
"""

import re
import unicodedata
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

SHINGLE_CHARACTERS: Final = 5
NGRAM_WORDS: Final = 13
"""The length that GPT-3's contamination check made usual."""

_WORDS: Final = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, in compatibility form (NFKC)."""
    return _WORDS.findall(unicodedata.normalize("NFKC", text).casefold())


def squeeze(text: str) -> str:
    """Return the word characters of a text."""
    return "".join(words_of(text))


def shingle_runs(squeezed: str) -> list[str]:
    """Return every run of five of some word characters, in order; fewer are one run, and none have none."""
    if not squeezed:
        return []
    last = max(1, len(squeezed) - SHINGLE_CHARACTERS + 1)
    return [squeezed[start : start + SHINGLE_CHARACTERS] for start in range(last)]


def shingles_of(text: str) -> frozenset[str]:
    """Return every run of five word characters; a shorter text is one shingle, an empty one has none."""
    return frozenset(shingle_runs(squeeze(text)))


def ngrams_of(words: Sequence[str]) -> frozenset[int]:
    """Return the hash of every run of thirteen words; a shorter text has none. Hashes hold within one process."""
    return frozenset(map(hash, zip(*(words[start:] for start in range(NGRAM_WORDS)), strict=False)))


def jaccard(first: AbstractSet[str], second: AbstractSet[str]) -> float:
    """Return what share of all shingles both texts have: 1.0 where the sets are equal, 0.0 where one is empty."""
    shared = len(first & second)
    return shared / (len(first) + len(second) - shared) if shared else 0.0


def containment(part: AbstractSet[str], whole: AbstractSet[str]) -> float:
    """Return what share of the part's shingles the whole has: a problem inside a longer text scores high."""
    return len(part & whole) / len(part) if part else 0.0
