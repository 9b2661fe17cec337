"""judgeMode: Submit: what a dataset's records must say, and what of them the judge is sent."""

from dataclasses import replace

import pytest

from evalrun_aggregator.finish.sample_stream import encode_ground_truth
from evalrun_api.v1alpha1 import Dataset
from evalrun_client.judge_request import Answer, judge_request
from evalrun_client.submit_mode import require_rows, require_tests
from evalrun_data.formats.record import make_problem_record, parse_record
from evalrun_data.prompts import PromptFormat, render
from evalrun_data.records import Problem, ServerTests, StdioTests
from evalrun_data.rows import Row
from evalrun_runtime.exits import BadInputError

PROBLEM = Problem(
    "contests", "p1", "Add.", StdioTests(("1 2\n",), ("secret\n",)), sandbox_dataset="code_contests", sandbox_id="7"
)


@pytest.mark.parametrize(
    ("dataset", "row", "complaint"),
    [
        ("", "7", "needs sandbox_dataset and sandbox_id"),
        ("mbpp", "", "needs sandbox_dataset and sandbox_id"),
        ("../mbpp", "7", "sandbox_dataset '../mbpp'"),
        ("a..b", "7", "sandbox_dataset 'a..b'"),
        ("mbpp/x", "7", "sandbox_dataset 'mbpp/x'"),
        ("mbpp", "../7", "sandbox_id '../7'"),
        ("mbpp", "x' OR id=12 --", "without quotes"),
        ("mbpp", "a\nb", "control characters"),
        ("mbpp", "  ", "sandbox_id '  '"),
    ],
)
def test_record_without_a_row_or_with_tests_is_refused(dataset: str, row: str, complaint: str) -> None:
    problem = replace(PROBLEM, sandbox_dataset=dataset, sandbox_id=row)
    with pytest.raises(BadInputError, match=r"contests\.jsonl: problem 'p1'") as error:
        list(require_rows([PROBLEM, problem], "contests.jsonl"))
    assert complaint in str(error.value)


@pytest.mark.parametrize("row", ["7", "HumanEval/0", "1575_A. Another Sorting Problem", "p03000 - Bounding (ABC)"])
def test_ordinary_ids_are_accepted(row: str) -> None:
    problem = replace(PROBLEM, sandbox_id=row)
    assert list(require_rows([problem], "contests.jsonl")) == [problem]


def test_the_judge_is_sent_the_rows_name_and_no_test() -> None:
    dataset = Dataset.model_validate({"name": "contests", "source": "s3://b/contests.jsonl", "judgeMode": "Submit"})
    request = judge_request("run", dataset, PROBLEM, Answer("print(3)"))
    assert request.WhichOneof("tests") == "submit"
    assert (request.submit.dataset, request.submit.id) == ("code_contests", "7")
    assert b"secret" not in request.SerializeToString()
    assert request.limits.time_seconds == 30.0
    assert request.stop_after_timeouts == 3
    assert not request.HasField("comparator")


@pytest.mark.parametrize("field", ["custom_extract_logic", "provided_data", "dataset_type", "sandbox_config"])
def test_a_record_that_brings_settings_of_the_server_is_refused(field: str) -> None:
    values: dict[str, object] = {
        "dataset": "contests", "problem_id": "p1", "prompt": "Add.",
        "ground_truth": {"inputs": ["1\n"], "outputs": ["1\n"]}, field: "submit_code_blocks([])",
    }  # fmt: skip
    assert parse_record(Row(values, "contests.jsonl", 1), None).problem_id == "p1"  # a column of a team's own
    with pytest.raises(BadInputError, match=f"field '{field}' is never sent to a SandboxFusion server"):
        parse_record(Row({**values, "sandbox_dataset": "code_contests"}, "contests.jsonl", 1), None)


ROW: dict[str, object] = {
    "dataset": "contests", "problem_id": "p1", "prompt": "As the server words it.\n", "sandbox_dataset": "mbpp",
    "sandbox_id": "11",
}  # fmt: skip


@pytest.mark.parametrize("form", ["Chat", "Completion"])
def test_a_record_may_leave_its_tests_to_the_server(form: PromptFormat) -> None:
    problem = parse_record(Row(ROW, "contests.jsonl", 1), None)
    assert (problem.ground_truth, problem.test_count, problem.family) == (ServerTests(), 0, "server")
    assert [message.content for message in render(problem, form)] == ["As the server words it.\n"]
    assert encode_ground_truth(problem) == {}
    assert parse_record(Row(make_problem_record(problem), "again.jsonl", 1), None) == problem
    assert list(require_rows([problem], "contests.jsonl")) == [problem]
    with pytest.raises(
        BadInputError, match=r"contests\.jsonl: problem 'p1': it has no tests .* write judgeMode: Submit"
    ):
        list(require_tests([PROBLEM, problem], "contests.jsonl"))


def test_record_without_tests_and_without_a_row_is_refused() -> None:
    values = {name: value for name, value in ROW.items() if name != "sandbox_id"}
    with pytest.raises(BadInputError, match="field 'ground_truth' is missing"):
        parse_record(Row(values, "contests.jsonl", 1), None)
