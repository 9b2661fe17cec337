"""Tests made of a problem's own: the function is compared with a reference on varied arguments. Pure.

A mutant that passes the problem's tests and fails these is wrong, and not equivalent to its reference. Nothing runs
here: the published tests are run with the reference where all assertions run, which shows the arguments to vary.
"""

from dataclasses import replace
from importlib.resources import files
from typing import Final

from evalrun_data.records import AssertTests, CheckTest, Problem

_TEST: Final = """\
{module}

def check(candidate):
    check_varied(candidate, {program!r}, {tests!r}, {entry_point!r})
"""


def vary_problem(problem: Problem, program: str) -> Problem | None:
    """Return the problem with varied tests in the place of its own; None if its tests call no function.

    Args:
        problem: as published.
        program: a correct program.
    """
    truth = problem.ground_truth
    if isinstance(truth, CheckTest):
        tests = [truth.test, f"check({truth.entry_point})"]
    elif isinstance(truth, AssertTests):
        tests = [truth.test_setup_code, *truth.test_list]
        program = f"{truth.prelude}\n{program}"
    else:
        return None
    module = files("evalrun_data.suites").joinpath("varied_arguments.py").read_text()
    text = _TEST.format(module=module, program=program, tests=tests, entry_point=truth.entry_point)
    return replace(problem, ground_truth=CheckTest("", text, truth.entry_point))
