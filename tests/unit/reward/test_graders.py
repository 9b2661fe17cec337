"""Graders of the reward service: which samples they score, what they get, and what becomes of their answer."""

import json
from pathlib import Path

import pytest

from evalrun_proto.judge.v1 import judge_pb2
from evalrun_reward.graders import load_graders, make_grader_request, make_grader_result
from evalrun_reward.samples import make_judging
from evalrun_reward.wire import Outcome, Sample
from evalrun_runtime.exits import BadInputError

GOOD = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 1.0\n"
MATHS = Sample(response="import os", data_source="gsm8k", extra_info={"index": 1})


def test_an_answer_is_the_graders_input_and_no_program(tmp_path: Path) -> None:
    (tmp_path / "g.py").write_text(GOOD)
    grader = load_graders([f"gsm8k={tmp_path}/g.py"]).of(MATHS)
    assert grader is not None
    request = make_grader_request(grader, MATHS, "42", make_judging(None, 2.0)).whole
    (test,) = request.stdio.tests
    assert json.loads(test.input) == {
        "data_source": "gsm8k", "solution_str": "import os", "ground_truth": "42", "extra_info": {"index": 1},
    }  # fmt: skip
    assert (request.submission.text, request.limits.time_seconds) == (grader.program, 2.0)
    said = judge_pb2.TestResult(status=judge_pb2.TEST_STATUS_WRONG_ANSWER)
    said.stdout.text = '{"score": -0.5, "accepted": false}'
    result = make_grader_result("s", grader, judge_pb2.Verdict(judged=True, tests=[said]))
    assert (result.outcome, result.reward, result.accepted) == (Outcome.JUDGED, -0.5, False)
    said.stdout.text = ""
    result = make_grader_result("s", grader, judge_pb2.Verdict(judged=True, tests=[said]))
    assert (result.outcome, result.reward) == (Outcome.NOT_JUDGED, None)
    assert result.reason == "the grader of gsm8k: it ended without a score"


def test_graders_are_chosen_by_data_source(tmp_path: Path) -> None:
    (tmp_path / "g.py").write_text(GOOD)
    graders = load_graders([f"gsm8k={tmp_path}/g.py", "*=builtin:verl"])
    own, verls = graders.of(MATHS), graders.of(Sample(response="x", data_source="lighteval/MATH"))
    assert own is not None
    assert verls is not None
    assert "default_compute_score" in verls.program
    assert "default_compute_score" not in own.program
    # verl would run these uncontained, or ask a SandboxFusion server: their tests are the judge's.
    assert graders.of(Sample(response="x", data_source="codecontests")) is None
    assert graders.of(Sample(response="x", dataset="humaneval", problem_id="HumanEval/0")) is None


@pytest.mark.parametrize(
    ("given", "source", "message"),
    [
        ("gsm8k", GOOD, "write DATA_SOURCE=FILE"),
        ("gsm8k={}/none.py", GOOD, "no such file"),
        ("gsm8k={}/g.py", "def score(): pass", "defines no function compute_score"),
        ("gsm8k={}/g.py", "def compute_score(", "not a Python file"),
    ],
)
def test_a_grader_that_cannot_be_used_is_named(tmp_path: Path, given: str, source: str, message: str) -> None:
    (tmp_path / "g.py").write_text(source)
    with pytest.raises(BadInputError, match=message):
        load_graders([given.format(tmp_path)])
