"""The demo: its tests are right, its answers are what they are filed as, and every final status appears."""

import contextlib
import io
import json
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from evalrun_data import demo
from evalrun_data.prompts import render
from evalrun_data.readers import load_problems
from evalrun_data.records import AssertTests, CheckTest, Problem, StdioTests
from evalrun_data.responses import load_responses
from evalrun_runtime.exits import BadInputError

EXPECTED = json.loads((Path(__file__).parent / "demo_expected.json").read_text())
PROBLEMS = {problem.problem_id: problem for problem in load_problems("builtin:demo")}
FILES = [tomllib.loads(file.read_text()) for file in Path(demo.__file__).parent.glob("problems/*.toml")]
SOLUTIONS = {f"demo/{file['id']}": file["solution"] for file in FILES}
ANSWERS = {f"{answer.problem_id}/{answer.sample}": answer for answer in demo.answers()}


def failures(problem: Problem, program: str) -> list[str]:
    """What of a problem's tests a program of ours fails, run in this process: nothing hostile is run here."""
    tests = problem.ground_truth
    if isinstance(tests, StdioTests):
        pairs = zip(tests.inputs, tests.outputs, strict=True)
        return [given for given, wanted in pairs if printed(program, given).split() != wanted.split()]
    scope: dict[str, object] = {"__name__": "__main__"}
    if isinstance(tests, CheckTest):
        exec(tests.prompt + "\n" + program + "\n" + tests.test, scope)
        checks = [f"check({tests.entry_point})"]
    else:
        assert isinstance(tests, AssertTests)
        exec(program + "\n" + tests.test_setup_code, scope)
        checks = list(tests.test_list)
    failed = []
    for check in checks:
        try:
            exec(check, scope)
        except AssertionError:
            failed.append(check)
    return failed


def printed(program: str, given: str) -> str:
    out, before = io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(given.encode()))
    try:
        with contextlib.redirect_stdout(out):
            exec(program, {"__name__": "__main__"})
    finally:
        sys.stdin = before
    return out.getvalue()


def last_block(text: str) -> str:
    blocks: list[str] = re.findall(r"^```\w*\n(.*?)^```", text.split("</think>")[-1], re.DOTALL | re.MULTILINE)
    return blocks[-1]


def of_kind(*kinds: str) -> list[str]:
    return [key for key, expected in EXPECTED.items() if expected["kind"] in kinds]


def test_demo_problems_cover_every_family_and_difficulty() -> None:
    families = Counter(problem.family for problem in PROBLEMS.values())
    assert families == {"stdio": 16, "check": 8, "asserts": 8}
    by_family = Counter((problem.family == "stdio", problem.difficulty) for problem in PROBLEMS.values())
    assert set(by_family) == {(stdio, level) for stdio in (True, False) for level in ("easy", "medium", "hard")}


@pytest.mark.parametrize("problem_id", PROBLEMS)
def test_the_reference_solution_passes_its_tests(problem_id: str) -> None:
    problem = PROBLEMS[problem_id]
    assert failures(problem, SOLUTIONS[problem_id]) == []
    if isinstance(problem.ground_truth, CheckTest):
        assert 5 <= problem.ground_truth.test.count("assert") <= 20
    else:
        assert 5 <= problem.test_count <= 20


@pytest.mark.parametrize("key", of_kind("right"))
def test_a_right_answer_solves_it_independently_of_the_reference(key: str) -> None:
    answer = ANSWERS[key]
    program = last_block(answer.text)
    assert program.strip() != SOLUTIONS[answer.problem_id].strip()
    assert failures(PROBLEMS[answer.problem_id], program) == []


@pytest.mark.parametrize("key", of_kind("wrong"))
def test_a_wrong_answer_fails_some_test_and_never_crashes(key: str) -> None:
    answer = ANSWERS[key]
    assert failures(PROBLEMS[answer.problem_id], last_block(answer.text))


@pytest.mark.parametrize("key", of_kind("crash", "memory limit"))
def test_a_crashing_answer_raises(key: str) -> None:
    answer = ANSWERS[key]
    with pytest.raises((LookupError, MemoryError)):
        failures(PROBLEMS[answer.problem_id], last_block(answer.text))


@pytest.mark.parametrize("key", of_kind("syntax error"))
def test_a_broken_answer_does_not_compile(key: str) -> None:
    with pytest.raises(SyntaxError):
        compile(last_block(ANSWERS[key].text), "answer", "exec")


def test_every_answer_is_filed_and_every_final_status_of_a_program_appears() -> None:
    assert sorted(EXPECTED) == sorted(ANSWERS)
    first = {key: value for key, value in EXPECTED.items() if key.endswith("/0")}
    # api_error is the judge's own failure: no program can bring it about.
    statuses = {"success", "wrong_answer", "runtime_error", "timeout", "syntax_error", "empty_output"}
    assert {value["final_status"] for value in first.values()} == statuses
    assert len([value for value in first.values() if value["kind"] == "hostile"]) == 7
    assert not [
        value for value in EXPECTED.values() if value["kind"] == "hostile" and value["final_status"] == "success"
    ]


def test_answers_load_as_responses_and_the_truncated_one_is_marked() -> None:
    problems = load_problems("builtin:demo")
    responses = load_responses(["builtin:demo"], problems)
    assert [response.sample for response in responses if response.problem_id == "demo/countdown"] == [0, 1]
    assert {r.problem_id for r in responses if r.sample == 0} == set(PROBLEMS)
    assert [r.problem_id for r in responses if r.truncated] == ["demo/fair_teams"]
    assert len(load_responses(["builtin:demo"], problems[:1])) == 1


def test_each_prompt_is_of_one_problem_only() -> None:
    """The recorded-answers endpoint finds the answer by the prompt."""
    for form in ("Chat", "Completion"):
        texts = {render(problem, form)[0].content for problem in PROBLEMS.values()}
        assert len(texts) == len(PROBLEMS)


def test_prompts_keep_some_asserts_hidden() -> None:
    for problem in PROBLEMS.values():
        if isinstance(problem.ground_truth, AssertTests):
            assert problem.ground_truth.test_list[3] not in render(problem)[0].content


def test_another_builtin_name_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"^builtin:humaneval: no such built-in dataset \(there is builtin:demo\)$"):
        load_problems("builtin:humaneval")
