"""`evalrun verify`: makes every check of an attestation, judges completions again, and reports what was not checked."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from evalrun_attest.checks import (
    Finding,
    OpenedRun,
    Outcome,
    check_figures,
    check_openings,
    check_problems,
    check_rows,
    differs,
    matches,
    open_bundle,
    open_folder,
    parse_opened_problems,
    read_bundled_problems,
    unknown,
)
from evalrun_attest.commitments import Opening, parse_openings
from evalrun_attest.run_files import RUN_INFO, read_document
from evalrun_attest.trust import check_signer
from evalrun_cli.attestation.judging_again import JudgedAgain, judge_again
from evalrun_cli.attestation.requirement import read_lines, read_trust
from evalrun_cli.attestation.scratch import scratch_folder
from evalrun_cli.attestation.trust_files import NOBODY, TrustFiles
from evalrun_cli.local.options import LocalOptions
from evalrun_cli.local.workspace import WORK_ORDER, order_in
from evalrun_cli.printable_text import printable
from evalrun_data.records import Problem
from evalrun_runtime.exits import BadInputError, ExitCode

_MARKS = {
    Outcome.MATCHES: "ok",
    Outcome.DIFFERS: "DIFFERS",
    Outcome.UNKNOWN: "not checked",
    Outcome.NOTED: "note",
}
_CODES = {
    Outcome.MATCHES: ExitCode.SUCCEEDED,
    Outcome.DIFFERS: ExitCode.DIFFERS,
    Outcome.UNKNOWN: ExitCode.CANNOT_TELL,
}
_SHOWN = 10


@dataclass(frozen=True)
class VerifyOptions:
    """Options of a verification."""

    sample: int | None
    """Number of completions to judge again; None: all."""
    seed: int
    trust: TrustFiles = NOBODY
    openings: Path | None = None
    as_json: bool = False


@dataclass
class Report:
    """Results of the checks."""

    findings: list[Finding] = field(default_factory=list)
    judged_again: JudgedAgain | None = None

    def worst(self) -> Outcome:
        """Return DIFFERS if anything differs, else UNKNOWN if anything could not be checked."""
        outcomes = {finding.outcome for finding in self.findings}
        return next((each for each in (Outcome.DIFFERS, Outcome.UNKNOWN) if each in outcomes), Outcome.MATCHES)


def verify(place: Path, asked: VerifyOptions, options: LocalOptions) -> ExitCode:
    """Check a bundle, or the directory of an attested run.

    Raises:
        BadInputError: the place, a key or another file cannot be used, or this machine cannot judge.
    """
    if not place.exists():
        raise BadInputError(f"{place}: no such bundle or folder")
    trust = read_trust(asked.trust)
    openings = _openings(asked.openings)
    report = Report()
    with scratch_folder() as scratch:
        unpacked = scratch / "bundle"
        unpacked.mkdir()
        try:
            run, report.findings = open_folder(place) if place.is_dir() else open_bundle(place, unpacked)
        except OSError as error:
            raise BadInputError(f"{error.filename}: {error.strerror}") from error
        if run is not None:
            report.findings[:0] = check_signer(run.envelope, trust)
        if run is not None and report.worst() is not Outcome.DIFFERS:
            _check_content(run, place, asked, openings, options, scratch, report)
    _show(place, asked, report)
    return _CODES[report.worst()]


def _check_content(
    run: OpenedRun,
    place: Path,
    asked: VerifyOptions,
    openings: Mapping[tuple[str, str], Opening],
    options: LocalOptions,
    scratch: Path,
    report: Report,
) -> None:
    rows = check_rows(run, asked.sample, asked.seed)
    report.findings += rows.findings
    if report.worst() is Outcome.DIFFERS:
        return
    report.findings += check_figures(run, rows)
    report.findings += check_openings(run, openings)
    shown = parse_opened_problems(run, openings)
    problems: Mapping[str, Sequence[Problem]] = shown or read_bundled_problems(run)
    if not problems and place.is_dir():
        problems = _load_own_problems(place, report)
    if not shown:
        report.findings += check_problems(run, problems)
    if report.worst() is Outcome.DIFFERS or not problems:
        return
    again = report.judged_again = judge_again(run, rows.drawn, problems, scratch, options)
    report.findings += _make_findings(run, again, len(rows.drawn), asked.seed)


def _load_own_problems(place: Path, report: Report) -> dict[str, Sequence[Problem]]:
    """Return a run's problems from its own sources, if they are on this machine."""
    from evalrun_aggregator.start.datasets import load_datasets

    if not (place / WORK_ORDER).exists():
        return {}
    order = order_in(place.resolve())
    try:
        found = load_datasets(order.spec, order.base_dir, order.sources)
    except BadInputError as error:
        report.findings.append(unknown(f"the run's sources cannot be read here: {error}"))
        return {}
    return {each.spec.name: each.problems for each in found}


def _make_findings(run: OpenedRun, again: JudgedAgain, drawn: int, seed: int) -> list[Finding]:
    found = []
    firm = [each for each in again.differences if not each.may_vary]
    loose = [each for each in again.differences if each.may_vary]
    if again.same:
        found.append(
            matches(f"{again.same} of {drawn} drawn answers have the same verdict when judged again (seed {seed})")
        )
    found += [differs(f"{each.name}: {each.text}") for each in firm[:_SHOWN]]
    if len(firm) > _SHOWN:
        found.append(differs(f"and {len(firm) - _SHOWN} more verdicts"))
    found += [unknown(f"{each.name}: {each.text}: known to vary") for each in loose[:_SHOWN]]
    if again.differences:
        found.append(unknown(f"environments: {_environments(run, again)}"))
    if again.not_judged:
        found.append(unknown(f"{len(again.not_judged)} answers could not be judged here, e.g. {again.not_judged[0]}"))
    if again.left_out:
        few = ", ".join(again.left_out[:3])
        found.append(matches(f"{len(again.left_out)} drawn answers have no verdict to compare, e.g. {few}"))
    return found


def _environments(run: OpenedRun, again: JudgedAgain) -> str:
    recorded = read_document(run.folder / RUN_INFO)
    judges: Mapping[str, Any] = next(iter((recorded.get("judges") or {}).values()), {})
    return f"then {_environment(judges)}; here {_environment(again.judge)}"


def _environment(judge: Mapping[str, Any]) -> str:
    return (
        f"evalrun {judge.get('judge_version')}, Python {judge.get('python_version')}, "
        f"containment {judge.get('containment_level')}"
    )


def _openings(path: Path | None) -> dict[tuple[str, str], Opening]:
    return {} if path is None else parse_openings(read_lines(path), str(path))


_WORDS = {Outcome.MATCHES: "verified", Outcome.DIFFERS: "DIFFERS", Outcome.UNKNOWN: "cannot tell"}


def _show(place: Path, asked: VerifyOptions, report: Report) -> None:
    if asked.as_json:
        again = report.judged_again
        document = {
            "outcome": _WORDS[report.worst()].lower().replace(" ", "_"),
            "seed": asked.seed,
            "findings": [{"outcome": each.outcome.value, "text": each.text} for each in report.findings],
            "judged_again": None
            if again is None
            else {
                "same": again.same,
                "differences": [{"answer": e.name, "text": e.text, "may_vary": e.may_vary} for e in again.differences],
                "not_judged": list(again.not_judged),
                "left_out": list(again.left_out),
            },
        }
        click.echo(json.dumps(document, indent=2))
        return
    for finding in report.findings:
        click.echo(printable(f"{_MARKS[finding.outcome]:12}{finding.text}"))
    click.echo(printable(f"{place}: {_WORDS[report.worst()]}"))
