"""Reads the rows of an ended run as Arrow batches: of Parquet the columns that are asked for alone."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from evalrun_data.sources import read_rows
from evalrun_data.store_problems import name_read_errors
from evalrun_results.outputs.destination import resolve_destination
from evalrun_results.outputs.result_table import RESULT_SCHEMA
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.exits import BadInputError

BATCH_ROWS: Final = 2048
_JSON_ROWS: Final = 256
"""Rows of `results.jsonl` that are held as Python objects at a time."""


class StoredBatches:
    """The rows of a run that has ended.

    Args:
        run: opened.
    """

    def __init__(self, run: StoredRun) -> None:
        self._run = run

    def read(self, columns: Sequence[str] = (), problem: str | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the file's order, with the columns of `RESULT_SCHEMA`. Missing columns are null.

        Args:
            columns: that are read; empty: all.
            problem: of Parquet, only row groups that may hold this problem are read, including their other rows.

        Raises:
            BadInputError: the file cannot be read.
        """
        name = self._run.results_file
        if name is None:
            return
        wanted = _select_fields(columns)
        place = f"{self._run.place.rstrip('/')}/{name}"
        if name.endswith(".parquet"):
            yield from _read_parquet(place, wanted, problem)
        else:
            yield from _read_lines(place, wanted)


def _select_fields(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([RESULT_SCHEMA.field(name) for name in columns]) if columns else RESULT_SCHEMA


def make_batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema = RESULT_SCHEMA) -> pa.RecordBatch:
    """Return rows as a batch."""
    return pa.RecordBatch.from_pylist(list(rows), schema=schema)


def _read_parquet(place: str, schema: pa.Schema, problem: str | None) -> Iterator[pa.RecordBatch]:
    files, path = resolve_destination(place)
    with name_read_errors(place), files.open(path, "rb") as opened:
        try:
            file = pq.ParquetFile(opened)
            present = [name for name in schema.names if name in file.schema_arrow.names]
            groups = [
                group
                for group in range(file.num_row_groups)
                if problem is None or _may_hold(file.metadata.row_group(group), problem)
            ]
            if not groups:
                return
            for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=present):
                yield _complete_columns(batch, schema)
        except pa.ArrowException as error:
            raise BadInputError(f"{place}: cannot be read: {error}") from error


def _may_hold(group: pq.RowGroupMetaData, problem: str) -> bool:
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema == "problem_id":
            found = column.statistics
            return found is None or not found.has_min_max or found.min <= problem <= found.max
    return True


def _complete_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    present = set(batch.schema.names)
    arrays = [
        batch.column(field.name).cast(field.type) if field.name in present else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _read_lines(place: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    held: list[Mapping[str, Any]] = []
    for row in read_rows(place):
        held.append(row.values)
        if len(held) == _JSON_ROWS:
            yield make_batch(held, schema)
            held = []
    if held:
        yield make_batch(held, schema)
