"""Users' graders in a real sandbox: what they return, and what happens when they misbehave."""

from pathlib import Path

import pytest
from builders.reward.service import ECHO, TESTS, post
from builders.reward.stack import reward_stack

pytestmark = pytest.mark.timeout(180)

GRADER = """
import os, sys, time
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    print("noise", solution_str)
    if solution_str == "hang":
        while True: pass
    if solution_str == "exit":
        os._exit(0)
    if solution_str == "raise":
        raise KeyError(solution_str)
    if solution_str == "fork":
        while True:
            try: os.fork()
            except OSError: break
        while True: pass
    if solution_str == "print":
        while True: print("x" * 1_000_000)  # gigabytes
    if solution_str == "nan":
        return float("nan")
    if solution_str == "dict":
        return {"score": 0.25, "acc": True}
    if solution_str == "tuple":
        return (0.75, "more")
    return 1.0 if solution_str == ground_truth else -1.0
"""
ASYNC = "async def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 0.5\n"
SCORES = {
    "42": (1.0, True),
    "41": (-1.0, False),
    "dict": (0.25, True),
    "tuple": (0.75, False),
    "raise": (0.0, False),
    "nan": (0.0, False),
}  # it handles the expected answer
WITHOUT = {
    # A busy machine may leave open whether the limit was reached.
    "hang": "the grader of maths", "exit": "without a score", "print": "the grader of maths",
    "fork": "the grader of maths",
}  # fmt: skip


async def test_a_grader_that_misbehaves_leaves_its_own_sample_not_judged(tmp_path: Path) -> None:
    (tmp_path / "maths.py").write_text(GRADER)
    (tmp_path / "later.py").write_text(ASYNC)
    flags = ["--grader", f"maths={tmp_path}/maths.py", "--grader", f"later={tmp_path}/later.py"]
    flags += ["--time-limit", "0.3", "--attempts", "1"]
    answers = [*SCORES, *WITHOUT]
    samples = [{"id": text, "response": text, "ground_truth": "42", "data_source": "maths"} for text in answers]
    samples.append({"id": "later", "response": "x", "data_source": "later"})
    async with reward_stack(tmp_path, reward_arguments=flags) as (service,):
        code = {"id": "code", "response": ECHO, "ground_truth": TESTS, "data_source": "codecontests"}
        status, body, _ = await post(service.address, "/v1/rewards", {"samples": [*samples, code]})
    assert status == 200
    found = {result["id"]: result for result in body["results"]}
    scored = {name: (found[name]["reward"], found[name]["accepted"]) for name in SCORES}
    assert scored == SCORES
    assert found["later"]["reward"] == 0.5
    assert found["code"]["reward"] == 1.0  # and the others go on
    for name, reason in WITHOUT.items():
        assert (found[name]["outcome"], found[name]["reward"]) == ("not_judged", None), found[name]
        assert reason in found[name]["reason"], found[name]
