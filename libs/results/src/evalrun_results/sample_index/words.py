"""The index of the words of a segment's texts: which rows hold a word, found by its beginning. Pure.

The words are sorted and cut into blocks. A block is gzip-compressed: a line of JSON with its words and their row
counts, then for each word its rows as differences, little-endian, two bytes each. A directory at the file's end has the
first word of every block and the blocks' ends. To find a prefix, a reader takes one range of the file.
"""

import gzip
import json
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from evalrun_results.arrow_values import to_numbers

SEPARATORS: Final = r"[^\pL\pN_]+"
MIN_LENGTH: Final = 2
MAX_LENGTH: Final = 40
"""Maximum bytes of a word. A longer text is data, not a word, and is not found."""
MAX_ROWS: Final = 1 << 16
_BLOCK_ROWS: Final = 1 << 14
_BLOCK_WORDS: Final = 2000
_LEVEL: Final = 5


class WordIndex:
    """Collects the words of texts, row by row in order, and encodes them. Holds 8 bytes per word and row."""

    def __init__(self) -> None:
        self._words = pa.array([], pa.string())
        self._pairs: list[NDArray[np.int64]] = []
        self._rows = 0

    def add(self, texts: pa.Array) -> None:
        """Add the texts of the next rows.

        Raises:
            ValueError: more than MAX_ROWS rows.
        """
        if self._rows + len(texts) > MAX_ROWS:
            raise ValueError(f"a segment has at most {MAX_ROWS} rows")
        lists = pc.split_pattern_regex(pc.utf8_lower(pc.fill_null(texts, "")), SEPARATORS)
        words = pc.list_flatten(lists)
        rows = pc.list_parent_indices(lists)
        lengths = pc.binary_length(words)
        wanted = pc.and_(pc.greater_equal(lengths, MIN_LENGTH), pc.less_equal(lengths, MAX_LENGTH))
        coded = words.filter(wanted).dictionary_encode()
        codes = self._known(coded.dictionary)[to_numbers(coded.indices, np.int32)]
        numbers = to_numbers(rows.filter(wanted).cast(pa.int64()), np.int64) + self._rows
        self._pairs.append(np.unique(codes * MAX_ROWS + numbers))
        self._rows += len(texts)

    def _known(self, words: pa.Array) -> NDArray[np.int64]:
        """Return the codes of distinct words; new words get the next codes."""
        found = pc.index_in(words, value_set=self._words)
        is_new = pc.is_null(found)
        codes = to_numbers(pc.fill_null(found, 0), np.int32).astype(np.int64)
        mask = to_numbers(is_new.cast(pa.uint8()), np.uint8) == 1
        codes[mask] = np.arange(len(self._words), len(self._words) + int(mask.sum()))
        self._words = pa.concat_arrays([self._words, words.filter(is_new)])
        return codes

    def encode(self) -> tuple[bytes, list[int]]:
        """Return the file's bytes, and offset and length of its directory."""
        written = bytearray()
        first: list[str] = []
        ends: list[int] = []
        for words, counts, gaps in self._blocks():
            head = json.dumps([words, counts]).encode() + b"\n"
            written += gzip.compress(head + gaps.tobytes(), _LEVEL, mtime=0)
            first.append(words[0])
            ends.append(len(written))
        directory = gzip.compress(json.dumps({"first": first, "ends": ends}).encode(), _LEVEL, mtime=0)
        place = [len(written), len(directory)]
        return bytes(written + directory), place

    def _blocks(self) -> Iterator[tuple[list[str], list[int], NDArray[np.uint16]]]:
        """Yield words, the number of rows of each word, and the gaps between these rows."""
        if not len(self._words):
            return
        order = to_numbers(pc.sort_indices(self._words), np.uint64).astype(np.int64)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        pairs = np.concatenate(self._pairs)
        pairs = np.sort(rank[pairs // MAX_ROWS] * MAX_ROWS + pairs % MAX_ROWS)
        codes, rows = pairs // MAX_ROWS, pairs % MAX_ROWS
        gaps = np.diff(rows, prepend=0)
        starts = np.searchsorted(codes, np.arange(len(order) + 1))
        # The first row of each word is no difference.
        gaps[starts[:-1]] = rows[starts[:-1]]
        gaps = gaps.astype("<u2")
        words = self._words.take(pa.array(order))
        begin = 0
        while begin < len(order):
            by_rows = int(np.searchsorted(starts, starts[begin] + _BLOCK_ROWS, side="right")) - 1
            end = min(max(by_rows, begin + 1), begin + _BLOCK_WORDS, len(order))
            counts = np.diff(starts[begin : end + 1])
            yield words[begin:end].to_pylist(), counts.tolist(), gaps[starts[begin] : starts[end]]
            begin = end
