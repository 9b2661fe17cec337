import os
from collections.abc import Iterator
from pathlib import Path

import fsspec
import msgspec
import pytest
from builders.results.samples import sample_result, verdict, with_changes
from builders.results.stored_runs import totals_of, write_run
from fsspec.implementations.memory import MemoryFileSystem

from evalrun_cli.comparisons.history import runs_below
from evalrun_data.rows import Row
from evalrun_data.shards import list_files
from evalrun_data.sources import Source
from evalrun_proto.judge.v1 import judge_pb2 as pb
from evalrun_results.outputs.result_row import result_row
from evalrun_results.samples import SampleResult
from evalrun_results.stored_rows import parse_result
from evalrun_results.stored_run import MAX_DOCUMENT_BYTES, StoredRun
from evalrun_runtime.exits import BadInputError


def some_results() -> list[SampleResult]:
    made = verdict(["success", "memory_limit", "api_error"])
    made.guardrails.append(pb.GUARDRAIL_ANSWER_CUT)
    made.disagreeing_comparators.append("exact")
    made.tests[1].exit_code = -9
    made.tests[1].stderr.full_length = 5_000_000
    made.tests[2].disagreeing_comparators.append("tokens")
    made.cached = made.forgeable = True
    made.queue_seconds = 0.25
    return [
        sample_result(0),
        with_changes(sample_result(1, 2, repeat=1), verdict=made, turn=1, finish_reason="length"),
        sample_result(2, 0, None, output_tokens=None, gen_seconds=None),
        sample_result(3, 0, [], empty=True),
        sample_result(4, 0, ["api_error", "wrong_answer"], dataset="mbpp_reg"),
    ]


@pytest.mark.parametrize("result", some_results(), ids=lambda result: result.problem_id)
def test_result_survives_the_round_trip_through_a_row(result: SampleResult) -> None:
    row = msgspec.to_builtins(result_row(result))
    assert msgspec.to_builtins(result_row(parse_result(Row(row, "results.jsonl", 1)))) == row


@pytest.fixture
def memory() -> Iterator[str]:
    yield "memory://stored-run-test"
    fsspec.filesystem("memory").rm("/stored-run-test", recursive=True)


@pytest.mark.parametrize("kept", ["results.parquet", "results.jsonl"])
def test_totals_are_the_same_from_either_file(tmp_path: Path, kept: str) -> None:
    write_run(tmp_path, some_results())
    (tmp_path / ({"results.parquet", "results.jsonl"} - {kept}).pop()).unlink()
    run = StoredRun.open(str(tmp_path))
    assert run.results_file == kept
    assert run.totals() == totals_of(some_results())


def test_a_url_is_read_like_a_directory(memory: str) -> None:
    write_run(memory, some_results(), run="remote")
    run = StoredRun.open(f"{memory}/")
    assert (run.run_info["run"], run.totals()) == ("remote", totals_of(some_results()))
    assert [record["problem_id"] for record in run.qa_records()["mbpp_reg"]] == ["P/00004"]


def test_a_run_without_any_result_is_read(tmp_path: Path) -> None:
    write_run(tmp_path, [])
    run = StoredRun.open(str(tmp_path))
    assert (run.totals(), run.qa_records(), list(run.results())) == ({}, {}, [])


def test_directory_without_a_finished_run_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no finished run there: summary"):
        StoredRun.open(str(tmp_path))
    summary = tmp_path / "summary.json"
    for content, says in (
        ("{", "is not JSON"),
        ("[" * 200_000, "is not JSON"),
        ('{"schema": 1, "datasets": {"d": {"coverage": NaN}}}', "is not JSON: NaN is no number"),
        ("[]", "is not a JSON object"),
        ('{"schema": 2}', "unknown schema 2"),
        ('{"schema": 1}', "datasets is missing"),
        ('{"schema": 1, "datasets": {"d": {}}}', "no results.parquet or results.jsonl"),
    ):
        summary.write_text(content)
        with pytest.raises(BadInputError, match=says):
            StoredRun.open(str(tmp_path))
    os.truncate(summary, MAX_DOCUMENT_BYTES + 1)
    with pytest.raises(BadInputError, match=r"summary\.json: is larger than 64 MiB"):
        StoredRun.open(str(tmp_path))
    summary.unlink()
    os.mkfifo(summary)
    with pytest.raises(BadInputError, match=r"summary\.json: is no regular file"):
        StoredRun.open(str(tmp_path))


def test_a_broken_row_is_named(tmp_path: Path) -> None:
    write_run(tmp_path, some_results())
    (tmp_path / "results.parquet").unlink()
    lines = (tmp_path / "results.jsonl").read_text().splitlines()
    for broken, says in (
        (lines[0].replace('"success"', '"splendid"'), "'splendid': known are"),
        (lines[0].replace('"P/00000"', "7"), "results.jsonl:2: field 'problem_id' should be text"),
        (lines[0], "P/00000 sample 0 was given twice"),
    ):
        (tmp_path / "results.jsonl").write_text(f"{lines[0]}\n{broken}\n")
        with pytest.raises(BadInputError, match=says):
            StoredRun.open(str(tmp_path)).totals()


class NoCredentialsError(Exception):
    """As botocore's: no OSError."""


class LockedStore(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Object storage to which nobody gave a key."""

    protocol = "locked"
    cachable = False

    def cat_file(self, path: str, *_arguments: object, **_options: object) -> bytes:
        raise NoCredentialsError(f"Unable to locate\n credentials for {path}")

    def exists(self, path: str, **_options: object) -> bool:
        raise NoCredentialsError(f"Unable to locate\n credentials for {path}")

    isdir = info = exists


def test_a_store_that_fails_in_its_own_way_is_bad_input_that_names_the_place() -> None:
    fsspec.register_implementation("locked", LockedStore, clobber=True)
    with pytest.raises(BadInputError, match=r"^locked://bucket/run/summary\.json: cannot be read: no credentials"):
        StoredRun.open("locked://bucket/run")
    with pytest.raises(BadInputError, match=r"^locked://bucket/runs: cannot be read: no credentials"):
        runs_below("locked://bucket/runs")
    split = Source("locked://bucket/data/test")
    assert list_files(split) == [split]  # reading it names the cause
