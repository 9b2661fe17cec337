"""MultiPL-E's rows in each language: what is judged by, and tests that could end early."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders.multipl_e import ROWS

from evalrun_data.readers import load_problems
from evalrun_data.records import MainTest
from evalrun_judge.families.main_forms import FORMS
from evalrun_runtime.exits import BadInputError


def read(row: dict[str, Any], directory: Path) -> tuple[str, str, MainTest]:
    path = directory / "rows.jsonl"
    path.write_text(json.dumps(row))
    (problem,) = load_problems(str(path))
    truth = problem.ground_truth
    if not isinstance(truth, MainTest):
        raise TypeError(truth)
    return problem.dataset, problem.language, truth


def test_every_language_that_is_judged_is_read(tmp_path: Path) -> None:
    found = [read(row, tmp_path) for row in ROWS.values()]
    assert {language for _, language, _ in found} == {*FORMS}
    assert {truth.entry_point for _, _, truth in found} == {"twice"}
    assert {dataset for dataset, _, _ in found} == {
        f"multipl_e_{name}" for name in ("cpp", "go", "java", "js", "lua", "php", "rb", "rs", "ts")
    }
    assert all(FORMS[language].whole.fullmatch(truth.main) for _, language, truth in found)


@pytest.mark.parametrize(
    ("program", "before", "early"),
    [
        ("go", "\n\tfor i", "\n\treturn\n\tfor i"),
        ("lua5.4", "    lu.assertEquals", "    os.exit(0)\n    lu.assertEquals"),
        ("php", "    if (candidate", "    return;\n    if (candidate"),
        ("ruby", "    assert_equal", "    exit(0)\n    assert_equal"),
    ],
)
def test_tests_that_can_end_early_are_refused(tmp_path: Path, program: str, before: str, early: str) -> None:
    row = ROWS[program]
    assert before in row["tests"]
    with pytest.raises(BadInputError, match="a main that can end before its last line does not show that all ran"):
        read({**row, "tests": row["tests"].replace(before, early)}, tmp_path)
