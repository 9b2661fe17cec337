"""Reads the samples of a running or stopped run from its ledger, as the rows that its outputs will have."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from evalrun_aggregator.finish.sample_stream import MODES
from evalrun_aggregator.ledger.entries import Recorded, StoredSample
from evalrun_aggregator.ledger.items import pack_row, unpack_row
from evalrun_aggregator.ledger.schema import SAMPLES_VIEW
from evalrun_aggregator.ledger.store import LedgerReader
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_results.outputs.result_row import result_row
from evalrun_results.sample_rows.stored_batches import make_batch
from evalrun_results.samples import JsonObject, SampleResult
from evalrun_runtime.exits import BadInputError

NOT_YET: Final = "not judged yet"
"""Reason of a completion without a verdict in a run that has not ended."""
_BATCH_ROWS: Final = 256


class LedgerBatches:
    """The samples in a ledger, which another process may be writing.

    Args:
        path: the ledger.
        max_seconds: maximum time of each call but `read`; None: no limit.

    Raises:
        BadInputError: the ledger cannot be read.
    """

    def __init__(self, path: Path, max_seconds: float | None = None) -> None:
        self._path = path
        self._max_seconds = max_seconds
        try:
            self._reader = LedgerReader(path)
            self._start_clock()
            if computed := self._reader.computed_tables() - {SAMPLES_VIEW}:
                raise BadInputError(f"ledger {path}: {', '.join(sorted(computed))}: is computed, and is no ledger's")
            self.problems: Sequence[tuple[str, str]] = list(self._reader.problems())
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from error

    def _start_clock(self) -> None:
        if self._max_seconds is not None:
            self._reader.interrupt_after(self._max_seconds)

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()

    def read(self, columns: Sequence[str] = (), problem: str | None = None) -> Iterator[pa.RecordBatch]:
        """Yield every sample that has a completion, in order of problem, pass and sample.

        Args:
            columns: columns of the result.
            problem: restricts the samples to this problem.

        Raises:
            BadInputError: the ledger cannot be read.
        """
        for results in self._read_groups(problem):
            batch = make_batch([msgspec.to_builtins(result_row(result)) for result in results])
            yield batch.select(list(columns)) if columns else batch

    def _read_groups(self, problem: str | None) -> Iterator[list[SampleResult]]:
        held: list[SampleResult] = []
        try:
            for first, end in self._ranges(problem):
                for result in self.results(self._reader.samples(first, end)):
                    held.append(result)
                    if len(held) == _BATCH_ROWS:
                        yield held
                        held = []
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from error
        if held:
            yield held

    def _ranges(self, problem: str | None) -> Iterator[tuple[int, int]]:
        if problem is None:
            yield pack_row(0, 0, 0), pack_row(len(self.problems), 0, 0)
            return
        for position, (_, name) in enumerate(self.problems):
            if name == problem:
                yield pack_row(position, 0, 0), pack_row(position + 1, 0, 0)

    def list_recorded(self, moment: float, limit: int = -1) -> list[Recorded]:
        """Return the verdicts stored at or after a moment, in order of time.

        Args:
            moment: Unix seconds.
            limit: maximum number of verdicts; -1: all of them.

        Raises:
            BadInputError: the ledger cannot be read.
        """
        try:
            self._start_clock()
            return self._reader.list_recorded(moment, limit)
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from error

    def result_rows(self, rows: Iterable[int]) -> list[JsonObject]:
        """Return the results of these rows of the ledger as they stand in results.jsonl, in the order asked for.

        Raises:
            BadInputError: the ledger cannot be read.
        """
        try:
            self._start_clock()
            stored = (sample for row in rows for sample in self._reader.samples(row, row + 1))
            return [msgspec.to_builtins(result_row(result)) for result in self.results(stored)]
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from error

    def results(self, samples: Iterable[StoredSample]) -> Iterator[SampleResult]:
        """Yield stored samples as results. Fields that only the dataset contains (prompt, difficulty) are empty."""
        for completion, stored, _ in samples:
            position, repeat, sample, turn = unpack_row(completion.row)
            dataset, problem = self.problems[position]
            made_elsewhere, seconds = completion.started_at == 0, completion.generation_seconds
            yield SampleResult(
                dataset=dataset,
                problem_id=problem,
                sample=sample,
                turn=turn,
                repeat=repeat,
                prompt="",
                response=completion.text,
                ground_truth={},
                difficulty="",
                model=completion.model,
                finish_reason=completion.finish_reason,
                prompt_tokens=completion.prompt_tokens,
                output_tokens=completion.output_tokens,
                gen_seconds=(seconds or None) if made_elsewhere else seconds,
                started_at=None if made_elsewhere else completion.started_at,
                judged_at=None if stored is None else stored.recorded_at,
                verdict=None if stored is None else judge_pb2.Verdict.FromString(stored.verdict),
                not_judged_reason=NOT_YET if stored is None else "" if stored.judged else stored.reason,
                mode=MODES.get(completion.mode, "auto"),
                language=completion.language,
                log_probs=completion.log_probs,
            )

    def _unreadable(self, error: sqlite3.DatabaseError) -> BadInputError:
        return BadInputError(f"ledger {self._path}: cannot be read: {error}")
