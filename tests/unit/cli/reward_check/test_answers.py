"""A check's answers deserve what they say, by running each program of theirs."""

import contextlib
import io
import json

from evalrun_cli.reward_check.answers import make_answers


def outputs(program: str, given: str) -> str:
    """Return what a program of an answer prints for an input; nothing if it divides by zero."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(program, "answer", "exec"), {"input": lambda: given})
    except ZeroDivisionError:
        return ""
    return printed.getvalue()


def test_each_answer_passes_the_share_of_tests_given_by_its_reward() -> None:
    for answer in make_answers(200):
        program = answer.solution.partition("```python\n")[2].partition("```")[0]
        tests = json.loads(answer.ground_truth)
        pairs = list(zip(tests["inputs"], tests["outputs"], strict=True))
        passed = sum(outputs(program, given.strip()) == wanted for given, wanted in pairs)
        assert passed / len(pairs) == answer.reward, answer


def test_answers_are_the_same_every_time_and_differ_from_each_other() -> None:
    answers = make_answers(1000)
    assert answers == make_answers(1000)
    assert len({answer.solution for answer in answers}) == 1000
    assert {answer.reward for answer in answers} == {0.0, 0.25, 0.5, 0.75, 1.0}
