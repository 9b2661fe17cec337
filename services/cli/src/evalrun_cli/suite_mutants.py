"""`evalrun data mutants`: writes reference solutions and mutants of them, as responses and labels in one file."""

import json
from pathlib import Path

from evalrun_cli.suite_references import reference_programs
from evalrun_data.readers import load_problems
from evalrun_data.records import Problem
from evalrun_data.suites.mutants import mutants
from evalrun_runtime.atomic_files import atomic_file
from evalrun_runtime.exits import BadInputError, ExitCode


def write_mutants(
    problems: str, references: str | None, *, dataset: str | None, maximum: int, output: Path
) -> ExitCode:
    """Write each problem's reference and at most `maximum` mutants of it.

    Raises:
        BadInputError: a source cannot be used, there is no reference, or one is not Python. Nothing is written then.
    """
    found = reference_programs(problems, references, load_problems(problems, dataset))
    written, programs = 0, 0
    try:
        # The sources are read meanwhile, and may be this very file.
        with atomic_file(output.resolve()) as file:
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
