"""The rows of an ended run, from Parquet and from JSON lines."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders.results.samples import sample_result, with_changes
from builders.results.stored_runs import samples_of, write_run

from evalrun_results.outputs.result_table import RESULT_SCHEMA
from evalrun_results.sample_rows.stored_batches import StoredBatches
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.exits import BadInputError


def rows_of(run: Path, *columns: str, problem: str | None = None) -> list[dict[str, object]]:
    batches = StoredBatches(StoredRun.open(str(run))).read(columns, problem)
    return [row for batch in batches for row in batch.to_pylist()]


def test_read_both_files_give_the_same_rows(tmp_path: Path) -> None:
    run = write_run(tmp_path, samples_of([(3, 1), (600, 2)]))
    of_parquet = rows_of(run)
    (run / "results.parquet").unlink()

    assert len(of_parquet) == 603
    assert rows_of(run) == of_parquet
    assert rows_of(run, "sample", "final_status")[:2] == [
        {"sample": 0, "final_status": "success"}, {"sample": 1, "final_status": "wrong_answer"}
    ]  # fmt: skip


def test_read_lone_surrogate_in_lines_becomes_replacement(tmp_path: Path) -> None:
    run = write_run(tmp_path, [with_changes(sample_result(), response="a\ud800b")])
    (run / "results.parquet").unlink()

    assert rows_of(run, "response") == [{"response": "a\ufffdb"}]


def test_read_older_file_without_a_column_gives_null(tmp_path: Path) -> None:
    run = write_run(tmp_path, samples_of([(2, 1)]))
    table = pq.read_table(run / "results.parquet").drop_columns(["score", "rests_on"])
    pq.write_table(table, run / "results.parquet")

    assert [(row["score"], row["rests_on"]) for row in rows_of(run)] == [(None, None)] * 2
    assert len(rows_of(run)[0]) == len(RESULT_SCHEMA)


def test_read_problem_skips_row_groups_of_others(tmp_path: Path) -> None:
    run = write_run(tmp_path, samples_of([(2, 1), (2, 1)]))
    table = pq.read_table(run / "results.parquet")
    pq.write_table(table, run / "results.parquet", row_group_size=2)

    assert {row["problem_id"] for row in rows_of(run, problem="P/00001")} == {"P/00001"}
    assert rows_of(run, problem="P/9") == []


def test_read_damaged_file_is_refused_with_its_name(tmp_path: Path) -> None:
    run = write_run(tmp_path, samples_of([(2, 1)]))
    whole = (run / "results.parquet").read_bytes()
    (run / "results.parquet").write_bytes(whole[: len(whole) // 2])

    with pytest.raises(BadInputError, match=r"results\.parquet: cannot be read"):
        rows_of(run)
    (run / "results.parquet").write_bytes(gzip.compress(b"no Parquet"))
    with pytest.raises(BadInputError, match=r"results\.parquet: cannot be read"):
        rows_of(run)


def test_schema_batches_have_the_columns_of_the_results(tmp_path: Path) -> None:
    run = write_run(tmp_path, samples_of([(2, 1)]))
    (batch,) = StoredBatches(StoredRun.open(str(run))).read()
    assert isinstance(batch, pa.RecordBatch)
    assert batch.schema.equals(RESULT_SCHEMA)
