"""Reference solutions that rows of problem files publish."""

import ast
from typing import Final

from evalrun_data.families.asserts import AssertTests
from evalrun_data.families.check import CheckTest
from evalrun_data.records import Problem
from evalrun_data.rows import Row

WHOLE_PROGRAMS: Final = ("code", "reference_solution")
"""Fields with a complete program; `canonical_solution` may also continue the prompt."""


def read_published_reference(row: Row, problem: Problem) -> str | None:
    """Return the solution that a row publishes, as a whole program; None if the row publishes no solution."""
    if row.has("canonical_solution"):
        solution = row.text("canonical_solution")
        return solution if _is_whole(solution, problem) else problem.prompt + solution
    for name in WHOLE_PROGRAMS:
        if row.has(name):
            # Most of MBPP's programs have CR LF, which Python reads as LF.
            return row.text(name).replace("\r\n", "\n")
    return None


def _is_whole(solution: str, problem: Problem) -> bool:
    """Return whether a solution needs no prompt before it."""
    tests = problem.ground_truth
    if not isinstance(tests, AssertTests | CheckTest) or problem.language != "python":
        return not isinstance(tests, CheckTest)
    try:
        body = ast.parse(solution).body
    except (SyntaxError, ValueError, RecursionError):
        return False
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == tests.entry_point
        for node in body
    )
