"""`evalrun data check`: lists the mistakes of files of problems, and writes the problems as records."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click

from evalrun_cli.local.options import LocalOptions
from evalrun_cli.printable_text import printable
from evalrun_data.formats.record import make_problem_record
from evalrun_data.problem_check import CheckedFile, check_file, idle_program
from evalrun_data.records import Problem
from evalrun_data.responses import load_responses
from evalrun_runtime.exits import BadInputError, ExitCode

IDLE: Final = 0
"""Sample of the program that does nothing."""
REFERENCE: Final = 1
"""Sample of the reference."""


def check_files(
    files: Sequence[str],
    renamed: Sequence[str],
    output: Path | None,
    references: str | None,
    options: LocalOptions | None,
) -> ExitCode:
    """Check each file and print the findings.

    Args:
        files: files of problems.
        renamed: columns in the form of `--map`.
        output: gets the problems as records, if there is no mistake.
        references: a file with correct programs as responses; None: those that the files publish.
        options: how programs are judged on this machine; None: no program is run.

    Raises:
        BadInputError: a flag cannot be used, or programs cannot be run here.
    """
    names = _parse_names(renamed)
    checked = [check_file(file, names) for file in files]
    if options is not None:
        for found in checked:
            _add_mistakes_of_runs(found, _read_references(references, found.problems), options)
    for file, found in zip(files, checked, strict=True):
        for line in (*found.mistakes, *_summary(file, found)):
            click.echo(printable(line))
    wrong = any(found.mistakes for found in checked)
    if output is not None and not wrong:
        rows = [
            json.dumps(make_problem_record(problem), ensure_ascii=False)
            for found in checked
            for problem in found.problems
        ]
        try:
            output.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        except OSError as error:
            raise BadInputError(f"--output {output}: {error.strerror}") from error
        click.echo(f"{output}: {len(rows)} problems written")
    return ExitCode.BAD_INPUT if wrong else ExitCode.SUCCEEDED


def _parse_names(renamed: Sequence[str]) -> dict[str, str]:
    names = {}
    for each in renamed:
        theirs, sign, ours = each.partition("=")
        if not (sign and theirs and ours):
            raise BadInputError(f"--map {each}: write THEIRS=OURS, e.g. --map question=prompt")
        names[theirs] = ours
    return names


def _read_references(references: str | None, problems: Sequence[Problem]) -> Mapping[tuple[str, str], str]:
    """Return the first program that a file holds for each problem. Raises BadInputError."""
    if references is None:
        return {}
    prompts = {problem.key: problem.prompt for problem in problems}
    found: dict[tuple[str, str], str] = {}
    for response in load_responses([references], problems):
        key = response.dataset, response.problem_id
        found.setdefault(key, prompts[key] + response.text if response.mode == "append" else response.text)
    return found


def _add_mistakes_of_runs(checked: CheckedFile, given: Mapping[tuple[str, str], str], options: LocalOptions) -> None:
    """Judge each problem's reference and a program that does nothing, and add the mistakes found.

    A problem that has a mistake already is left out, because its runs would only show the same mistake.
    """
    broken = {row for row, _ in checked.findings}
    by_key = {each.problem.key: each for each in checked.found if each.row not in broken}
    answers = []
    for key, each in by_key.items():
        programs = {IDLE: idle_program(each.problem), REFERENCE: given.get(key, each.reference)}
        answers += [
            {"dataset": key[0], "problem_id": key[1], "sample": sample, "mode": "standalone", "response": program}
            for sample, program in programs.items()
            if program is not None
        ]
    if not answers:
        return
    for row in _judge_answers([each.problem for each in by_key.values()], answers, options):
        each = by_key[row["dataset"], row["problem_id"]]
        says = _find_mistake(row)
        if says is not None:
            checked.add(each.row, f"{each.where}: problem '{each.problem.problem_id}': {says}")


def _judge_answers(
    problems: Sequence[Problem], answers: Sequence[object], options: LocalOptions
) -> list[dict[str, Any]]:
    """Judge the completions in a temporary run, and return the rows of its results."""
    # The import is made here, because it loads the services' clients.
    from evalrun_cli.local.run_session import RunSession
    from evalrun_cli.local.runs import judge_files
    from evalrun_cli.terminal import open_console

    with TemporaryDirectory(prefix="evalrun-check-") as folder:
        files = {"problems": [make_problem_record(problem) for problem in problems], "answers": answers}
        for name, rows in files.items():
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (Path(folder) / f"{name}.jsonl").write_text(text, encoding="utf-8")
        session = RunSession(console=open_console(quiet=True), progress=open_console(stderr=True, quiet=True))
        outcome = judge_files(
            [f"{folder}/problems.jsonl"],
            [f"{folder}/answers.jsonl"],
            output=Path(folder) / "judged",
            samples="AsGiven",
            options=options,
            session=session,
        )
        if outcome.summary is None:
            raise BadInputError(f"the programs were not judged: {outcome.problem}; --read-only runs none")
        with (outcome.directory / "results.jsonl").open(encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]


def _find_mistake(row: Mapping[str, Any]) -> str | None:
    """Return the mistake in the problem that a verdict reveals, or None."""
    if row["sample"] == IDLE:
        return "its tests accept a program that does nothing, so wrong answers pass" if row["accepted"] else None
    if not row["judged"]:
        return f"its reference cannot be judged: {row['not_judged_reason']}"
    if row["accepted"]:
        return None
    failed: Mapping[str, Any] = next((test for test in row["tests"] if test["status"] != "success"), {})
    because = failed.get("reason") or failed.get("stderr", "").strip().rpartition("\n")[2]
    number = f" test {failed['case_index']}:" if len(row["tests"]) > 1 else ""
    status = row["final_status"].replace("_", " ")
    return f"its reference fails:{number} {status}" + (f", {because}" if because else "")


def _summary(file: str, found: CheckedFile) -> list[str]:
    said = f"{len(found.mistakes)} mistake{'' if len(found.mistakes) == 1 else 's'}"
    lines = [f"{file}: {len(found.problems)} of {found.rows} problems can be read, {said}"]
    if found.mapped:
        names = ", ".join(f"{theirs} as {ours}" for theirs, ours in found.mapped.items())
        lines.append(f"{file}: read {names}; evalrun judge and run need the records: write them with --output FILE")
    return lines
