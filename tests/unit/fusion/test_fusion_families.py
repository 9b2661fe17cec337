import json
from typing import Any

import pytest
from builders.fusion.clients import ADD, STDIO_ROW, fenced

from evalrun_sandbox.fusion.families.common_oj import shorten_case
from evalrun_sandbox.fusion.families.program_plan import ProgramPlan
from evalrun_sandbox.fusion.refusals import BadRequest
from evalrun_sandbox.fusion.registry import FAMILIES, find_family
from evalrun_sandbox.fusion.schemas import Row, SubmitRequest, TestConfig

HUMANEVAL_ROW: Row = {
    "task_id": "HumanEval/0",
    "prompt": 'def f(x):\n    """Add one."""\n',
    "test": "def check(candidate):\n    assert candidate(1) == 2\n",
    "entry_point": "f",
    "canonical_solution": "    return x + 1\n",
}
MBPP_ROW: Row = {
    "id": 11,
    "content": "Write a function that adds one.",
    "labels": {"test_setup_code": "import math", "challenge_test_list": []},
    "test_list": ["assert f(1) == 2", "assert f(2) == 3"],
}


def submission(dataset: str, completion: str, row: Row, **config: Any) -> tuple[SubmitRequest, Row]:
    fields = {"dataset": dataset, "id": 1, "completion": completion, "config": {**config, "provided_data": row}}
    return SubmitRequest.model_validate(fields), row


def plan(dataset: str, completion: str, row: Row, **config: Any) -> ProgramPlan:
    request, row = submission(dataset, completion, row, **config)
    return find_family(request).plan(row, request)


def test_stdio_has_a_run_a_case_and_the_languages_own_time() -> None:
    found = plan("code_contests", fenced(ADD), STDIO_ROW, language="python")
    assert (found.language, found.program, found.extracted_code, found.full_code) == ("python", ADD, ADD, None)
    assert (found.run_timeout, found.cases) == (20, STDIO_ROW["test"])
    compiled = plan("code_contests", fenced("int main(){}", "cpp"), STDIO_ROW, language="cpp")
    assert (compiled.compile_timeout, compiled.run_timeout) == (10, 10)
    asked = plan("code_contests", "", STDIO_ROW, language="cpp", compile_timeout=3, run_timeout=4)
    assert (asked.compile_timeout, asked.run_timeout) == (3, 4)


def test_row_fields_may_be_json_texts() -> None:
    row = {**STDIO_ROW, "test": json.dumps(STDIO_ROW["test"]), "labels": json.dumps(STDIO_ROW["labels"])}
    assert plan("code_contests", "", row, language="python").cases == STDIO_ROW["test"]
    assert FAMILIES["CommonOJDataset"].prompt(row, "code_contests", TestConfig()).labels == {"level": "easy"}


def test_the_statement_ends_with_a_sentence_on_the_language() -> None:
    family = FAMILIES["CommonOJDataset"]
    streams = "Your program should read input from standard input and write output to standard output."
    shown = {
        language: family.prompt(STDIO_ROW, "code_contests", TestConfig.model_validate({"language": language})).prompt
        for language in ("python", "rust", None)
    }
    start = "Add two numbers.\n\nPlease implement"
    assert shown["python"] == f"{start} a complete Python script. {streams}"
    assert shown["rust"] == f"{start} complete executable code with an entry point in rust. {streams}"
    assert shown[None] == f"{start} complete executable code with an entry point in None. {streams}"
    chinese = family.prompt(STDIO_ROW, "code_contests", TestConfig(language="cpp", locale="zh"))
    assert "C++" in chinese.prompt
    assert "Please" not in chinese.prompt


def test_long_texts_of_a_passed_case_are_cut_in_the_middle() -> None:
    case = {"input": {"stdin": "x" * 1000}, "output": {"stdout": "a" * 600 + "b" * 600}}
    cut = shorten_case(case)
    assert cut["input"]["stdin"] == "x" * 1000
    assert cut["output"]["stdout"] == "a" * 498 + "..." + "b" * 498
    assert len(case["output"]["stdout"]) == 1200


def test_mbpp_puts_setup_program_and_assertions_into_one_program() -> None:
    completion = fenced('def f(x):\n    return x + 1\nassert f(0) == 1\nif __name__ == "__main__":\n    f()')
    found = plan("mbpp", completion, MBPP_ROW)
    code = "import math\ndef f(x):\n    return x + 1"
    assert found.extracted_code == code
    assert found.program == found.full_code == code + "\nassert f(1) == 2\n\nassert f(2) == 3\n"
    assert (found.run_timeout, found.cases) == (20, None)


def test_mbpp_shows_all_assertions_and_judges_a_few_shot_answer_by_the_last() -> None:
    family = FAMILIES["MBPPDataset"]
    prompt = family.prompt(MBPP_ROW, "mbpp", TestConfig())
    assert prompt.id == 11
    assert prompt.prompt == (
        "You are an expert Python programmer, and here is your task: Write a function that adds one. "
        "Your code should pass these tests:\n\nassert f(1) == 2\nassert f(2) == 3"
    )
    found = plan("mbpp", "def f(x):\n    return x + 1\n[DONE]\nassert False", MBPP_ROW, is_fewshot=True)
    assert found.program == "import math\ndef f(x):\n    return x + 1\n\nassert f(2) == 3\n"
    with pytest.raises(BadRequest, match="is_fewshot"):
        family.prompt(MBPP_ROW, "mbpp", TestConfig(is_fewshot=True))


def test_humaneval_completes_the_prompt_up_to_the_first_line_that_is_not_indented() -> None:
    found = plan("humaneval_python", "    return x + 1\n\n\nprint(f(1))\n", HUMANEVAL_ROW)
    head = HUMANEVAL_ROW["prompt"]
    assert found.extracted_code == "    return x + 1\n\n"
    assert found.program.endswith(f"\n{head}\n    return x + 1\n\n\n{HUMANEVAL_ROW['test']}\ncheck(f)")
    assert found.program.startswith("import math\n")


def test_humaneval_free_form_takes_the_block_alone() -> None:
    extra = {"is_freeform": True}
    program = "def f(x):\n    return x + 1"
    found = plan("humaneval_python", fenced(program), HUMANEVAL_ROW, extra=extra)
    assert found.extracted_code == program
    assert HUMANEVAL_ROW["prompt"] not in found.program
    assert found.program.endswith("\ncheck(f)")
    shadow = plan("shadow_humaneval_python", fenced(f"{program}\nprint(1)"), HUMANEVAL_ROW, extra=extra)
    assert shadow.extracted_code == program
    shown = FAMILIES["HumanEvalDataset"].prompt(HUMANEVAL_ROW, "humaneval_python", TestConfig(extra=extra))
    assert isinstance(shown.prompt, str)
    assert shown.prompt.startswith("```python\ndef f(x):")
    assert shown.prompt.endswith("The code should not contain `Main` function.")
    assert (shown.id, set(shown.labels)) == ("HumanEval/0", {"task_id", "test", "entry_point", "canonical_solution"})


def config_of(**fields: Any) -> SubmitRequest:
    return SubmitRequest.model_validate({"dataset": "mine", "id": 1, "completion": "", "config": fields})


def test_a_name_that_is_not_registered_is_judged_by_its_type() -> None:
    assert find_family(config_of(dataset_type="CommonOJDataset")) is FAMILIES["CommonOJDataset"]
    assert find_family(config_of(dataset_type="MBPPDataset")) is FAMILIES["MBPPDataset"]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({}, "no eval class found for dataset mine"),
        ({"dataset_type": "NoDataset"}, "eval class NoDataset not found"),
        ({"dataset_type": "LiveCodeBenchDataset"}, "eval class LiveCodeBenchDataset not found"),
        ({"dataset_type": "HumanEvalDataset"}, "tests would never be called"),
        ({"dataset_type": "CommonOJDataset", "custom_extract_logic": "import os"}, "custom_extract_logic is refused"),
    ],
)
def test_unknown_or_unsafe_evaluation_class_is_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadRequest, match=complaint):
        find_family(config_of(**fields))


@pytest.mark.parametrize(
    ("dataset", "change", "complaint"),
    [
        ("code_contests", {"test": "eJxdzEEKwCAMRNG7zDoLq7"}, "test is not JSON .* pickled"),
        ("code_contests", {"test": []}, "at least one test"),
        ("code_contests", {"test": {"a": 1}}, "test must be a list"),
        ("code_contests", {"test": [{"input": {}, "output": {"stdout": ""}}]}, r"test\[0\]\.input\.stdin"),
        ("code_contests", {"test": [{"input": {"stdin": ""}, "output": {"stdout": 1}}]}, r"test\[0\]\.output\.stdout"),
        ("mbpp", {"test_list": []}, "at least one test"),
        ("mbpp", {"test_list": [1]}, "test_list must hold texts"),
        ("mbpp", {"labels": 3}, "labels must be an object"),
        ("humaneval_python", {"test": None}, "test must be a text"),
    ],
)
def test_a_row_that_cannot_be_judged_is_refused_by_field(dataset: str, change: Row, complaint: str) -> None:
    rows = {"code_contests": STDIO_ROW, "mbpp": MBPP_ROW, "humaneval_python": HUMANEVAL_ROW}
    with pytest.raises(BadRequest, match=complaint):
        plan(dataset, "", {**rows[dataset], **change}, language="python")


def test_stdio_needs_a_language() -> None:
    with pytest.raises(BadRequest, match=r"config\.language field must exist"):
        plan("code_contests", "", STDIO_ROW)
