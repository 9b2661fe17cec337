"""Data prepared for trainers: rows without tests are audited, and HumanEval's form becomes asserts."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from builders.governance import write_plan, write_rows

from evalrun_data.formats.plain_text import is_plain_text, parse_plain_text
from evalrun_data.governance.__main__ import main
from evalrun_data.readers import load_problems
from evalrun_data.records import AssertTests
from evalrun_data.rows import Row
from evalrun_runtime.exits import BadInputError, ExitCode

STATEMENT = (
    "Given a list of the prices of houses in every street of a town, print the largest difference between the mean "
    "price of two neighbouring streets, or the word none where the town has a single street."
)


@pytest.mark.parametrize(
    ("values", "problem_id", "text"),
    [
        ({"id": 7, "text": "Reverse it."}, "7", "Reverse it."),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, "1", "a\nb"),
        ({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}, "1", "a\nb"),
        ({"instruction": "a", "input": "", "output": "b", "uuid": "x"}, "x", "a\nb"),
        ({"task_id": "t", "prompt": "a", "completion": "b"}, "t", "a\nb"),
    ],
)
def test_parse_plain_text_of_a_row_returns_all_of_its_text(values: dict[str, Any], problem_id: str, text: str) -> None:
    row = Row(values, "train.jsonl", 1)
    assert is_plain_text(row)
    problem = parse_plain_text(row, "mine")
    assert (problem.dataset, problem.problem_id, problem.prompt) == ("mine", problem_id, text)


@pytest.mark.parametrize("values", [{"a": 1}, {"messages": []}, {"messages": ["x"]}, {"text": 3}])
def test_is_plain_text_of_other_rows_is_false(values: dict[str, Any]) -> None:
    assert not is_plain_text(Row(values, "train.jsonl", 1))


def test_prepare_of_a_chat_that_quotes_a_benchmark_fails_the_audit(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": f"Solve this.\n{STATEMENT}"}, {"role": "assistant", "content": "print(1)"}]
    write_rows(
        tmp_path / "train.jsonl", [{"messages": chat}, {"messages": [{"role": "user", "content": "Say hello."}]}]
    )
    record = {"dataset": "valid", "problem_id": "houses", "prompt": STATEMENT}
    write_rows(tmp_path / "valid.jsonl", [{**record, "ground_truth": {"inputs": ["1"], "outputs": ["1"]}}])
    datasets = [
        {"name": "chats", "source": "train.jsonl", "role": "train"},
        {"name": "valid", "source": "valid.jsonl", "role": "dev"},
    ]
    plan = write_plan(tmp_path, datasets)
    assert main(["prepare", str(plan), "--output", str(tmp_path / "out")]) == ExitCode.FAILED
    overlaps = json.loads((tmp_path / "out" / "data_manifests" / "audit.json").read_text())["overlaps"]
    assert [(each["first"], each["second"]) for each in overlaps] == [("chats/1", "valid/houses")]
    rows = pq.read_table(tmp_path / "out" / "chats.parquet").to_pylist()
    assert (rows[0]["ability"], rows[0]["reward_model"], len(rows[0]["prompt"])) == ("text", None, 2)


def test_rows_without_tests_are_refused_as_a_benchmark(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [{"id": 1, "text": "Reverse it."}])
    with pytest.raises(BadInputError, match="not a known problem format"):
        load_problems(str(tmp_path / "rows.jsonl"))


HELPED = '''from math import floor

def half(x):
    return floor(x / 2)

def quarter(x: float) -> int:
    """A quarter of x."""
'''


def test_prepare_of_a_training_split_in_humanevals_form_writes_asserts_that_decide(tmp_path: Path) -> None:
    check = "def check(candidate):\n    assert candidate(9) == half(half(9))\n"
    row = {"task_id": "t/0", "prompt": HELPED, "entry_point": "quarter", "test": check}
    write_rows(tmp_path / "train.jsonl", [{**row, "canonical_solution": "    return half(half(x))\n"}])
    plan = write_plan(tmp_path, [{"name": "mine", "source": "train.jsonl", "role": "train"}])
    assert main(["prepare", str(plan), "--output", str(tmp_path / "out")]) == ExitCode.SUCCEEDED
    [written] = pq.read_table(tmp_path / "out" / "mine.parquet").to_pylist()
    assert written["extra_info"]["split"] == "train"
    [text] = json.loads(written["reward_model"]["ground_truth"])["assert_case"]
    # As verl's own reward runs it: the program, then the assert.
    exec(f"def quarter(x):\n    return x // 4\n{text}", {})
    with pytest.raises(AssertionError):
        exec(f"def quarter(x):\n    return x\n{text}", {})
    [problem] = load_problems(str(tmp_path / "out" / "mine.parquet"), "mine")
    assert isinstance(problem.ground_truth, AssertTests)
    assert (problem.ground_truth.test_list, problem.ground_truth.entry_point) == ((text,), "quarter")
    assert problem.ground_truth.prelude.startswith("from math import floor")


def test_a_pipe_as_source_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.jsonl")
    with pytest.raises(BadInputError, match="is a pipe or a device: write it to a file, and name that"):
        load_problems(str(tmp_path / "rows.jsonl"))
    with pytest.raises(BadInputError, match="is a pipe or a device"):
        load_problems("/dev/null")
