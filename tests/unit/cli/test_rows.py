"""Rows that a caller holds in memory become files that a run can read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from evalrun._rows import resolve_files
from evalrun_runtime.exits import BadInputError

ROWS = [{"problem_id": "a", "response": "1"}, {"problem_id": "b", "response": "2"}]


class PolarsFrame:
    """Gives its rows as Polars does."""

    def to_dicts(self) -> list[dict[str, Any]]:
        return ROWS


class HubDataset:
    """Gives its rows as `datasets` does."""

    def to_list(self) -> list[dict[str, Any]]:
        return ROWS


@pytest.mark.parametrize(
    "given",
    [ROWS, iter(ROWS), pd.DataFrame(ROWS), pa.Table.from_pylist(ROWS), PolarsFrame(), HubDataset()],
    ids=["list", "iterator", "pandas", "arrow", "polars", "datasets"],
)
def test_files_of_rows_writes_each_as_a_line(given: object, tmp_path: Path) -> None:
    (file,) = resolve_files(given, "responses", tmp_path / "rows")
    assert [json.loads(line) for line in Path(file).read_text().splitlines()] == ROWS


def test_files_of_same_rows_returns_same_file_and_other_rows_another(tmp_path: Path) -> None:
    first, again = resolve_files(ROWS, "responses", tmp_path), resolve_files(list(ROWS), "responses", tmp_path)
    assert first == again
    assert resolve_files(ROWS[:1], "responses", tmp_path) != first
    assert len(list(tmp_path.iterdir())) == 2


def test_files_of_data_frame_drops_missing_values_and_keeps_numpy_values(tmp_path: Path) -> None:
    frame = pd.DataFrame([{"problem_id": 1, "seed": 2.5}, {"problem_id": 2}])
    (file,) = resolve_files(frame, "responses", tmp_path)
    assert [json.loads(line) for line in Path(file).read_text().splitlines()] == [
        {"problem_id": 1, "seed": 2.5},
        {"problem_id": 2},
    ]


@pytest.mark.parametrize("named", [lambda path: str(path), lambda path: path, lambda path: [path]])
def test_files_of_paths_returns_them_and_writes_nothing(named: Callable[[Path], Any], tmp_path: Path) -> None:
    assert resolve_files(named(tmp_path / "x.jsonl"), "problems", tmp_path / "rows") == [str(tmp_path / "x.jsonl")]
    assert not (tmp_path / "rows").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (3, r"problems: is a int: pass a file"),
        ({"problem_id": "a"}, r"problems: is a dict: pass a file"),
        ([], r"problems: is empty"),
        ([ROWS[0], "b.jsonl"], r"problems\[1\]: is a str: a row is a dict"),
        ([{"tests": object()}], r"problems\[0\]: cannot be written as JSON: a object has no JSON form"),
    ],
)
def test_files_of_unusable_argument_is_refused_with_what_to_pass(given: object, says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=says):
        resolve_files(given, "problems", tmp_path)
