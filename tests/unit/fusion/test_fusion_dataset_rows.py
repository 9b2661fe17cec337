import base64
import json
from pathlib import Path
from typing import Any

import pytest

from evalrun_runtime.exits import BadInputError
from evalrun_sandbox.fusion.credentials import convert_to_bearer
from evalrun_sandbox.fusion.dataset_rows import RowDirectory
from evalrun_sandbox.fusion.refusals import BadRequest, NotHere
from evalrun_sandbox.fusion.schemas import GetPromptByIdRequest, GetPromptsRequest


def write(path: Path, *rows: Any) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def directory(tmp_path: Path) -> RowDirectory:
    write(tmp_path / "code_eval_mbpp.jsonl", {"id": 12, "content": "é"}, {"id": 11}, {"id": 9})
    write(tmp_path / "humaneval_python.jsonl", {"task_id": "HumanEval/0"})
    write(tmp_path / "mine.jsonl", {"id": "a"})
    return RowDirectory.open(tmp_path)


def read_rows(dataset: str = "mbpp", **fields: Any) -> GetPromptsRequest:
    return GetPromptsRequest.model_validate({"dataset": dataset, "config": {}, **fields})


def one(wanted: int | str, dataset: str = "mbpp", **config: Any) -> GetPromptByIdRequest:
    return GetPromptByIdRequest.model_validate({"dataset": dataset, "config": config, "id": wanted})


async def test_rows_are_sorted_by_id_within_offset_and_limit(directory: RowDirectory) -> None:
    assert [row["id"] for row in await directory.read_rows(read_rows())] == [9, 11, 12]
    assert [row["id"] for row in await directory.read_rows(read_rows(offset=1, limit=1))] == [11]
    assert await directory.read_rows(read_rows(offset=5)) == []


async def test_names_are_those_whose_family_is_known(directory: RowDirectory) -> None:
    assert directory.names == ["humaneval_python", "mbpp"]
    assert await directory.read_rows(read_rows("mine")) == [{"id": "a"}]


async def test_an_id_is_found_as_a_number_and_as_a_text(directory: RowDirectory) -> None:
    for wanted in (12, "12"):
        assert await directory.read_row(one(wanted), wanted) == {"id": 12, "content": "é"}
    with pytest.raises(NotHere, match=r"mbpp has no row .*OR id=12"):
        await directory.read_row(one("x"), "x' OR id=12 --")


async def test_rows_in_the_request_override_those_of_the_directory(directory: RowDirectory) -> None:
    assert await directory.read_row(one(1, provided_data={"id": 3}), 1) == {"id": 3}
    request = read_rows(config={"provided_data": [{"id": 3}, {"id": 1}]}, limit=1)
    assert await directory.read_rows(request) == [{"id": 3}, {"id": 1}]
    with pytest.raises(BadRequest, match="should be a dict"):
        await directory.read_row(one(1, provided_data=[{"id": 3}]), 1)
    with pytest.raises(BadRequest, match="should be a list"):
        await directory.read_rows(read_rows(config={"provided_data": {"id": 3}}))


@pytest.mark.parametrize("dataset", ["../mbpp", "/etc/passwd", "nosuch"])
async def test_a_name_is_never_a_path(directory: RowDirectory, dataset: str) -> None:
    with pytest.raises(NotHere, match="no rows of dataset"):
        await directory.read_rows(read_rows(dataset))


async def test_counting_backwards_is_refused(directory: RowDirectory) -> None:
    with pytest.raises(BadRequest, match="offset and limit"):
        await directory.read_rows(read_rows(offset=-1))


def test_bad_row_file_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no such directory"):
        RowDirectory.open(tmp_path / "absent")
    path = tmp_path / "mbpp.jsonl"
    for text, complaint in (('{"id": 1}\n{"id"\n', ":2: not JSON"), ('{"a": 1}\n', ":1: a row must be an object")):
        path.write_text(text)
        with pytest.raises(BadInputError, match=complaint):
            RowDirectory.open(tmp_path)


@pytest.mark.parametrize(
    ("header", "bearer"),
    [
        ("Bearer abc", "Bearer abc"),
        ("Basic " + base64.b64encode(b"anyone:a:b").decode(), "Bearer a:b"),
        ("basic " + base64.b64encode(b"abc").decode(), "Bearer "),
        ("Basic !", "Basic !"),
        ("Basic " + base64.b64encode(b"\xff").decode(), "Basic " + base64.b64encode(b"\xff").decode()),
        ("", ""),
    ],
)
def test_basic_password_is_converted_to_a_bearer_token(header: str, bearer: str) -> None:
    assert convert_to_bearer(header) == bearer
