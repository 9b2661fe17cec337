"""Text similarity for the leakage audit: character shingles and 13-grams of words. Pure.

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


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case, in compatibility form (NFKC)."""
    return _WORDS.findall(unicodedata.normalize("NFKC", text).casefold())


def squeeze(text: str) -> str:
    """Return the word characters of a text."""
    return "".join(split_words(text))


def shingle_runs(squeezed: str) -> list[str]:
    """Return every five consecutive word characters, in order. A shorter text is a single shingle."""
    if len(squeezed) <= SHINGLE_CHARACTERS:
        return [squeezed] if squeezed else []
    # Joined tuples take three fifths of the time that a slice for each character takes.
    return list(map("".join, zip(*(squeezed[start:] for start in range(SHINGLE_CHARACTERS)), strict=False)))


def make_shingles(text: str) -> frozenset[str]:
    """Return the set of five consecutive word characters. A shorter text is a single shingle, an empty text has
    none."""
    return frozenset(shingle_runs(squeeze(text)))


def hash_ngrams(words: Sequence[str]) -> frozenset[int]:
    """Return the hashes of every thirteen consecutive words. Hashes are valid within a process."""
    return frozenset(map(hash, zip(*(words[start:] for start in range(NGRAM_WORDS)), strict=False)))


def jaccard(first: AbstractSet[str], second: AbstractSet[str]) -> float:
    """Return the share of all shingles that both texts have: 1.0 for equal sets, 0.0 if one is empty."""
    shared = len(first & second)
    return shared / (len(first) + len(second) - shared) if shared else 0.0


def containment(part: AbstractSet[str], whole: AbstractSet[str]) -> float:
    """Return the share of the part's shingles that the whole has, which is high for a problem inside a longer text."""
    return len(part & whole) / len(part) if part else 0.0
