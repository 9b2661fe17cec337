"""The index of a run that has not ended: new segments for new verdicts, read from its ledger when someone asks."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from evalrun_aggregator.ledger.entries import StoredSample
from evalrun_cli.samples.ledger_batches import LedgerBatches
from evalrun_results.outputs.result_row import result_row
from evalrun_results.sample_index.segment import SegmentBuilder
from evalrun_results.sample_rows.stored_batches import batch_of
from evalrun_results.samples import JsonObject

TAIL_ROWS: Final = 4096
"""Rows of the last segment at most: it is written again with every change, and replaced in the page."""
TEXTS: Final = "texts.jsonl"
LATE_SECONDS: Final = 5.0
"""A verdict may be stored so long after one with a later time: groups of changes are committed together."""
_REFRESH_SECONDS: Final = 0.5
"""Least time between two looks at the ledger."""


class LiveIndex:
    """Rows of a running run, in the order in which they were judged.

    Args:
        ledger: of the run.
        directory: for the segments; it is emptied first.
        clock: seconds that only grow.
    """

    def __init__(self, ledger: Path, directory: Path, clock: Callable[[], float]) -> None:
        self._directory = directory
        self._clock = clock
        self._batches: LedgerBatches | None = None
        self._ledger = ledger
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
        self._identity: tuple[int, int] | None = None

    def refresh(self) -> tuple[list[JsonObject], list[int]]:
        """Return the segments, and the numbers of rows that a later one stands for. Looks at the ledger if it is time.

        Raises:
            BadInputError: the ledger cannot be read.
        """
        with self._lock:
            if self._clock() - self._looked_at >= _REFRESH_SECONDS:
                self._look()
                self._looked_at = self._clock()
            tail = [] if self._tail.entry is None else [self._tail.entry]
            return [*self._segments, *tail], list(self._superseded)

    def _look(self) -> None:
        try:
            found = self._ledger.stat()
        except FileNotFoundError:
            return
        if (identity := (found.st_dev, found.st_ino)) != self._identity:
            self._start_again()
            self._identity = identity
            self._batches = LedgerBatches(self._ledger)
        batches = self._batches
        if batches is None:
            return
        since = batches.recorded_since(self._since - LATE_SECONDS)
        fresh = [each for each in since if self._is_new(each)]
        for begin in range(0, len(fresh), TAIL_ROWS):
            self._append(batches, fresh[begin : begin + TAIL_ROWS])

    def _is_new(self, sample: StoredSample) -> bool:
        completion, verdict, _ = sample
        if verdict is None:
            return False
        self._since = max(self._since, verdict.recorded_at)
        known = self._known.get(completion.row)
        return known is None or (verdict.judged and not known[0])

    def _append(self, batches: LedgerBatches, samples: list[StoredSample]) -> None:
        if self._tail.builder.rows + len(samples) > TAIL_ROWS:
            if self._tail.entry is not None:
                self._segments.append(self._tail.entry)
            self._tail = _Tail(self._tail.end, self._tail.first + self._tail.builder.rows)
        number = self._tail.first + self._tail.builder.rows
        for sample in samples:
            row = sample.completion.row
            if row in self._known:
                self._superseded.append(self._known[row][1])
            self._known[row] = (sample.verdict is not None and sample.verdict.judged, number)
            number += 1
        rows = [msgspec.to_builtins(result_row(result)) for result in batches.results(samples)]
        lines = [msgspec.json.encode(row) + b"\n" for row in rows]
        with (self._directory / TEXTS).open("ab") as file:
            file.writelines(lines)
        self._tail.builder.add(batch_of(rows), [len(line) for line in lines])
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
        """Of its first row's line in the file of texts."""
        self.first = first
        """Number of its first row in the run."""

    @property
    def end(self) -> int:
        return self.start + sum(self.builder.lengths)
