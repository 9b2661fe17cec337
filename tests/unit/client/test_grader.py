"""Users' graders: what is run, and what its ends mean. The programs themselves are run by integration tests."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evalrun_api.v1alpha1 import Dataset
from evalrun_client.grader import (
    Grader,
    answer_request,
    answer_verdict,
    grader_program,
    make_graded_verdict,
    read_dataset_grader,
    read_grader,
    render_grader_input,
    scoreless_test,
    verls_grader,
)
from evalrun_client.judge_request import Answer
from evalrun_data.records import CheckTest, Problem, Reference, StdioTests
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_runtime.exits import BadInputError

GOOD = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 1.0\n"
GRADER = Grader("gsm8k", grader_program(GOOD, "g.py"), "")
MATHS = Problem("gsm8k", "1", "2+2?", Reference('"4"', '{"index": 7}'), data_source="openai/gsm8k")
CODE = Problem("mixed", "2", "Echo.", StdioTests(("1",), ("1",)), data_source="codecontests")


def dataset(**fields: object) -> Dataset:
    return Dataset.model_validate({"name": "gsm8k", "source": "gsm8k.parquet", **fields})


def test_an_answer_is_the_graders_input_and_no_program() -> None:
    request = answer_request("r", dataset(maxAnswerCharacters=9), MATHS, Answer("import os, sys"), GRADER)
    (test,) = request.stdio.tests
    assert json.loads(test.input) == {
        "data_source": "openai/gsm8k", "solution_str": "import os", "ground_truth": "4", "extra_info": {"index": 7},
    }  # fmt: skip
    assert request.submission.text == GRADER.program
    assert (request.run, request.limits.time_seconds, request.limits.output_kib) == ("r", 30.0, 1024)


def test_the_datasets_limits_are_the_graders() -> None:
    limits = {"timeSeconds": 5, "memoryMiB": 2048}
    request = answer_request("r", dataset(limits=limits), MATHS, Answer("4"), GRADER)
    assert (request.limits.time_seconds, request.limits.memory_mib) == (5.0, 2048)


def test_a_grader_gets_the_tests_of_a_published_format_as_verls_rows_hold_them() -> None:
    problem = Problem("humaneval", "HumanEval/0", "def f", CheckTest("def f", "def check(f): pass", "f"))
    (test,) = answer_request("r", dataset(), problem, Answer("x"), GRADER).stdio.tests
    assert json.loads(json.loads(test.input)["ground_truth"])["entry_point"] == "f"


def test_grader_of_verl_leaves_code_problems_to_their_tests() -> None:
    grader = verls_grader("mixed")
    request = answer_request("r", dataset(), CODE, Answer("print(input())"), grader)
    assert (request.submission.text, request.stdio.tests[0].expected_output) == ("print(input())", "1")
    assert answer_request("r", dataset(), MATHS, Answer("4"), grader).submission.text == grader.program


def ended(status: int, stdout: str = "", reason: str = "", *, judged: bool = True) -> judge_pb2.Verdict:
    test = judge_pb2.TestResult(
        status=judge_pb2.TestStatus.ValueType(status), reason=reason, disagreeing_comparators=["tokens"]
    )
    test.stdout.text = stdout
    return judge_pb2.Verdict(judged=judged, tests=[test], code="the grader", pass_ratio=0.0)


@pytest.mark.parametrize(
    ("said", "accepted", "status"),
    [
        ('{"score": -0.5, "accepted": false}', False, judge_pb2.FINAL_STATUS_WRONG_ANSWER),
        ('{"score": 0.25, "accepted": true}', True, judge_pb2.FINAL_STATUS_SUCCESS),
    ],
)
def test_score_of_a_grader_becomes_a_judged_verdict(said: str, accepted: bool, status: int) -> None:
    verdict = answer_verdict(MATHS, GRADER, ended(judge_pb2.TEST_STATUS_WRONG_ANSWER, said))
    assert (verdict.judged, verdict.accepted, verdict.score) == (True, accepted, json.loads(said)["score"])
    assert (verdict.final_status, verdict.code, verdict.HasField("pass_ratio")) == (status, "", False)
    assert not verdict.tests[0].disagreeing_comparators


def test_graded_verdict_of_an_answer_that_the_grader_alone_cannot_handle_is_wrong() -> None:
    said = '{"error": "ValueError: two", "score": 0.0, "accepted": false}'
    verdict = answer_verdict(MATHS, GRADER, ended(judge_pb2.TEST_STATUS_SUCCESS, said))
    assert (verdict.judged, verdict.accepted, verdict.score) == (True, False, 0.0)
    wanted = "the grader of gsm8k handles the expected answer, and not this one: ValueError: two"
    assert verdict.tests[0].reason == wanted


def run_grader(source: str, response: str, ground_truth: object) -> dict[str, object]:
    given = render_grader_input("d", response, ground_truth, {})
    program = grader_program(source, "g.py")
    ran = subprocess.run([sys.executable, "-I", "-c", program], input=given.encode(), capture_output=True, check=True)
    said: dict[str, object] = json.loads(ran.stdout)
    return said


READS_NUMBERS = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return float(float(solution_str.split("#### ")[-1]) == float(ground_truth))
"""
NEEDS_A_PACKAGE = "def compute_score(solution_str, **_):\n    import none_such\n"


@pytest.mark.parametrize(
    ("source", "response", "ground_truth", "score", "error"),
    [
        (READS_NUMBERS, "#### 2", "2", 1.0, None),
        (READS_NUMBERS, "#### two", "2", 0.0, "ValueError: could not convert string to float: 'two'"),
        (READS_NUMBERS, "#### two", 2, 0.0, "ValueError: could not convert string to float: 'two'"),
        (READS_NUMBERS, "#### two", "x", None, "ValueError: could not convert string to float: 'two'"),
        (READS_NUMBERS.replace("== float(ground_truth)", "* 9e999"), "1", "0", None, "ValueError: the score is inf"),
        (NEEDS_A_PACKAGE, "2", "2", None, "ModuleNotFoundError: No module named 'none_such'"),
    ],
)
def test_grader_program_that_raises_tries_the_expected_answer(
    source: str, response: str, ground_truth: object, score: float | None, error: str | None
) -> None:
    said = run_grader(source, response, ground_truth)
    assert (said.get("score"), said.get("error")) == (score, error)


WRONG = judge_pb2.TEST_STATUS_WRONG_ANSWER


@pytest.mark.parametrize(
    ("verdict", "reason", "permanent"),
    [
        (ended(WRONG), "it ended without a score", True),
        (ended(WRONG, "1.0"), "it ended without a score", True),
        (ended(WRONG, '{"score": NaN}'), "it ended without a score", True),
        (ended(WRONG, '{"score": true}'), "it ended without a score", True),
        (ended(WRONG, '{"error": "KeyError: 1"}'), "KeyError: 1", True),
        (ended(judge_pb2.TEST_STATUS_TIMEOUT), "timeout", True),
        (ended(judge_pb2.TEST_STATUS_RUNTIME_ERROR, reason="exit code 1"), "runtime_error: exit code 1", True),
        # The judge could not tell how it ended: another attempt may.
        (ended(judge_pb2.TEST_STATUS_API_ERROR, reason="no CPU", judged=False), "api_error: no CPU", False),
        (judge_pb2.Verdict(), "api_error", False),
    ],
)
def test_without_a_score_an_answer_is_not_judged(verdict: judge_pb2.Verdict, reason: str, permanent: bool) -> None:
    found = answer_verdict(MATHS, GRADER, verdict)
    assert (found.judged, found.HasField("score"), found.permanent) == (False, False, permanent)
    scoreless = scoreless_test(found)
    assert scoreless is not None
    assert (scoreless.reason, scoreless.missing_module) == (f"the grader of gsm8k: {reason}", "")


@pytest.mark.parametrize(
    ("module", "package"), [('"sympy.core"', "sympy"), ('"not a name"', ""), ("1", ""), ("null", "")]
)
def test_grader_that_lacks_a_package_names_it(module: str, package: str) -> None:
    said = f'{{"error": "any words", "missing_module": {module}}}'
    scoreless = scoreless_test(answer_verdict(MATHS, GRADER, ended(WRONG, said)))
    assert scoreless is not None
    assert scoreless.missing_module == package


def test_scoreless_test_verdict_of_tests_returns_none() -> None:
    assert scoreless_test(ended(judge_pb2.TEST_STATUS_API_ERROR, reason="the grader of x", judged=False)) is None


@pytest.mark.parametrize(
    ("verdict", "score"),
    [
        (judge_pb2.Verdict(judged=True, pass_ratio=0.5), 0.5),
        (judge_pb2.Verdict(judged=True, pass_ratio=1, final_status=judge_pb2.FINAL_STATUS_EMPTY_OUTPUT), 0.0),
        (judge_pb2.Verdict(judged=True), None),
        (judge_pb2.Verdict(pass_ratio=0.5), None),
    ],
)
def test_beside_verls_grader_the_score_of_code_is_the_share_of_tests(
    verdict: judge_pb2.Verdict, score: float | None
) -> None:
    found = answer_verdict(CODE, verls_grader("mixed"), verdict)
    assert (found.score if found.HasField("score") else None) == score
    assert answer_verdict(CODE, None, verdict) is verdict


def test_a_dataset_names_its_grader(tmp_path: Path) -> None:
    (tmp_path / "g.py").write_text(GOOD.replace("compute_score", "mine"))
    assert read_dataset_grader(dataset(), tmp_path) is None
    grader = read_dataset_grader(dataset(grader={"path": "g.py", "name": "mine"}), tmp_path)
    assert grader is not None
    assert (grader.name, len(grader.sha256), grader.decides("codecontests")) == ("gsm8k", 64, True)
    verls = read_dataset_grader(dataset(grader={"path": "builtin:verl"}), tmp_path)
    assert verls is not None
    assert (verls.decides("openai/gsm8k"), verls.decides("codecontests")) == (True, False)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"def score(): pass", "g.py: it defines no function compute_score"),
        (b"def compute_score(", "g.py: not a Python file"),
        (b"\xff", "g.py: is not UTF-8"),
        (None, "g.py: no such file"),
    ],
)
def test_a_grader_that_cannot_be_used_is_named(tmp_path: Path, source: bytes | None, message: str) -> None:
    if source is not None:
        (tmp_path / "g.py").write_bytes(source)
    with pytest.raises(BadInputError, match=message):
        read_grader("d", "g.py", base_dir=tmp_path)


@pytest.mark.parametrize("said", [r'{"error": "\ud800"}', '{"score": 1' + "0" * 400 + "}", "[" * 100_000])
def test_malformed_output_of_a_grader_is_not_judged_with_a_reason(said: str) -> None:
    graded = make_graded_verdict(Grader("g", "", ""), ended(judge_pb2.TEST_STATUS_SUCCESS, said))
    assert not graded.judged
    assert graded.tests[0].reason.startswith("the grader of g: ")
