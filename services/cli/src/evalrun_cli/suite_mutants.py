"""`evalrun data mutants`: writes reference solutions and mutants of them, as answers and labels in one file."""

import json
from collections.abc import Iterator
from pathlib import Path

from evalrun_data.mutants import mutants
from evalrun_data.readers import iter_source_rows, load_problems
from evalrun_data.records import Problem
from evalrun_data.responses import load_responses
from evalrun_data.rows import Row
from evalrun_runtime.atomic_files import atomic_file
from evalrun_runtime.exits import BadInputError, ExitCode


def write_mutants(
    problems: str, references: str | None, *, dataset: str | None, maximum: int, output: Path
) -> ExitCode:
    """Write each problem's reference and at most `maximum` mutants of it.

    Raises:
        BadInputError: a source cannot be used, there is no reference, or one is not Python. Nothing is written then.
    """
    known = load_problems(problems, dataset)
    found = _given(references, known) if references is not None else _published(problems, known)
    written, programs = 0, 0
    try:
        with atomic_file(output.resolve()) as file:  # the sources are read meanwhile, and may be this very file
            for problem, code in found:
                rows = _rows(problem, code, maximum)
                file.writelines(json.dumps(row).encode() + b"\n" for row in rows)
                written, programs = written + 1, programs + len(rows)
    except OSError as error:
        raise BadInputError(f"--output {output}: {error.strerror}") from error
    print(f"{written} references with {programs - written} mutants: {output}")  # noqa: T201 - the command's result
    return ExitCode.SUCCEEDED


def _rows(problem: Problem, code: str, maximum: int) -> list[dict[str, object]]:
    try:
        changed = mutants(code, maximum)
    except (SyntaxError, RecursionError, ValueError) as error:
        where = f"the reference of problem '{problem.problem_id}' of dataset '{problem.dataset}'"
        raise BadInputError(f"{where} is not a Python program: {error}: give a correct one by --references") from error
    key = {"dataset": problem.dataset, "problem_id": problem.problem_id, "mode": "standalone"}
    rows: list[dict[str, object]] = [{**key, "response": code, "correct": True}]
    rows += [{**key, "response": each.code, "mutant": each.change} for each in changed]
    return rows


def _given(references: str, problems: list[Problem]) -> Iterator[tuple[Problem, str]]:
    """Yield the first program that the file holds for each problem."""
    by_key = {problem.key: problem for problem in problems}
    for response in load_responses([references], problems):
        problem = by_key.pop((response.dataset, response.problem_id), None)
        if problem is not None:
            yield problem, problem.prompt + response.text if response.mode == "append" else response.text


def _published(source: str, problems: list[Problem]) -> Iterator[tuple[Problem, str]]:
    for name in dict.fromkeys(problem.dataset for problem in problems):
        for problem, row in iter_source_rows(source, name):
            yield problem, _reference(row, problem)


def _reference(row: Row, problem: Problem) -> str:
    """Return the solution that the row publishes, as a whole program."""
    if row.has("canonical_solution"):
        return problem.prompt + row.text("canonical_solution")
    if row.has("code"):
        return row.text("code").replace("\r\n", "\n")  # most of MBPP's programs have them, and Python reads them as LF
    raise row.error("publishes no solution (canonical_solution, code): give correct programs by --references")
