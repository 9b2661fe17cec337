"""A directory of Parquet shards is one source; a directory of several splits, or with a shard missing, is an error."""

from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders.governance import contest_row, prepared, write_plan

from evalrun_data.readers import load_problems
from evalrun_data.shards import choose_shards
from evalrun_runtime.exits import BadInputError


def shards(directory: Path, split: str, *parts: tuple[int, ...]) -> None:
    directory.mkdir(exist_ok=True)
    for number, rows in enumerate(parts):
        table = pa.Table.from_pylist([contest_row(row) for row in rows])
        pq.write_table(table, directory / f"{split}-{number:05d}-of-{len(parts):05d}.parquet")


@pytest.mark.parametrize("source", ["data/test", "data", "./data/"])
def test_the_shards_are_read_in_order_as_one_source(tmp_path: Path, source: str) -> None:
    shards(tmp_path / "data", "test", (1, 2), (3,), (4,))
    (tmp_path / "data" / "README.md").write_text("about")
    assert [p.problem_id for p in load_problems(source, "contest", tmp_path)] == ["p1", "p2", "p3", "p4"]


def test_a_problem_in_two_shards_is_there_twice(tmp_path: Path) -> None:
    shards(tmp_path / "data", "test", (1,), (1,))
    with pytest.raises(BadInputError, match=r"test-00001-of-00002.parquet row 1: problem 'p1' .* is there twice"):
        load_problems("data", "contest", tmp_path)


def test_a_directory_of_two_splits_wants_one_named(tmp_path: Path) -> None:
    shards(tmp_path / "data", "test", (1,))
    shards(tmp_path / "data", "train", (2,))
    with pytest.raises(BadInputError, match=r"^data: holds the splits test, train: name one, e.g. data/test$"):
        load_problems("data", "contest", tmp_path)
    assert [p.problem_id for p in load_problems("data/train", "contest", tmp_path)] == ["p2"]


def test_a_missing_shard_is_named() -> None:
    names = ["test-00000-of-00003.parquet", "test-00002-of-00003.parquet"]
    with pytest.raises(BadInputError, match=r"shard 1 of 3 is missing \(test-00001-of-...\): fetch the whole split"):
        choose_shards("data", names, "")


def test_chosen_shards_takes_the_hubs_older_names() -> None:
    valid = "valid-00000-of-00001-5e672c5751f060d3.parquet"
    names = ["test-00000-of-00001-9c49eeff30aacaa8.parquet", valid, "README.md"]
    assert choose_shards("data", names, "valid") == [valid]
    with pytest.raises(BadInputError, match="are the same shard: remove one of them"):
        choose_shards("data", [valid, "valid-00000-of-00001.parquet"], "valid")


def test_load_problems_saved_to_disk_split_is_read_as_one_source(tmp_path: Path) -> None:
    directory = tmp_path / "codecontests" / "valid"
    directory.mkdir(parents=True)
    (tmp_path / "codecontests" / "dataset_dict.json").write_text('{"splits": ["valid"]}')
    for number, rows in enumerate(((1, 2), (3,))):
        table = pa.Table.from_pylist([contest_row(row) for row in rows])
        with (
            pa.OSFile(str(directory / f"data-{number:05d}-of-00002.arrow"), "wb") as file,
            pa.ipc.new_stream(file, table.schema) as stream,
        ):
            stream.write_table(table)
    assert [p.problem_id for p in load_problems("codecontests/valid", "contest", tmp_path)] == ["p1", "p2", "p3"]
    with pytest.raises(BadInputError, match="codecontests: holds the splits of save_to_disk: name one"):
        load_problems("codecontests", "contest", tmp_path)
    (directory / "data-00000-of-00002.arrow").write_bytes(b"\xff\xff\xff\xff\x10")
    with pytest.raises(BadInputError, match="broken Arrow after row 0"):
        load_problems("codecontests/valid", "contest", tmp_path)


def test_directory_of_other_files_is_not_sharded(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}")
    with pytest.raises(BadInputError, match="is a directory; name the file in it"):
        load_problems(".", None, tmp_path)
    with pytest.raises(BadInputError, match="nothing/here: no such file"):
        load_problems("nothing/here", None, tmp_path)


def test_shards_behind_a_url_are_found_and_copied_each(tmp_path: Path) -> None:
    shards(tmp_path / "data", "valid", (1, 2), (3,))
    for file in (tmp_path / "data").iterdir():
        with fsspec.open(f"memory://shards-of-a-test/{file.name}", "wb") as stream:
            stream.write(file.read_bytes())
    assert len(load_problems("memory://shards-of-a-test/valid", "contest")) == 3
    plan = write_plan(tmp_path, [{"name": "contest", "source": "memory://shards-of-a-test/valid", "role": "dev"}])
    prepared(plan, tmp_path / "out")
    for file in (tmp_path / "data").iterdir():
        assert (tmp_path / "out/contest" / file.name).read_bytes() == file.read_bytes()
