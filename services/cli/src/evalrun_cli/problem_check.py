"""`evalrun data check`: lists the mistakes of files of problems, and writes near misses as records."""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from evalrun_cli.printable_text import printable
from evalrun_data.formats.record import record_of
from evalrun_data.problem_check import CheckedFile, check_file
from evalrun_runtime.exits import BadInputError, ExitCode


def check_files(files: Sequence[str], renamed: Sequence[str], output: Path | None) -> ExitCode:
    """Print what was found in each file. Raises BadInputError for a flag that cannot be used."""
    names = {}
    for each in renamed:
        theirs, sign, ours = each.partition("=")
        if not (sign and theirs and ours):
            raise BadInputError(f"--map {each}: write THEIRS=OURS, e.g. --map question=prompt")
        names[theirs] = ours
    checked = [check_file(file, names) for file in files]
    for file, found in zip(files, checked, strict=True):
        for line in (*found.mistakes, *_summary(file, found)):
            click.echo(printable(line))
    wrong = any(found.mistakes for found in checked)
    if output is not None and not wrong:
        rows = [json.dumps(record_of(problem), ensure_ascii=False) for found in checked for problem in found.problems]
        try:
            output.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        except OSError as error:
            raise BadInputError(f"--output {output}: {error.strerror}") from error
        click.echo(f"{output}: {len(rows)} problems written")
    return ExitCode.BAD_INPUT if wrong else ExitCode.SUCCEEDED


def _summary(file: str, found: CheckedFile) -> list[str]:
    said = f"{len(found.mistakes)} mistake{'' if len(found.mistakes) == 1 else 's'}"
    lines = [f"{file}: {len(found.problems)} of {found.rows} problems can be read, {said}"]
    if found.mapped:
        names = ", ".join(f"{theirs} as {ours}" for theirs, ours in found.mapped.items())
        lines.append(f"{file}: read {names}; evalrun judge and run need the records: write them with --output FILE")
    return lines
