"""Reference solutions of problems: those that a source publishes, or the user's own."""

from collections.abc import Iterator, Sequence

from evalrun_data.readers import iter_source_rows
from evalrun_data.records import Problem
from evalrun_data.references import read_published_reference
from evalrun_data.responses import load_responses
from evalrun_data.rows import Row


def reference_programs(
    source: str, references: str | None, problems: Sequence[Problem]
) -> Iterator[tuple[Problem, str]]:
    """Yield problems with a correct program for each.

    Args:
        source: source of the problems.
        references: programs of which the first of each problem is correct; None: those that the source publishes.
        problems: the wanted problems.

    Raises:
        BadInputError: a source cannot be used, or publishes no solution.
    """
    return _iter_given(references, problems) if references is not None else _iter_published(source, problems)


def _iter_given(references: str, problems: Sequence[Problem]) -> Iterator[tuple[Problem, str]]:
    """Yield the first program that the file holds for each problem."""
    by_key = {problem.key: problem for problem in problems}
    for response in load_responses([references], problems):
        problem = by_key.pop((response.dataset, response.problem_id), None)
        if problem is not None:
            yield problem, problem.prompt + response.text if response.mode == "append" else response.text


def _iter_published(source: str, problems: Sequence[Problem]) -> Iterator[tuple[Problem, str]]:
    for name in dict.fromkeys(problem.dataset for problem in problems):
        for problem, row in iter_source_rows(source, name):
            yield problem, _reference(row, problem)


def _reference(row: Row, problem: Problem) -> str:
    """Return the solution that the row publishes, as a whole program."""
    reference = read_published_reference(row, problem)
    if reference is None:
        raise row.error("publishes no solution (canonical_solution, code): give correct programs by --references")
    return reference
