"""The solutions that rows publish, and programs that do nothing."""

from typing import Any

import pytest

from evalrun_data.formats.record import parse_record
from evalrun_data.problem_check import idle_program
from evalrun_data.references import read_published_reference
from evalrun_data.rows import Row

CHECKED = {"test": "def check(f):\n    assert f(1) == 2\n", "entry_point": "f"}
ASSERTED = {"test_list": ["assert f(1) == 2"]}
PRINTED = {"inputs": ["1"], "outputs": ["2"]}


def row_of(ground_truth: dict[str, Any], **others: object) -> Row:
    values = {"dataset": "d", "problem_id": "p", "prompt": "def f(x):\n", "ground_truth": ground_truth, **others}
    return Row(values, "mine.jsonl", 1)


@pytest.mark.parametrize(
    ("ground_truth", "published", "expected"),
    [
        (CHECKED, {"canonical_solution": "    return x + 1\n"}, "def f(x):\n    return x + 1\n"),
        (CHECKED, {"canonical_solution": "def f(x):\n    return 2\n"}, "def f(x):\n    return 2\n"),
        (ASSERTED, {"code": "def f(x):\r\n    return 2"}, "def f(x):\n    return 2"),
        (ASSERTED, {"reference_solution": "f = abs"}, "f = abs"),
        (PRINTED, {"canonical_solution": "print(2)"}, "print(2)"),
        (PRINTED, {}, None),
    ],
)
def test_published_reference_of_a_row_returns_a_whole_program(
    ground_truth: dict[str, Any], published: dict[str, object], expected: str | None
) -> None:
    row = row_of(ground_truth, **published)
    assert read_published_reference(row, parse_record(row, None)) == expected


@pytest.mark.parametrize(
    ("ground_truth", "language", "expected"),
    [
        (CHECKED, "python", "def f(*args, **kwargs):\n    pass\n"),
        (ASSERTED, "python", "def f(*args, **kwargs):\n    pass\n"),
        (PRINTED, "python", "pass\n"),
        (PRINTED, "cpp", "int main() { return 0; }\n"),
        ({"prompt": "", "main": "int main() { }", "entry_point": "f"}, "cpp", None),
    ],
)
def test_idle_program_of_each_family_does_nothing(
    ground_truth: dict[str, Any], language: str, expected: str | None
) -> None:
    assert idle_program(parse_record(row_of(ground_truth, language=language), None)) == expected
