"""Builds the index of an ended run, segment by segment, in bounded memory. An earlier start is continued."""

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, cast

import msgspec
import pyarrow as pa

from evalrun_results.sample_index.segment import (
    GROUP_ROWS,
    READ_COLUMNS,
    SEGMENT_ROWS,
    SegmentBuilder,
    is_whole,
    write_description,
)
from evalrun_results.sample_rows.stored_batches import StoredBatches
from evalrun_results.samples import JsonObject
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.exits import BadInputError

INDEX_VERSION: Final = 2
INDEX_DIRECTORY: Final = ".view"
"""Directory in a run's own, which holds its index."""
LINES: Final = "results.jsonl"
TEXTS: Final = "texts.jsonl"
"""Rows' lines where the run has no results.jsonl on this machine."""
_INDEXED_ROWS: Final = 8 * GROUP_ROWS


@dataclass(frozen=True, slots=True)
class IndexState:
    """How far an index is."""

    segments: list[JsonObject]
    is_complete: bool


def read_index(directory: Path, source: JsonObject) -> IndexState:
    """Return the state of an index; empty if there is no index, or an index of another source or version."""
    try:
        found = json.loads((directory / "index.json").read_bytes())
    except (OSError, ValueError):
        return IndexState([], is_complete=False)
    if not isinstance(found, dict) or found.get("version") != INDEX_VERSION or found.get("source") != source:
        return IndexState([], is_complete=False)
    segments = list(itertools.takewhile(lambda entry: is_whole(directory, entry), found["segments"]))
    return IndexState(segments, bool(found["complete"]) and len(segments) == len(found["segments"]))


def build_index(
    run: StoredRun, directory: Path, report: Callable[[IndexState], None] = lambda state: None
) -> IndexState:
    """Build the missing segments of a run's index.

    Args:
        run: ended.
        directory: of the index; it is made.
        report: called after every segment and at the end; once if the index is already complete.

    Raises:
        BadInputError: the results cannot be read, or the directory cannot be written.
    """
    source = describe_source(run)
    state = read_index(directory, source)
    if state.is_complete:
        report(state)
        return state
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for reached in _built(run, directory, source, state.segments):
            state = reached
            report(state)
    except OSError as error:
        raise BadInputError(f"{error.filename or directory}: cannot be written: {error.strerror or error}") from error
    return state


def describe_source(run: StoredRun) -> JsonObject:
    """Return facts of the results that change when the results do: a stale index is found by them."""
    for name in ("results.parquet", LINES):
        path = Path(run.place) / name
        if "://" not in run.place and path.is_file():
            found = path.stat()
            return {"file": name, "bytes": found.st_size, "changed": found.st_mtime_ns}
    return {"file": run.results_file, "summary": json.dumps(run.summary.get("counts"), sort_keys=True)}


def _built(run: StoredRun, directory: Path, source: JsonObject, kept: list[JsonObject]) -> Iterator[IndexState]:
    """Yield the state after every segment. A kept segment is not built again, but its rows' lengths are needed."""
    segments: list[JsonObject] = []
    builder, start = SegmentBuilder(), 0
    with _open_lines(run, directory) as lines:
        for batch, ends_segment in _resize_batches(StoredBatches(run).read(lines.columns)):
            is_kept = len(segments) < len(kept)
            builder.add(batch if not is_kept else None, lines.lengths(batch))
            if not ends_segment:
                continue
            name = f"{len(segments):05d}"
            segments.append(kept[len(segments)] if is_kept else builder.write(directory, name, lines.file, start))
            _write_state(directory, source, segments, is_complete=False)
            builder, start = SegmentBuilder(), start + sum(builder.lengths)
            yield IndexState(list(segments), is_complete=False)
    _write_state(directory, source, segments, is_complete=True)
    yield IndexState(segments, is_complete=True)


class _RowLines(Protocol):
    """Positions of the rows' lines of JSON."""

    file: str
    columns: tuple[str, ...]

    def lengths(self, batch: pa.RecordBatch) -> list[int]:
        """Return the lengths of the next rows' lines."""


class _StoredLines:
    """The lines of the run's own results.jsonl."""

    file = LINES
    columns = READ_COLUMNS

    def __init__(self, path: Path, lines: BinaryIO) -> None:
        self._path = path
        self._lines = lines

    def lengths(self, batch: pa.RecordBatch) -> list[int]:
        found = [len(line) for line in itertools.islice(self._lines, batch.num_rows)]
        if len(found) < batch.num_rows:
            raise BadInputError(f"{self._path}: has fewer rows than results.parquet: remove one of them")
        return found


class _WrittenLines:
    """Lines written beside the index, of a run without results.jsonl on this machine."""

    file = TEXTS
    columns: tuple[str, ...] = ()

    def __init__(self, lines: BinaryIO) -> None:
        self._lines = lines

    def lengths(self, batch: pa.RecordBatch) -> list[int]:
        written = [msgspec.json.encode(row) + b"\n" for row in batch.to_pylist()]
        self._lines.writelines(written)
        self._lines.flush()
        return [len(line) for line in written]


@contextmanager
def _open_lines(run: StoredRun, directory: Path) -> Iterator[_RowLines]:
    path = Path(run.place) / LINES
    if "://" not in run.place and path.is_file():
        with path.open("rb") as lines:
            yield _StoredLines(path, lines)
        return
    with (directory / TEXTS).open("wb") as lines:
        yield _WrittenLines(lines)


def _write_state(directory: Path, source: JsonObject, segments: list[JsonObject], *, is_complete: bool) -> None:
    content = {"version": INDEX_VERSION, "source": source, "segments": segments, "complete": is_complete}
    write_description(directory, "index.json", cast(JsonObject, content))


def _resize_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Yield batches of about `_INDEXED_ROWS` rows, with whether each is the last of its segment."""
    held: list[Any] = []
    count = in_segment = 0
    pending: pa.RecordBatch | None = None
    for batch in batches:
        while batch.num_rows:
            room = min(_INDEXED_ROWS - count, SEGMENT_ROWS - in_segment - count)
            held.append(batch.slice(0, room))
            count += held[-1].num_rows
            batch = batch.slice(room)
            if count == _INDEXED_ROWS or in_segment + count == SEGMENT_ROWS:
                if pending is not None:
                    yield pending, in_segment == 0
                pending = _join_batches(held)
                in_segment = (in_segment + count) % SEGMENT_ROWS
                held, count = [], 0
    if held:
        if pending is not None:
            yield pending, in_segment == 0
        pending = _join_batches(held)
    if pending is not None:
        yield pending, True


def _join_batches(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    (batch,) = pa.Table.from_batches(held).combine_chunks().to_batches()
    return batch
