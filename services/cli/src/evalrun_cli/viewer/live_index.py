"""The index of a run that has not ended: new verdicts are read into new segments when a page asks for them."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from evalrun_aggregator.ledger.entries import Recorded
from evalrun_aggregator.sample_feed.ledger_batches import LedgerBatches
from evalrun_results.sample_index.segment import SegmentBuilder
from evalrun_results.sample_rows.stored_batches import make_batch
from evalrun_results.samples import JsonObject

TAIL_ROWS: Final = 4096
"""Maximum rows of the last segment, which is written again with every change, and replaced in the page."""
TEXTS: Final = "texts.jsonl"
LATE_SECONDS: Final = 5.0
"""Maximum seconds by which a verdict may be stored after a verdict with a later time: the ledger commits changes in
groups."""
LEDGER_SECONDS: Final = 10.0
"""Maximum seconds of a query to a ledger, whose author may have made it slow on purpose."""
_REFRESH_SECONDS: Final = 0.5
"""Minimum seconds between two reads of the ledger."""


class SampleSource(Protocol):
    """Source of the rows of a run that has not ended."""

    def identity(self) -> object | None:
        """Return an identity of the run's store, which changes if another store replaces it; None without a store."""

    def list_recorded(self, moment: float) -> Sequence[Recorded]:
        """Return the verdicts that were stored at or after a moment (Unix seconds), in order of time."""

    def result_rows(self, rows: Sequence[int]) -> list[JsonObject]:
        """Return the results of these rows of the store."""


class LedgerSource:
    """A ledger on this machine, which another process writes. Raises BadInputError if the ledger cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._of: tuple[int, int] | None = None
        self._batches: LedgerBatches | None = None

    def identity(self) -> tuple[int, int] | None:
        """Return device and inode of the file; None while there is no file."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def list_recorded(self, moment: float) -> Sequence[Recorded]:
        """Return the verdicts that were stored at or after a moment."""
        return self._open_batches().list_recorded(moment)

    def result_rows(self, rows: Sequence[int]) -> list[JsonObject]:
        """Return the results of these rows."""
        return self._open_batches().result_rows(rows)

    def _open_batches(self) -> LedgerBatches:
        if self._batches is None or self._of != self.identity():
            self._of, self._batches = self.identity(), LedgerBatches(self._path, LEDGER_SECONDS)
        return self._batches


class LiveIndex:
    """Rows of a running run, in the order in which they were judged.

    Args:
        source: source of the rows.
        directory: directory of the segments; it is emptied first.
        clock: seconds, monotonic.
    """

    def __init__(self, source: SampleSource, directory: Path, clock: Callable[[], float]) -> None:
        self._directory = directory
        self._clock = clock
        self._source = source
        self._lock = threading.Lock()
        self._start_again()

    def _start_again(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        for file in self._directory.iterdir():
            file.unlink()
        self._segments: list[JsonObject] = []
        self._tail = _Tail()
        self._changes = 0
        self._known: dict[int, tuple[bool, int]] = {}
        self._superseded: list[int] = []
        self._since = 0.0
        self._looked_at = -_REFRESH_SECONDS
        self._identity: object | None = None

    def refresh(self) -> tuple[list[JsonObject], list[int]]:
        """Return the segments, and the numbers of rows that a later row replaces. The source is read if that is due.

        Raises:
            BadInputError: the source cannot be read.
        """
        with self._lock:
            if self._clock() - self._looked_at >= _REFRESH_SECONDS:
                self._look()
                self._looked_at = self._clock()
            return self._known_rows()

    def known(self) -> tuple[list[JsonObject], list[int]]:
        """Return the last result of `refresh`, without reading the source."""
        with self._lock:
            return self._known_rows()

    def _known_rows(self) -> tuple[list[JsonObject], list[int]]:
        tail = [] if self._tail.entry is None else [self._tail.entry]
        return [*self._segments, *tail], list(self._superseded)

    def _look(self) -> None:
        if (identity := self._source.identity()) is None:
            return
        if identity != self._identity:
            self._start_again()
            self._identity = identity
        fresh = [each for each in self._source.list_recorded(self._since - LATE_SECONDS) if self._is_new(each)]
        for begin in range(0, len(fresh), TAIL_ROWS):
            taken = fresh[begin : begin + TAIL_ROWS]
            # Verdicts become known only after their rows were read, so that a failure of the source loses none.
            self._append(taken, self._source.result_rows([each.row for each in taken]))
            self._since = max(self._since, *(each.recorded_at for each in taken))

    def _is_new(self, recorded: Recorded) -> bool:
        known = self._known.get(recorded.row)
        return known is None or (recorded.judged and not known[0])

    def _append(self, taken: Sequence[Recorded], rows: list[JsonObject]) -> None:
        if self._tail.builder.rows + len(taken) > TAIL_ROWS:
            if self._tail.entry is not None:
                self._segments.append(self._tail.entry)
            self._tail = _Tail(self._tail.end, self._tail.first + self._tail.builder.rows)
        number = self._tail.first + self._tail.builder.rows
        for each in taken:
            if each.row in self._known:
                self._superseded.append(self._known[each.row][1])
            self._known[each.row] = (each.judged, number)
            number += 1
        lines = [msgspec.json.encode(row) + b"\n" for row in rows]
        with (self._directory / TEXTS).open("ab") as file:
            file.writelines(lines)
        self._tail.builder.add(make_batch(rows), [len(line) for line in lines])
        self._changes += 1
        name = f"live-{self._changes:06d}"
        before = self._tail.entry
        self._tail.entry = self._tail.builder.write(self._directory, name, TEXTS, self._tail.start)
        if before is not None:
            for suffix in ("columns", "words"):
                (self._directory / f"{before['name']}.{suffix}").unlink(missing_ok=True)


class _Tail:
    """The last segment, which still grows."""

    def __init__(self, start: int = 0, first: int = 0) -> None:
        self.builder = SegmentBuilder()
        self.entry: JsonObject | None = None
        self.start = start
        """Offset of the line of its first row in the file of texts, in bytes."""
        self.first = first
        """Number of its first row in the run."""

    @property
    def end(self) -> int:
        return self.start + sum(self.builder.lengths)
