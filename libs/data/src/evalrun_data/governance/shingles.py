"""Text similarity for the leakage audit: character shingles, and the 13-gram check beside them. Pure.

Shingles are taken over letters, digits and underscores alone, in lower case. So re-wrapping, re-indenting, other
comment signs and markdown change nothing, and a renamed variable or a typing error changes only the shingles around it.
"""

import re
import unicodedata
from collections.abc import Set as AbstractSet
from typing import Final

SHINGLE_CHARACTERS: Final = 5
NGRAM_WORDS: Final = 13
"""The length that GPT-3's contamination check made usual."""

_WORDS: Final = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, in compatibility form (NFKC)."""
    return _WORDS.findall(unicodedata.normalize("NFKC", text).casefold())


def shingles_of(text: str) -> frozenset[str]:
    """Return every run of five word characters; a shorter text is one shingle, an empty one has none."""
    squeezed = "".join(words_of(text))
    if not squeezed:
        return frozenset()
    last = max(1, len(squeezed) - SHINGLE_CHARACTERS + 1)
    return frozenset([squeezed[start : start + SHINGLE_CHARACTERS] for start in range(last)])


def ngrams_of(text: str) -> frozenset[str]:
    """Return every run of thirteen words; a shorter text has none."""
    words = words_of(text)
    return frozenset(
        " ".join(words[start : start + NGRAM_WORDS]) for start in range(max(0, len(words) - NGRAM_WORDS + 1))
    )


def jaccard(first: AbstractSet[str], second: AbstractSet[str]) -> float:
    """Return what share of all shingles both texts have: 1.0 where the sets are equal, 0.0 where one is empty."""
    shared = len(first & second)
    return shared / (len(first) + len(second) - shared) if shared else 0.0


def containment(part: AbstractSet[str], whole: AbstractSet[str]) -> float:
    """Return what share of the part's shingles the whole has: a problem inside a longer text scores high."""
    return len(part & whole) / len(part) if part else 0.0
