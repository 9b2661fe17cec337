"""Answers made elsewhere: tied to their problems, numbered, and refused with file and line."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from builders.data import assert_problem, check_problem, data_file, stdio_problem, write_jsonl

from evalrun_data.readers import load_problems
from evalrun_data.records import Problem
from evalrun_data.responses import Response, load_responses
from evalrun_runtime.exits import BadInputError

PROBLEMS = [stdio_problem("a"), stdio_problem("b"), check_problem("HumanEval/0"), assert_problem("MBPP/11")]


def load(tmp_path: Path, rows: list[dict[str, object]], problems: list[Problem] | None = None) -> list[Response]:
    write_jsonl(tmp_path / "r.jsonl", rows)
    return load_responses(["r.jsonl"], problems or PROBLEMS, tmp_path)


def test_response_row_with_every_field_is_read(tmp_path: Path) -> None:
    row = {
        "dataset": "contest",
        "problem_id": "a",
        "sample": 3,
        "response": "x",
        "mode": "full",
        "language": "c++",
        "finish_reason": "length",
        "output_tokens": 7,
        "prompt_tokens": 9,
        "generation_seconds": 0.5,
        "anything_else": {},
    }
    (response,) = load(tmp_path, [row])
    assert response == Response("contest", "a", 3, "x", "standalone", "cpp", "length", 7, 9, 0.5)
    assert response.truncated


def test_short_row_and_empty_answer_are_read(tmp_path: Path) -> None:
    first, second = load(tmp_path, [{"task_id": "a", "completion": ""}, {"task_id": "b", "completion": "y"}])
    assert first == Response("contest", "a", 0, "")
    assert second == Response("contest", "b", 0, "y")


def test_language_of_an_answer_defaults_to_that_of_the_problem(tmp_path: Path) -> None:
    problem = Problem("d", "p", "", stdio_problem().ground_truth, language="c")
    assert load(tmp_path, [{"problem_id": "p", "response": ""}], [problem])[0].language == "c"


def test_rows_without_sample_are_numbered_in_order_around_given_numbers(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"problem_id": "a", "response": "0"},
        {"problem_id": "b", "response": "0"},
        {"problem_id": "a", "response": "2"},
        {"problem_id": "a", "response": "1", "sample": 1},
        {"problem_id": "a", "response": "3"},
    ]
    assert [(r.problem_id, r.sample) for r in load(tmp_path, rows)] == [
        ("a", 0),
        ("b", 0),
        ("a", 2),
        ("a", 1),
        ("a", 3),
    ]


def test_sample_numbers_continue_over_files(tmp_path: Path) -> None:
    for name in ("1.jsonl.gz", "2.jsonl"):
        write_jsonl(tmp_path / name, [{"problem_id": "a", "response": name}])
    found = load_responses(["1.jsonl.gz", "2.jsonl"], PROBLEMS, tmp_path)
    assert [(r.sample, r.text) for r in found] == [(0, "1.jsonl.gz"), (1, "2.jsonl")]


def test_list_of_answers_in_one_row_becomes_numbered_samples(tmp_path: Path) -> None:
    row: dict[str, object] = {
        "problem_id": "a",
        "responses": ["x", "y"],
        "finish_reason": ["stop", "length"],
        "output_tokens": [1, 2],
    }
    found = load(tmp_path, [row, {"problem_id": "a", "response": "z"}])
    assert [(r.sample, r.text, r.truncated, r.output_tokens) for r in found] == [
        (0, "x", False, 1),
        (1, "y", True, 2),
        (2, "z", False, None),
    ]


@pytest.mark.parametrize("task_id", [11, "11", "MBPP/11", "Mbpp/11"])
def test_mbpp_id_is_found_in_every_published_form(tmp_path: Path, task_id: object) -> None:
    assert load(tmp_path, [{"task_id": task_id, "completion": ""}])[0].key == ("mbpp", "MBPP/11", 0)


def test_generation_file_of_verl_answers_its_own_problems(tmp_path: Path) -> None:
    truth = json.dumps({"inputs": ["1"], "outputs": ["2"]})
    rows = [
        {
            "data_source": "apps",
            "prompt": [{"role": "user", "content": text}],
            "reward_model": {"style": "rule", "ground_truth": truth},
            "extra_info": {"index": index},
            "responses": [f"{index}-0", f"{index}-1"],
        }
        for index, text in enumerate(["first", "same", "same"])
    ]
    path = str(tmp_path / "out.parquet")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    problems = load_problems(path)
    found = load_responses([path], problems)
    assert [(r.dataset, r.problem_id, r.sample, r.text) for r in found] == [
        ("apps", str(index), sample, f"{index}-{sample}") for index in range(3) for sample in range(2)
    ]
    with pytest.raises(BadInputError, match=r"out.parquet row 1: the prompt is none of the problems'"):
        load_responses([path], PROBLEMS)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"response": "x"}, "field 'problem_id' is missing (expected text; task_id serves too)"),
        ({"problem_id": "a"}, "field 'response' is missing (expected text)"),
        ({"problem_id": "a", "response": None}, "field 'response' is missing (expected text)"),
        ({"problem_id": "a", "response": 5}, "field 'response' should be text, not a whole number"),
        (
            {"problem_id": "a", "responses": []},
            "field 'responses' is an empty list: it should hold at least one answer",
        ),
        ({"problem_id": "a", "responses": ["x", 5]}, "field 'responses' should be text, not a whole number"),
        ({"problem_id": "a", "responses": ["x", "y"], "sample": 1}, "field 'sample' should be a list of 2"),
        ({"problem_id": "zzz", "response": ""}, "unknown problem 'zzz'"),
        ({"problem_id": "a", "response": "", "dataset": "mbpp"}, "unknown problem 'a' in dataset 'mbpp'"),
        (
            {"problem_id": "a", "response": "", "dataset": "x"},
            "unknown dataset 'x' (the problems hold: contest, humaneval",
        ),
        ({"task_id": 12, "response": ""}, "unknown problem '12'"),
        ({"task_id": True, "response": ""}, "field 'task_id' should be text, not true or false"),
        ({"problem_id": "a", "response": "", "mode": "inline"}, "field 'mode' is 'inline' (known: auto, append, "),
        (
            {"problem_id": "a", "response": "", "language": "cobol"},
            (
                "field 'language' is 'cobol' "
                "(known: python, c, cpp, go, java, javascript, lua, php, ruby, rust, typescript)"
            ),
        ),
        ({"problem_id": "a", "response": "", "sample": -1}, "field 'sample' should be at least 0, not -1"),
        ({"problem_id": "a", "response": "", "sample": 10**400}, "field 'sample' should be at most 9007199254740992"),
        (
            {"problem_id": "a", "response": "", "output_tokens": 10**25},
            "field 'output_tokens' should be at most 9007199254740992",
        ),
        ({"problem_id": "a", "response": "", "sample": "0"}, "field 'sample' should be a number, not text"),
        (
            {"problem_id": "first", "response": "", "sample": 0},
            "sample 0 of problem 'first' is there twice (first r.jsonl:1)",
        ),
    ],
)
def test_bad_response_row_is_refused_with_its_field(tmp_path: Path, row: dict[str, object], message: str) -> None:
    problems = [*PROBLEMS, stdio_problem("first")]
    with pytest.raises(BadInputError) as caught:
        load(tmp_path, [{"problem_id": "first", "response": "", "sample": 0}, row], problems)
    assert str(caught.value).startswith(f"r.jsonl:2: {message}")
    assert "\n" not in str(caught.value)


def test_an_id_of_several_datasets_needs_the_dataset(tmp_path: Path) -> None:
    problems = [stdio_problem("a", "one"), stdio_problem("a", "two")]
    with pytest.raises(
        BadInputError, match=r"r.jsonl:1: problem 'a' is in several datasets \(one, two\): add the field"
    ):
        load(tmp_path, [{"problem_id": "a", "response": ""}], problems)
    assert load(tmp_path, [{"problem_id": "a", "response": "", "dataset": "two"}], problems)[0].dataset == "two"


def test_missing_and_empty_response_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"")
    with pytest.raises(BadInputError, match=r"^empty.jsonl: the file is empty$"):
        load_responses(["empty.jsonl"], PROBLEMS, tmp_path)
    with pytest.raises(BadInputError, match=r"^none.jsonl: no such file"):
        load_responses(["none.jsonl"], PROBLEMS, tmp_path)


def test_real_recorded_completions_are_read_completely() -> None:
    problems = load_problems(str(data_file("humaneval/HumanEval.jsonl.gz")))
    for name in ("gpt-4_simple_a", "ollama-codellama_7b", "ollama-qwen2.5-coder_7b"):
        found = load_responses([str(data_file(f"completions/humaneval_{name}.jsonl.gz"))], problems)
        assert Counter(response.mode for response in found).total() == 164
        assert {response.problem_id for response in found} == {problem.problem_id for problem in problems}


def test_lone_surrogate_in_an_answer_becomes_a_replacement_character(tmp_path: Path) -> None:
    r"""A model may write `"\ud800"`, in JSON; no file and no wire holds it."""
    rows: list[dict[str, object]] = [{"task_id": "a", "completion": "print('\ud800é😀')"}]
    rows.append({"task_id": "b", "completion": "y"})
    rows[1]["finish_reason"] = "\udfff"
    found = load(tmp_path, rows)
    assert [(response.text, response.finish_reason) for response in found] == [
        ("print('\ufffdé😀')", ""),
        ("y", "\ufffd"),
    ]


# --- answers as other tools publish them ---


def test_an_answer_to_evalplus_counts_for_both_figures(tmp_path: Path) -> None:
    problems = [replace(PROBLEMS[2], dataset=name) for name in ("humaneval_plus", "humaneval_plus_base")]
    rows: list[dict[str, object]] = [{"task_id": "HumanEval/0", "solution": name} for name in ("first", "second")]
    found = [(r.dataset, r.sample, r.text) for r in load(tmp_path, rows, problems)]
    assert sorted(found) == [
        ("humaneval_plus", 0, "first"),
        ("humaneval_plus", 1, "second"),
        ("humaneval_plus_base", 0, "first"),
        ("humaneval_plus_base", 1, "second"),
    ]
    one: dict[str, object] = {"task_id": "HumanEval/0", "response": "x", "dataset": "humaneval_plus_base", "sample": 0}
    assert [r.dataset for r in load(tmp_path, [one], problems)] == ["humaneval_plus_base"]


def test_evalplus_samples_are_whole_programs(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"task_id": "HumanEval/0", "solution": "def f(x): return x", "_identifier": "HumanEval/0 (line 1 in s.jsonl)"},
        {"task_id": "Mbpp/11", "solution": ""},
    ]
    found = load(tmp_path, rows)
    assert [(r.problem_id, r.text, r.mode) for r in found] == [
        ("HumanEval/0", "def f(x): return x", "standalone"),
        ("MBPP/11", "", "standalone"),
    ]


def test_a_solution_beside_an_answer_is_another_column(tmp_path: Path) -> None:
    (found,) = load(tmp_path, [{"problem_id": "a", "response": "mine", "solution": "the reference"}])
    assert (found.text, found.mode) == ("mine", "auto")


def lm_eval(filtered: object, name: str = "create_test", **doc: object) -> dict[str, object]:
    return {
        "doc_id": 0,
        "doc": doc or {"task_id": "HumanEval/0", "prompt": "def f(x):\n"},
        "target": "check(f)",
        "resps": [["    return x", "    return 1"]],
        "filtered_resps": filtered,
        "filter": name,
        "pass@1": 1.0,
    }


def test_lm_evaluation_harness_samples_are_the_programs_that_it_judged(tmp_path: Path) -> None:
    found = load(tmp_path, [lm_eval([["def f(x):\n    return x", "def f(x):\n    return 1"]])])
    assert [(r.sample, r.text, r.mode) for r in found] == [
        (0, "def f(x):\n    return x", "standalone"),
        (1, "def f(x):\n    return 1", "standalone"),
    ]


def test_lm_evaluation_harness_without_a_filter_gives_the_models_text(tmp_path: Path) -> None:
    (found,) = load(tmp_path, [lm_eval(["[BEGIN]..."], "none", task_id=11)])
    assert (found.problem_id, found.text, found.mode) == ("MBPP/11", "[BEGIN]...", "auto")


def test_lm_evaluation_harness_rows_of_two_filters_would_count_twice(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"^r.jsonl:2: field 'filter' is 'extract_code' after 'none': every answer"):
        load(tmp_path, [lm_eval(["x"], "none"), lm_eval(["y"], "extract_code")])


def batch_line(custom_id: str, *texts: str | None, **body: object) -> dict[str, object]:
    choices = [
        {"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        for index, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16}
    answer = {"object": "chat.completion", "choices": choices, "usage": usage, **body}
    return {
        "id": "batch_req_1",
        "custom_id": custom_id,
        "response": {"status_code": 200, "body": answer},
        "error": None,
    }


def test_openai_batch_output_is_read(tmp_path: Path) -> None:
    found = load(tmp_path, [batch_line("a#3", "x"), batch_line("b", "y", None), batch_line("HumanEval/0", "z")])
    assert found == [
        Response("contest", "a", 3, "x", finish_reason="stop", output_tokens=7, prompt_tokens=9),
        Response("contest", "b", 0, "y", finish_reason="stop"),
        Response("contest", "b", 1, "", finish_reason="stop"),
        Response("humaneval", "HumanEval/0", 0, "z", finish_reason="stop", output_tokens=7, prompt_tokens=9),
    ]


def test_openai_batch_output_of_the_completions_endpoint_is_read(tmp_path: Path) -> None:
    (found,) = load(tmp_path, [batch_line("a", choices=[{"text": "t", "finish_reason": "length"}])])
    assert (found.text, found.truncated) == ("t", True)


def test_livecodebench_outputs_are_the_programs_that_it_judged(tmp_path: Path) -> None:
    rows = [
        {"question_id": "a", "question_title": "A", "output_list": ["```\nx\n```", "no"], "code_list": ["x", ""]},
        {"question_id": "b", "output_list": ["```\ny\n```"]},
    ]
    (tmp_path / "codegeneration_output.json").write_text(json.dumps(rows, indent=4))
    found = load_responses(["codegeneration_output.json"], PROBLEMS, tmp_path)
    assert [(r.problem_id, r.sample, r.text, r.mode) for r in found] == [
        ("a", 0, "x", "standalone"),
        ("a", 1, "", "standalone"),
        ("b", 0, "```\ny\n```", "auto"),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"task_id": "HumanEval/0", "solution": ["x"]}, "field 'solution' should be text, not a list"),
        ({"task_id": "HumanEval/9", "solution": "x"}, "unknown problem 'HumanEval/9'"),
        (lm_eval(["x"], question="?"), "field 'doc' has none of problem_id, task_id, question_id, name, id, so the"),
        (
            lm_eval([[0.5, False]]),
            "field 'filtered_resps' should hold texts, not a number: is this a",
        ),
        ({"question_id": "a", "code_list": []}, "field 'code_list' is an empty list"),
        (
            {"custom_id": "a", "response": None, "error": {"code": "batch_expired", "message": "Not run in\n24h."}},
            "the request 'a' has no answer (Not run in 24h.): send it again, or remove the line",
        ),
        (
            {"custom_id": "a", "response": {"status_code": 429, "body": {"error": {"message": "Too many"}}}},
            "the request 'a' has no answer (Too many): send it again",
        ),
        ({"custom_id": "a", "response": {"status_code": 500}}, "the request 'a' has no answer (status 500)"),
        (
            {"custom_id": "a", "response": {"status_code": 200, "body": {"output": []}}},
            "field 'response.body.choices' is missing (expected a list of answers (of /v1/chat/completions or",
        ),
        (batch_line("a#0", "x", "y"), "custom_id names one sample, but there are 2 choices: leave the '#0' away"),
    ],
)
def test_bad_row_of_another_tool_is_refused_with_its_field(
    tmp_path: Path, row: dict[str, object], message: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        load(tmp_path, [row])
    assert str(caught.value).startswith(f"r.jsonl:1: {message}")
