"""A segment of a run: its files in a directory, and their description for readers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evalrun_results.arrow_values import to_numbers
from evalrun_results.sample_index.columns import SMALL_FIELDS, encode_columns
from evalrun_results.sample_index.words import MAX_ROWS, WordIndex
from evalrun_results.samples import JsonObject
from evalrun_runtime.atomic_files import atomic_file

SEGMENT_ROWS: Final = MAX_ROWS
GROUP_ROWS: Final = 1000
GROUP_BYTES: Final = 256 << 10
"""Bytes of a group of rows' texts, which is read at once: as many rows as fit, at most GROUP_ROWS, at least one."""
MAX_TESTS: Final = 8
"""Maximum number of a sample's tests whose output is searched: the first, failed or not."""

SMALL_COLUMNS: Final = tuple(each.column for each in SMALL_FIELDS)
READ_COLUMNS: Final = (*SMALL_COLUMNS, "response", "tests")


@dataclass
class SegmentBuilder:
    """Collects the rows of a segment. Small columns and words are held, not the texts."""

    columns: list[pa.RecordBatch] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    words: WordIndex = field(default_factory=WordIndex)

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return len(self.lengths)

    def add(self, batch: pa.RecordBatch | None, lengths: Sequence[int]) -> None:
        """Add rows.

        Args:
            batch: with READ_COLUMNS; None where the segment will not be written.
            lengths: of each row's line of texts.
        """
        self.lengths.extend(lengths)
        if batch is not None:
            self.columns.append(batch.select(list(SMALL_COLUMNS)))
            self.words.add(join_searched_texts(batch))

    def write(self, directory: Path, name: str, file: str, start: int) -> JsonObject:
        """Write the segment's files and return its entry in the run's description.

        Args:
            directory: of the run's index.
            name: of the segment.
            file: that holds the rows' texts, as a reader names it.
            start: where the first row's line begins there.
        """
        (batch,) = pa.Table.from_batches(self.columns).combine_chunks().to_batches()
        columns, fields = encode_columns(batch)
        words, blocks = self.words.encode()
        for suffix, content in (("columns", columns), ("words", words)):
            with atomic_file(directory / f"{name}.{suffix}") as target:
                target.write(content)
        rows, ends = text_groups(self.lengths)
        return {
            "name": name, "rows": self.rows, "fields": fields, "directory": list(blocks),
            "texts": {"file": file, "start": start, "rows": list(rows), "ends": list(ends)},
        }  # fmt: skip


def text_groups(lengths: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return for each group of rows the row after its last, and the byte after its last."""
    rows: list[int] = []
    ends: list[int] = []
    ends_of_rows = np.cumsum(np.asarray(lengths, np.int64))
    first, begin = 0, 0
    while first < len(lengths):
        last = int(np.searchsorted(ends_of_rows, begin + GROUP_BYTES, side="right"))
        last = min(max(last, first + 1), first + GROUP_ROWS, len(lengths))
        begin = int(ends_of_rows[last - 1])
        rows.append(last)
        ends.append(begin)
        first = last
    return rows, ends


def join_searched_texts(batch: pa.RecordBatch) -> pa.Array:
    """Return each row's searchable text: its answer, and the output and the reasons of its tests."""
    response = pc.fill_null(batch.column("response"), "")
    tests = batch.column("tests")
    if tests.null_count == len(tests):
        return response
    kept = pc.list_slice(tests, 0, MAX_TESTS)
    inside = pc.list_flatten(kept)
    parts = [pc.fill_null(pc.struct_field(inside, name), "") for name in ("stdout", "stderr", "reason")]
    lengths = to_numbers(pc.fill_null(pc.list_value_length(kept), 0), np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    joined = pc.binary_join(
        pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pc.binary_join_element_wise(*parts, " ")), " "
    )
    return pc.binary_join_element_wise(response, joined, " ")


def is_whole(directory: Path, entry: JsonObject) -> bool:
    """Return whether a segment's files are there."""
    return all((directory / f"{entry['name']}.{suffix}").is_file() for suffix in ("columns", "words"))


def write_description(directory: Path, name: str, content: JsonObject) -> None:
    """Atomically write the description, the first file that a reader opens."""
    with atomic_file(directory / name) as target:
        target.write(json.dumps(content, ensure_ascii=True).encode())
