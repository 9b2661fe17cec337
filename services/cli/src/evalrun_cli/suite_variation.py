"""`evalrun data vary-tests`: writes problems whose tests compare a function with its reference on varied arguments."""

import json
from pathlib import Path

from evalrun_cli.suite_references import reference_programs
from evalrun_data.formats.record import make_problem_record
from evalrun_data.readers import load_problems
from evalrun_data.suites.varied_tests import vary_problem
from evalrun_runtime.atomic_files import atomic_file
from evalrun_runtime.exits import BadInputError, ExitCode


def write_varied_tests(problems: str, references: str | None, *, dataset: str | None, output: Path) -> ExitCode:
    """Write each problem with varied tests; problems whose tests call no Python function are left out.

    Raises:
        BadInputError: a source cannot be used, there is no reference, or no problem has such tests. Nothing is written
            then.
    """
    found = reference_programs(problems, references, load_problems(problems, dataset))
    written, others = 0, 0
    try:
        with atomic_file(output.resolve()) as file:
            for problem, program in found:
                varied = vary_problem(problem, program)
                if varied is None:
                    others += 1
                else:
                    file.write(json.dumps(make_problem_record(varied)).encode() + b"\n")
                    written += 1
            if not written:
                raise BadInputError(f"{problems}: no tests call a Python function: only those can be varied")
    except OSError as error:
        raise BadInputError(f"--output {output}: {error.strerror}") from error
    left = f", {others} left out: their tests call no Python function" if others else ""
    print(f"{written} problems with varied tests{left}: {output}")  # noqa: T201 - the command's result
    return ExitCode.SUCCEEDED
