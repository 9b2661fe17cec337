"""A file of problems is checked as a whole."""

import json
from pathlib import Path
from typing import Any

import pytest

from evalrun_data.families.asserts import AssertTests
from evalrun_data.problem_check import CheckedFile, check_file
from evalrun_data.records import StdioTests

RIGHT: dict[str, Any] = {
    "dataset": "ours", "problem_id": "add", "prompt": "Write add(a, b).",
    "ground_truth": {"test_list": ["assert add(1, 2) == 3"], "entry_point": "add"},
}  # fmt: skip


def checked(directory: Path, *rows: dict[str, Any], **renamed: str) -> CheckedFile:
    file = directory / "mine.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return check_file(str(file), renamed)


def with_tests(name: str, **tests: object) -> dict[str, Any]:
    return {**RIGHT, "problem_id": name, "ground_truth": {**RIGHT["ground_truth"], **tests}}


def test_every_mistake_is_listed_with_its_line(tmp_path: Path) -> None:
    rows = [
        RIGHT,
        {**RIGHT, "problem_id": "typo", "diffculty": "easy"},
        with_tests("wrong name", entry_point="totally_wrong"),
        with_tests("broken", test_list=["assert add(1, 2 == 3"]),
        {name: value for name, value in RIGHT.items() if name != "prompt"},
        with_tests("none", test_list=[]),
        RIGHT,
    ]
    found = checked(tmp_path, *rows)
    said = [line.partition("mine.jsonl:")[2] for line in found.mistakes]
    assert said == [
        "2: field 'diffculty' is not known: did you mean 'difficulty'?",
        (
            "3: problem 'wrong name': no assert calls the entry_point 'totally_wrong': correct the name, or leave "
            "entry_point away"
        ),
        "4: problem 'broken': the test does not compile: line 1: '(' was never closed",
        "5: field 'prompt' is missing (expected text)",
        "6: field 'ground_truth.test_list' is empty: a problem needs at least one test",
        f"7: problem 'add' is there twice (first {tmp_path / 'mine.jsonl'}:1)",
    ]
    assert (found.rows, len(found.problems)) == (7, 4)


def test_unreadable_line_is_not_reported_at_the_row_before(tmp_path: Path) -> None:
    (file := tmp_path / "mine.jsonl").write_text(f"\n{json.dumps(RIGHT)}\nnot json\n")
    found = check_file(str(file), {})
    [(position, text)] = found.findings
    [problem] = found.found
    assert "mine.jsonl:3: not JSON" in text
    assert problem.row == 2 < position < 3


CHECKED: dict[str, Any] = {
    "task_id": "X/0", "prompt": "def f(x):\n", "entry_point": "f", "canonical_solution": "    return x\n",
    "test": "def check(candidate):\n    assert candidate(1) == 1\n",
}  # fmt: skip


def test_a_published_row_loses_no_optional_field_to_a_typing_error(tmp_path: Path) -> None:
    misspelt = {name.replace("solution", "soluton"): value for name, value in CHECKED.items()}
    found = checked(tmp_path, {**misspelt, "entry_point": "g"}, {**CHECKED, "task_id": "X/1", "notes": "mine"})
    said = [line.partition("mine.jsonl:")[2] for line in found.mistakes]
    assert said == [
        "1: field 'canonical_soluton' is not known: did you mean 'canonical_solution'?",
        ("1: problem 'X/0': the entry_point 'g' stands neither in the prompt nor in the test: correct the name"),
    ]


def test_a_method_may_be_the_entry_point(tmp_path: Path) -> None:
    row = {**CHECKED, "prompt": "class Solution:\n    def f(self, x):\n", "entry_point": "Solution().f"}
    assert checked(tmp_path, row).mistakes == []


def test_row_with_other_columns_than_the_rows_before_is_reported(tmp_path: Path) -> None:
    found = checked(
        tmp_path, {"question": "Add.", "test_list": ["assert f(1)"]}, {"instruction": "Add.", "checks": ["assert f(1)"]}
    )
    [mistake] = found.mistakes
    assert mistake.endswith(
        "is missing (expected text): it has other columns than the rows before (instruction, checks)"
    )


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Add.", "tests": ["assert add(1, 2) == 3"]},
        {"prompt": "Add.", "tests": "assert add(1, 2) == 3\n"},
        {"question": "Add.", "test_list": ["assert add(1, 2) == 3"], "id": "a"},
    ],
)
def test_nearly_right_rows_are_read_as_records(row: dict[str, Any], tmp_path: Path) -> None:
    found = checked(tmp_path, row)
    assert found.mistakes == []
    [problem] = found.problems
    assert (problem.dataset, problem.problem_id, problem.prompt) == ("mine", row.get("id", "1"), "Add.")
    assert problem.ground_truth == AssertTests(("assert add(1, 2) == 3",), "", "add")


def test_named_columns_and_pairs_become_records(tmp_path: Path) -> None:
    found = checked(tmp_path, {"Q": "Add.", "cases": [{"input": "1 2", "output": "3"}]}, Q="prompt", cases="test_list")
    assert found.mistakes == []
    tests = found.problems[0].ground_truth
    assert isinstance(tests, StdioTests)
    assert (tests.inputs, tests.outputs) == (("1 2",), ("3",))
    assert found.mapped == {"Q": "prompt", "cases": "test_list"}


def test_an_unknown_format_shows_a_right_row(tmp_path: Path) -> None:
    found = checked(tmp_path, {"a": 1}, {"a": 2})
    [mistake] = found.mistakes
    assert "not a known problem format (fields: a)" in mistake
    assert 'A right row: {"dataset": "ours"' in mistake
