"""Users' graders: what is run, and what its ends mean. The programs themselves are run by integration tests."""

import json
from pathlib import Path

import pytest

from evalrun.judge.v1 import judge_pb2
from evalrun_reward.graders import Grader, graded_request, graded_result, grader_program, load_graders
from evalrun_reward.samples import judging_of
from evalrun_reward.wire import Outcome, Sample
from evalrun_runtime.exits import BadInputError

GOOD = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 1.0\n"
GRADER = Grader("gsm8k", grader_program(GOOD, "g.py"))


def test_an_answer_is_the_graders_input_and_no_program() -> None:
    sample = Sample(response="import os", data_source="gsm8k")
    request = graded_request(GRADER, sample, "42", judging_of(None, 2.0)).whole
    (test,) = request.stdio.tests
    assert json.loads(test.input) == {
        "data_source": "gsm8k", "solution_str": "import os", "ground_truth": "42", "extra_info": {},
    }  # fmt: skip
    assert (request.limits.time_seconds, request.limits.output_kib, request.suite_digest) == (2.0, 1024, b"")


def ended(status: int, stdout: str = "", reason: str = "") -> judge_pb2.Verdict:
    test = judge_pb2.TestResult(status=judge_pb2.TestStatus.ValueType(status), reason=reason)
    test.stdout.text = stdout
    return judge_pb2.Verdict(judged=True, tests=[test])


def test_a_score_is_the_reward() -> None:
    result = graded_result("s", GRADER, ended(judge_pb2.TEST_STATUS_WRONG_ANSWER, '{"score": -0.5, "accepted": false}'))
    assert (result.outcome, result.reward, result.accepted) == (Outcome.JUDGED, -0.5, False)


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (ended(judge_pb2.TEST_STATUS_WRONG_ANSWER), "it ended without a score"),
        (ended(judge_pb2.TEST_STATUS_WRONG_ANSWER, "1.0"), "it ended without a score"),
        (ended(judge_pb2.TEST_STATUS_TIMEOUT), "timeout"),
        (
            ended(judge_pb2.TEST_STATUS_RUNTIME_ERROR, reason="exit code 1"),
            "runtime_error: exit code 1",
        ),
        (ended(judge_pb2.TEST_STATUS_WRONG_ANSWER, '{"error": "KeyError: 1"}'), "KeyError: 1"),
        (judge_pb2.Verdict(), "api_error"),
    ],
)
def test_without_a_score_there_is_no_reward(verdict: judge_pb2.Verdict, reason: str) -> None:
    result = graded_result("s", GRADER, verdict)
    assert (result.outcome, result.reward) == (Outcome.NOT_JUDGED, None)
    assert result.reason == f"the grader of gsm8k: {reason}"


def test_graders_are_read_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "g.py").write_text(GOOD)
    graders = load_graders([f"openai/gsm8k={tmp_path}/g.py"])
    assert graders.of(Sample(response="x", data_source="openai/gsm8k")) is not None
    assert graders.of(Sample(response="x", data_source="codecontests")) is None


@pytest.mark.parametrize(
    ("given", "source", "message"),
    [
        ("gsm8k", GOOD, "write DATA_SOURCE=FILE"),
        ("gsm8k={}/none.py", GOOD, "No such file"),
        ("gsm8k={}/g.py", "def score(): pass", "defines no function compute_score"),
        ("gsm8k={}/g.py", "def compute_score(", "not a Python file"),
    ],
)
def test_a_grader_that_cannot_be_used_is_named(tmp_path: Path, given: str, source: str, message: str) -> None:
    (tmp_path / "g.py").write_text(source)
    with pytest.raises(BadInputError, match=message):
        load_graders([given.format(tmp_path)])
