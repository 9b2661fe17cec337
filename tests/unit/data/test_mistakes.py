"""Every mistake of a file is reported, and not the first alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from evalrun_data.mistakes import MAX_MISTAKES
from evalrun_data.readers import load_problems
from evalrun_data.responses import load_responses
from evalrun_runtime.exits import BadInputError

RIGHT: dict[str, Any] = {
    "dataset": "ours", "problem_id": "add", "prompt": "Write add(a, b).",
    "ground_truth": {"test_list": ["assert add(1, 2) == 3"], "entry_point": "add"},
}  # fmt: skip


def write(folder: Path, *rows: dict[str, Any] | str) -> str:
    file = folder / "mine.jsonl"
    file.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return str(file)


def mistakes_of(error: pytest.ExceptionInfo[BadInputError]) -> list[str]:
    return [line.partition("mine.jsonl:")[2].partition(":")[0] for line in str(error.value).splitlines()[1:]]


def test_load_problems_with_several_mistakes_names_each_line(tmp_path: Path) -> None:
    file = write(tmp_path, RIGHT, {**RIGHT, "prompt": None}, "{", RIGHT, {**RIGHT, "problem_id": "b", "language": "x"})
    with pytest.raises(BadInputError) as error:
        load_problems(file)
    assert str(error.value).startswith("4 mistakes:\n")
    assert sorted(mistakes_of(error)) == ["2", "3", "4", "5"]


def test_load_problems_with_one_mistake_says_it_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as error:
        load_problems(
            write(tmp_path, RIGHT, {**RIGHT, "problem_id": "b", "prompt": None}, {**RIGHT, "problem_id": "c"})
        )
    assert str(error.value) == f"{tmp_path / 'mine.jsonl'}:2: field 'prompt' is missing (expected text)"


def test_load_problems_with_a_mistake_in_every_line_stops_early(tmp_path: Path) -> None:
    wrong = [{**RIGHT, "problem_id": str(number), "prompt": None} for number in range(100)]
    with pytest.raises(BadInputError) as error:
        load_problems(write(tmp_path, *wrong))
    assert len(mistakes_of(error)) == MAX_MISTAKES


def test_load_responses_with_several_mistakes_names_each_line(tmp_path: Path) -> None:
    problems = load_problems(write(tmp_path, RIGHT))
    rows: list[dict[str, Any] | str] = [
        {"problem_id": "add", "response": "x"},
        {"problem_id": "unknown", "response": "x"},
        {"problem_id": "add"},
        "[",
        {"problem_id": "add", "sample": 3, "response": "x"},
        {"problem_id": "add", "sample": 3, "response": "x"},
    ]
    with pytest.raises(BadInputError) as error:
        load_responses([write(tmp_path, *rows)], problems)
    assert sorted(mistakes_of(error)) == ["2", "3", "4", "6"]


def test_load_problems_with_more_mistakes_than_are_read_says_that_these_are_the_first(tmp_path: Path) -> None:
    file = write(tmp_path, *({**RIGHT, "problem_id": str(place), "prompt": None} for place in range(MAX_MISTAKES + 5)))
    with pytest.raises(BadInputError) as error:
        load_problems(file)
    assert str(error.value).startswith(f"the first {MAX_MISTAKES} mistakes:\n")


def test_column_n_tests_is_accepted_as_a_number_and_refused_as_tests(tmp_path: Path) -> None:
    test = "def check(candidate):\n    assert candidate(1) == 1\n"
    row = {"task_id": "HumanEval/0", "prompt": "def f(x):\n", "entry_point": "f", "test": test}
    assert len(load_problems(write(tmp_path, {**row, "n_tests": 119}))) == 1
    with pytest.raises(BadInputError, match="does not use the tests in 'n_tests'"):
        load_problems(write(tmp_path, {**row, "n_tests": "assert f(2) == 2"}))
