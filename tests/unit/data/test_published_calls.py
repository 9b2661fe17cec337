"""APPS, TACO, LiveCodeBench and verl's `fn_name`: read as published, and each call judged as their own rules say."""

import base64
import json
import pickle
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.data import write_jsonl
from builders.judge.function_tests import WarmForks, judge

from evalrun_data.formats.calls import PRELUDE
from evalrun_data.formats.record import make_problem_record, parse_record
from evalrun_data.governance.record_tables import make_columns
from evalrun_data.prompts import render
from evalrun_data.readers import load_problems
from evalrun_data.records import AssertTests, CallTests, Problem, ProblemComparator, StdioTests
from evalrun_data.rows import Row
from evalrun_judge.extraction import SubmissionMode
from evalrun_judge.families.function import program_after
from evalrun_judge.submission import AssertTests as SentAsserts
from evalrun_runtime.exits import BadInputError

METHOD = "class Solution:\n    def f(self, xs, k):\n"
CALLS = {"inputs": [[[1, 2], 1], [[5], 0]], "outputs": [[2, 3], [5]], "fn_name": "f"}
APPS: dict[str, Any] = {
    "problem_id": 3,
    "question": "Add k to each number.",
    "input_output": json.dumps(CALLS),
    "starter_code": "",
    "difficulty": "interview",
    "url": "https://example.org/3",
}
STDIN_TESTS = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]
CALL_TESTS = [
    {"input": "[1, 2]\n1", "output": "[2, 3]", "testtype": "functional"},
    {"input": "[5]\n0", "output": "[5]", "testtype": "functional"},
]
LCB: dict[str, Any] = {
    "question_id": "1873_A",
    "question_title": "Sum",
    "question_content": "Print the sum.",
    "platform": "codeforces",
    "contest_date": "2024-08-31T00:00:00",
    "starter_code": "",
    "difficulty": "easy",
    "public_test_cases": json.dumps(STDIN_TESTS),
    "private_test_cases": "[]",
    "metadata": "{}",
}


def packed(value: object, protocol: int = 4) -> str:
    """Return private tests as LiveCodeBench publishes them."""
    return base64.b64encode(zlib.compress(pickle.dumps(value, protocol))).decode()


def functional(**more: Any) -> dict[str, Any]:
    private = packed(json.dumps(CALL_TESTS[1:]))
    given = {"public_test_cases": json.dumps(CALL_TESTS[:1]), "private_test_cases": private}
    return {**LCB, **given, "starter_code": METHOD, "metadata": '{"func_name": "f"}', **more}


def verl(**truth: object) -> dict[str, Any]:
    given = {"inputs": ["[1, 2]\n1", "[5]\n0"], "outputs": ["[2, 3]", "[5]"], "fn_name": "f", **truth}
    return {
        "data_source": "taco",
        "prompt": "Add k to each number.",
        "reward_model": {"style": "rule", "ground_truth": json.dumps(given)},
    }


def loaded(directory: Path, row: Mapping[str, Any], dataset: str | None = None) -> Problem:
    (problem,) = load_problems(str(write_jsonl(directory / "rows.jsonl", [row])), dataset)
    return problem


@pytest.fixture(scope="module")
def forks() -> Iterator[WarmForks]:
    running = WarmForks()
    yield running
    running.close()


def statuses(forks: WarmForks, problem: Problem, code: str) -> list[str]:
    tests = problem.ground_truth
    assert isinstance(tests, AssertTests)
    sent = SentAsserts(tests.test_list, tests.test_setup_code, tests.entry_point, tests.prelude)
    return list(judge(sent, program_after(tests.prelude, code, SubmissionMode.AUTO), execute=forks.run).statuses)


def test_apps_row_with_text_tests_gives_stdio_tests(tmp_path: Path) -> None:
    row = {**APPS, "input_output": json.dumps({"inputs": ["1 2\n", ["3", "4"]], "outputs": ["3\n", ["7"]]})}
    problem = loaded(tmp_path, row)
    assert (problem.key, problem.difficulty) == (("apps", "3"), "interview")
    assert problem.ground_truth == StdioTests(("1 2\n", "3\n4"), ("3\n", "7"))
    assert problem.comparator == ProblemComparator("standard", case_sensitive=False, by_format=True)


def test_taco_rows_have_no_id_but_their_url(tmp_path: Path) -> None:
    row = {name: value for name, value in APPS.items() if name != "problem_id"}
    assert loaded(tmp_path, {**row, "source": "geeksforgeeks"}, "taco").key == ("taco", "https://example.org/3")


def test_livecodebench_rows_that_read_stdin_have_their_day_and_no_tolerance(tmp_path: Path) -> None:
    private = packed(json.dumps([{"input": "4 5\n", "output": "9\n", "testtype": "stdin"}]))
    problem = loaded(tmp_path, {**LCB, "private_test_cases": private})
    assert (problem.key, problem.date) == (("livecodebench", "1873_A"), "2024-08-31")
    assert problem.ground_truth == StdioTests(("1 2\n", "4 5\n"), ("3\n", "9\n"), ("public", "private"), PRELUDE)
    assert problem.comparator == ProblemComparator("tokens", abs=0.0, rel=0.0, by_format=True)


@pytest.mark.parametrize("row", [LCB, functional()], ids=["stdin", "called"])
def test_a_training_row_in_verls_layout_keeps_the_imports(tmp_path: Path, row: Mapping[str, Any]) -> None:
    problem = replace(loaded(tmp_path, row), role="train")
    back = loaded(tmp_path, make_columns(problem, 0, "")).ground_truth
    assert isinstance(back, StdioTests | AssertTests)
    assert back.prelude == PRELUDE


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_private_tests_are_unpacked_without_loading_a_pickle(tmp_path: Path, protocol: int) -> None:
    private = packed(json.dumps(CALL_TESTS[1:]), protocol)
    assert loaded(tmp_path, functional(private_test_cases=private)).test_count == 2


class Opened:
    """What a pickle would call when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("/tmp/evalrun-livecodebench-pickle-was-loaded"),))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (functional(private_test_cases=packed(Opened())), "holds a pickle of more than one text .*never loaded"),
        (functional(private_test_cases=packed(["[]"])), "holds a pickle of more than one text"),
        (functional(private_test_cases="!"), "field 'private_test_cases' is neither JSON nor base64 of zlib"),
        (
            functional(private_test_cases=base64.b64encode(zlib.compress(b"no")).decode()),
            "is a broken pickle of a text",
        ),
        (functional(metadata="{}"), "field 'metadata.func_name' is missing"),
        (functional(public_test_cases=json.dumps(STDIN_TESTS)), "its tests have the types functional, stdin"),
        ({**LCB, "public_test_cases": "[]"}, "field 'public_test_cases' is empty"),
        ({**LCB, "contest_date": "soon"}, "field 'contest_date' is 'soon': write a date such as 2024-08-31"),
        ({**APPS, "input_output": ""}, "field 'input_output' is empty: a problem needs at least one test"),
        ({**APPS, "input_output": "{"}, "field 'input_output' is not JSON"),
        ({**APPS, "input_output": '{"inputs": [], "outputs": []}'}, "has 0 inputs and 0 outputs"),
        ({**APPS, "input_output": '{"inputs": [1], "outputs": [1]}'}, "'input_output.inputs' should hold texts, not a"),
        ({**APPS, "input_output": json.dumps({**CALLS, "inputs": [1, 2]})}, "should be a list of arguments"),
        ({**APPS, "hidden_tests": "x"}, "the reader of APPS rows does not use the tests in 'hidden_tests'"),
    ],
)
def test_a_row_that_cannot_be_used_says_why(tmp_path: Path, row: Mapping[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=rf"rows.jsonl:1: .*{message}"):
        loaded(tmp_path, row)
    assert not Path("/tmp/evalrun-livecodebench-pickle-was-loaded").exists()


PLAIN = "def f(xs, k): return [x + k for x in xs]"
RIGHT = METHOD + "        return [x + k for x in xs]"


@pytest.mark.parametrize(
    ("row", "code", "expected"),
    [
        (APPS, PLAIN, ["success", "success"]),
        (APPS, "def f(xs, k): return tuple(x + k for x in xs)", ["success", "success"]),
        (APPS, "def f(xs, k): return [2, 3]", ["success", "wrong_answer"]),
        ({**APPS, "starter_code": METHOD}, RIGHT, ["success", "success"]),
        (functional(), RIGHT, ["success", "success"]),
        (functional(), RIGHT.replace("self, xs", "self, xs: List[int]"), ["success"] * 2),
        (
            functional(),
            METHOD + "        return [pow(x, 1, 99) + k for x in accumulate(xs[:1])] + xs[1:]",
            ["wrong_answer", "success"],
        ),
        (functional(), "from __future__ import annotations\n" + RIGHT, ["success"] * 2),
        (functional(), METHOD + "        return [5]", ["wrong_answer", "success"]),
        (functional(), METHOD + "        raise KeyError", ["runtime_error", "runtime_error"]),
        (functional(), METHOD + "        return Any()\nclass Any:\n    __eq__ = lambda *a: True", ["wrong_answer"] * 2),
        (functional(starter_code="def f(xs, k):"), PLAIN, ["success", "success"]),
        (verl(), PLAIN, ["success", "success"]),
        (verl(), "def f(xs, k): return xs", ["wrong_answer", "success"]),
    ],
)
def test_calls_are_judged_by_the_values_they_return(
    forks: WarmForks, tmp_path: Path, row: Mapping[str, Any], code: str, expected: list[str]
) -> None:
    assert statuses(forks, loaded(tmp_path, row), code) == expected


@pytest.mark.parametrize(
    ("row", "returned", "expected"),
    [
        (APPS, "[(1, 2)]", "[[1, 2]]"),
        (APPS, "5", "[5]"),
        (APPS, "{1: 2}", '{"1": 2}'),
    ],
)
def test_apps_accepts_looser_return_types_than_livecodebench(
    forks: WarmForks, tmp_path: Path, row: dict[str, Any], returned: str, expected: str
) -> None:
    given = {"inputs": [[0]], "outputs": [json.loads(expected)], "fn_name": "f"}
    code = f"def f(x): return {returned}"
    assert statuses(forks, loaded(tmp_path, {**row, "input_output": json.dumps(given)}), code) == ["success"]
    tests = json.dumps([{"input": "0", "output": expected, "testtype": "functional"}])
    strict = functional(public_test_cases=tests, private_test_cases="", starter_code="def f(x):")
    assert statuses(forks, loaded(tmp_path, strict), code) == ["wrong_answer"]


@pytest.mark.parametrize("row", [APPS, verl()], ids=["apps", "verl"])
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("class Solution:\n    def f(self, xs, k): return [x + k for x in xs]", ["success", "success"]),
        ("class Solution:\n    def g(self, xs, k): return xs", ["runtime_error", "runtime_error"]),
        ("class Solution: pass\ndef f(xs, k): return [x + k for x in xs]", ["success", "success"]),
    ],
    ids=["method", "another method", "function beside a class"],
)
def test_a_call_without_starter_code_reaches_a_method_where_the_answer_has_no_such_function(
    forks: WarmForks, tmp_path: Path, row: dict[str, Any], code: str, expected: list[str]
) -> None:
    assert statuses(forks, loaded(tmp_path, row), code) == expected


@pytest.mark.parametrize("row", [{**APPS, "starter_code": METHOD}, functional()])
def test_hidden_calls_are_not_shown_to_the_model(tmp_path: Path, row: Mapping[str, Any]) -> None:
    problem = loaded(tmp_path, row)
    (message,) = render(problem, "Chat")
    assert METHOD.strip() in message.content
    for shown in (message.content, render(problem, "Completion")[0].content):
        assert "assert" not in shown
        assert "[2, 3]" not in shown


TYPED = "class Solution:\n    def f(self, xs: List[int], k: int) -> List[int]:\n"


def test_livecodebench_asked_for_in_another_language_is_called_by_values(tmp_path: Path) -> None:
    problem = loaded(tmp_path, functional(starter_code=TYPED), "livecodebench_v6_java")
    assert (problem.dataset, problem.language, problem.messages) == ("livecodebench_v6_java", "java", ())
    assert problem.ground_truth == CallTests(
        "f(xs: list[long], k: long) -> list[long]", ("[[1, 2], 1]", "[[5], 0]"), ("[2, 3]", "[5]")
    )
    asked = render(problem)[0].content
    assert "public long[] f(long[] xs, long k) {" in asked
    assert "[2, 3]" not in asked
    assert "class Solution:" not in asked
    assert "public long[] f(" in render(problem, "Completion")[0].content
    assert parse_record(Row(json.loads(json.dumps(make_problem_record(problem))), "file", 1), None) == problem


def test_livecodebench_rows_that_name_a_language_have_it(tmp_path: Path) -> None:
    assert loaded(tmp_path, {**LCB, "language": "c++"}).language == "cpp"
    assert loaded(tmp_path, LCB, "multi_lcb_go").language == "go"
    assert loaded(tmp_path, functional(language="python")).family == "asserts"
    with pytest.raises(BadInputError, match="field 'language' is 'cobol': write one of python, c, cpp"):
        loaded(tmp_path, {**LCB, "language": "cobol"})


@pytest.mark.parametrize(
    ("annotations", "told"),
    [
        ("xs: Dict[str, int], k: int) -> int", "the type 'Dict[str; int]' cannot be passed by value"),
        ("xs: List[int], k) -> int", "the type 'any'"),
        ("xs: Optional[TreeNode], k: int) -> None", "the type 'Optional[TreeNode]'"),
        ("xs: List[int], k: int) -> bool", "the value [2, 3] is no bool"),
        ("xs: List[int], k: int) -> List[float]", ""),
    ],
)
def test_problem_with_unsupported_types_is_read_and_its_refusal_explained(
    tmp_path: Path, annotations: str, told: str
) -> None:
    starter = f"class Solution:\n    def f(self, {annotations}:\n"
    problem = loaded(tmp_path, functional(starter_code=starter, language="go"))
    said = problem.ground_truth.explain_refusal("go")
    assert told in said
    assert bool(told) is bool(said)
    assert render(problem)


@pytest.mark.parametrize("starter", ["", "def f(", "def g(xs: int) -> int:\n"])
def test_a_starter_without_the_function_is_refused_in_other_languages(tmp_path: Path, starter: str) -> None:
    with pytest.raises(BadInputError, match="field 'starter_code'"):
        loaded(tmp_path, functional(starter_code=starter, language="rust"))


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        ({"signature": "f(x: int) -> int", "calls": [], "results": []}, "'ground_truth.calls' should be a list"),
        ({"signature": "f(x: int) -> int", "calls": [[1]], "results": [1, 2]}, "has not as many calls as results"),
        ({"signature": "f(x: int) -> int", "calls": [[1], ["a"]], "results": [1, 2]}, r"calls\[1\]': the value \"a\""),
        ({"signature": "f(x: Tree) -> int", "calls": [[1]], "results": [1]}, "signature': the type 'Tree'"),
        (
            {"signature": "f(x: int) -> int", "calls": [[1]], "results": [1.5]},
            r"results\[0\]': the value 1.5 is no int",
        ),
    ],
)
def test_records_of_calls_that_cannot_be_judged_say_why(truth: Mapping[str, Any], message: str) -> None:
    record = {"dataset": "d", "problem_id": "p", "prompt": "Add.", "language": "go", "ground_truth": truth}
    with pytest.raises(BadInputError, match=message):
        parse_record(Row(record, "file", 1), None)
