"""Checks of an attestation against the files that it is about. Each returns findings; none of them judges a program."""

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from evalrun_attest.archive import ArchiveError, digest_file, read_members, unpack
from evalrun_attest.bundle import RowRoots
from evalrun_attest.commitments import Opening, commit, compute_root
from evalrun_attest.envelope import EnvelopeError, encode_statement
from evalrun_attest.merkle import MerkleTree
from evalrun_attest.run_files import (
    ATTESTATION,
    RESULTS,
    RUN_INFO,
    SUMMARY,
    VERDICTS,
    commitments_file,
    grader_file,
    problems_file,
    read_document,
    read_lines,
)
from evalrun_attest.signatures import SignedStatement, parse_signed
from evalrun_attest.statement import AttestedRun, RowSet, StatementError, completion_row, parse_statement
from evalrun_data.digest import digest_problems
from evalrun_data.formats.record import parse_record
from evalrun_data.records import Problem
from evalrun_data.rows import Row
from evalrun_results.metrics.accumulator import MetricsAccumulator
from evalrun_results.metrics.run_options import metric_options
from evalrun_results.outputs.stopped_early import StoppedEarly, apply_anytime_intervals
from evalrun_results.stored_rows import parse_result
from evalrun_runtime.exits import BadInputError

LARGEST_ATTESTATION: Final = 256 << 20
"""Maximum bytes that are read before anything is known about the signer."""
_TOLERANCE: Final = 1e-9
"""Relative difference of numbers that another version of numpy may cause."""


class Outcome(StrEnum):
    """Outcome of a check."""

    MATCHES = "matches"
    DIFFERS = "differs"
    UNKNOWN = "unknown"
    """The check could not be made."""
    NOTED = "noted"
    """Nobody can check this without a network; it decides nothing."""

    @property
    def is_problem(self) -> bool:
        """Whether a run with such an outcome is not verified."""
        return self in (Outcome.DIFFERS, Outcome.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Finding:
    """Outcome of a check, in words."""

    outcome: Outcome
    text: str


def matches(text: str) -> Finding:
    """Return the finding that something is as the statement says."""
    return Finding(Outcome.MATCHES, text)


def differs(text: str) -> Finding:
    """Return the finding that something is not as the statement says."""
    return Finding(Outcome.DIFFERS, text)


def unknown(text: str) -> Finding:
    """Return the finding that something could not be checked."""
    return Finding(Outcome.UNKNOWN, text)


@dataclass(frozen=True)
class OpenedRun:
    """Files and statement of a run whose signature is that of the key or the certificate that it names."""

    folder: Path
    envelope: SignedStatement
    attested: AttestedRun


def open_bundle(path: Path, folder: Path) -> tuple[OpenedRun | None, list[Finding]]:
    """Unpack a bundle into an empty folder; the run is None if its statement cannot be believed in at all.

    Raises:
        OSError: the bundle cannot be read, or the folder cannot be written.
    """
    with path.open("rb") as archive:
        try:
            members = list(read_members(archive))
            if not members or members[0].name != ATTESTATION or members[0].size > LARGEST_ATTESTATION:
                raise ArchiveError(f"it does not begin with {ATTESTATION}")
            archive.seek(members[0].start)
            content = archive.read(members[0].size)
            opened, findings = _open_run(content, folder)
            if opened is None:
                return None, findings
            packed = [file for file in opened.attested.files.values() if file.packed_sha256 is not None]
            if [member.name for member in members[1:]] != [f"{file.name}.gz" for file in packed]:
                raise ArchiveError("its files are not those that the statement names")
            for member, file in zip(members[1:], packed, strict=True):
                target = folder / file.name
                target.parent.mkdir(parents=True, exist_ok=True)
                if unpack(archive, member, target, file.length) != (file.packed_sha256, file.sha256):
                    findings.append(differs(f"{file.name} was changed"))
        except ArchiveError as error:
            return None, [differs(f"{path}: {error}")]
    (folder / ATTESTATION).write_bytes(content)
    if all(finding.outcome is Outcome.MATCHES for finding in findings):
        findings.append(matches(f"{len(packed)} files have the digests of the statement"))
    absent = [file.name for file in opened.attested.files.values() if file.packed_sha256 is None]
    if absent:
        findings.append(matches(f"attested and left out of the bundle: {', '.join(absent)}"))
    return opened, findings


def open_folder(folder: Path) -> tuple[OpenedRun | None, list[Finding]]:
    """Open a run's own folder, and check every file of its outputs.

    Raises:
        BadInputError: it has no attestation.
        OSError: a file cannot be read.
    """
    try:
        content = (folder / ATTESTATION).read_bytes()
    except FileNotFoundError as error:
        raise BadInputError(f"{folder}: no {ATTESTATION}: evalrun attest writes one") from error
    opened, findings = _open_run(content, folder)
    if opened is None:
        return None, findings
    checked = 0
    for file in opened.attested.files.values():
        path = folder / file.name
        if not path.is_file():
            # What only bundles hold is computed from the rest, or read from the run's own sources.
            if not file.name.startswith(("problems/", "graders/", "commitments/")) and file.name != VERDICTS:
                findings.append(differs(f"{file.name} is missing"))
        elif path.stat().st_size != file.length or digest_file(path) != file.sha256:
            findings.append(differs(f"{file.name} was changed"))
        else:
            checked += 1
    findings.append(matches(f"{checked} files have the digests of the statement"))
    return opened, findings


def _open_run(content: bytes, folder: Path) -> tuple[OpenedRun | None, list[Finding]]:
    try:
        envelope = parse_signed(content)
        if not envelope.is_signed:
            return None, [differs("the signature is not that of the statement and its key")]
        attested = parse_statement(envelope.statement())
    except (EnvelopeError, StatementError) as error:
        return None, [differs(f"{ATTESTATION}: {error}")]
    return OpenedRun(folder, envelope, attested), []


@dataclass
class CheckedRows:
    """Outcome of reading all rows of a run once."""

    findings: list[Finding] = field(default_factory=list)
    totals: MetricsAccumulator = field(default_factory=MetricsAccumulator)
    drawn: list[Mapping[str, Any]] = field(default_factory=list)
    """Rows to judge again, in their order."""


def check_rows(run: OpenedRun, wanted: int | None, seed: int) -> CheckedRows:
    """Check the roots of a run's rows, and draw some.

    Args:
        run: the run.
        wanted: number of rows to draw; None draws all.
        seed: chosen by the verifier, so that the signer cannot guess which rows are drawn.
    """
    checked = CheckedRows()
    whole = (run.folder / RESULTS).is_file()
    path = run.folder / (RESULTS if whole else VERDICTS)
    count = run.attested.rows["results"].count
    # Random numbers of no secrecy: the seed itself is what the signer does not know.
    draw = None if wanted is None or wanted >= count else {*random.Random(seed).sample(range(count), wanted)}  # noqa: S311
    roots, hidden = RowRoots(), {name: MerkleTree() for name in ("completions", "verdicts")}
    number = -1
    try:
        for number, (line, row) in enumerate(read_lines(path)):
            if whole:
                roots.add(line, row)
            else:
                hidden["completions"].add(encode_statement(completion_row(row)))
                hidden["verdicts"].add(line)
            checked.totals.add(parse_result(Row(row, path.name, number + 1)))
            if draw is None or number in draw:
                checked.drawn.append(row)
    except (BadInputError, ValueError) as error:
        checked.findings.append(differs(f"{path.name}, row {number + 2}: {error}"))
        return checked
    found = roots.sets() if whole else {name: RowSet(tree.count, tree.root()) for name, tree in hidden.items()}
    for name, rows in found.items():
        if rows != run.attested.rows[name]:
            checked.findings.append(differs(f"the rows of {path.name} are not those of the statement ({name})"))
    if not checked.findings:
        checked.findings.append(matches(f"{number + 1} rows have the Merkle roots of the statement"))
    return checked


def check_figures(run: OpenedRun, rows: CheckedRows) -> list[Finding]:
    """Compute metrics, intervals and counts from the rows, and compare them with the statement's."""
    summary, run_info = read_document(run.folder / SUMMARY), read_document(run.folder / RUN_INFO)
    computed = rows.totals.finish(metric_options(run_info))
    if (stopped := summary.get("stoppedEarly")) is not None:
        early = StoppedEarly.parse(stopped)
        totals = rows.totals.datasets
        computed = {name: apply_anytime_intervals(each, totals[name], early, name) for name, each in computed.items()}
    findings = []
    for name, said in run.attested.figures.items():
        found = computed[name].summary() if name in computed else {}
        wrong = [
            f"{part}.{key}" if key else part
            for part in ("coverage", "counts", "metrics")
            for key in _unequal_keys(said.get(part), found.get(part))
        ]
        if wrong:
            findings.append(differs(f"{name}: the rows do not give {', '.join(sorted(wrong)[:5])}"))
        recorded = (summary.get("datasets") or {}).get(name) or {}
        if any(recorded.get(part) != said.get(part) for part in ("coverage", "counts", "metrics")):
            findings.append(differs(f"{name}: {SUMMARY} says other figures than the statement"))
    if not findings:
        findings.append(matches(f"metrics and intervals of {', '.join(run.attested.figures)} follow from the rows"))
    return findings


def _unequal_keys(said: object, found: object) -> list[str]:
    if isinstance(said, Mapping) and isinstance(found, Mapping):
        return [str(key) for key in {*said, *found} if not is_close(said.get(key), found.get(key))]
    return [] if is_close(said, found) else [""]


def is_close(first: object, second: object) -> bool:
    """Return whether two JSON values are equal, numbers up to rounding."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(is_close(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(is_close, first, second))
    numbers = [value for value in (first, second) if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == 2:
        return math.isclose(*numbers, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return first == second


def read_bundled_problems(run: OpenedRun) -> dict[str, list[Problem]]:
    """Return the problems that the run's bundle holds, by dataset. Raises BadInputError."""
    found = {}
    for name in run.attested.datasets:
        path = run.folder / problems_file(name)
        if path.is_file():
            rows = enumerate(read_lines(path), 1)
            found[name] = [parse_record(Row(row, path.name, number), name) for number, (_, row) in rows]
    return found


def check_problems(run: OpenedRun, problems: Mapping[str, Iterable[Problem]]) -> list[Finding]:
    """Check that these problems were used to judge the run."""
    findings = []
    recorded = read_document(run.folder / RUN_INFO).get("datasets") or {}
    for name, said in run.attested.datasets.items():
        if (recorded.get(name) or {}).get("records_sha256") != said.records_sha256:
            findings.append(differs(f"{name}: {RUN_INFO} names other problems than the statement"))
        grader = run.attested.files.get(grader_file(name))
        if grader is not None and grader.sha256 != (recorded.get(name) or {}).get("grader_sha256"):
            findings.append(differs(f"{name}: the grader is not the one that scored the run"))
        if name not in problems:
            hidden = "its tests are hidden" if said.commitments is not None else "its problems are not here"
            findings.append(unknown(f"{name}: {hidden}: verdicts cannot be judged again"))
        elif digest_problems(problems[name]) != said.records_sha256:
            findings.append(differs(f"{name}: these are not the problems by which the run was judged"))
        else:
            findings.append(matches(f"{name}: {said.problems} problems, tests included, are those of the run"))
    return findings


def check_openings(run: OpenedRun, openings: Mapping[tuple[str, str], Opening]) -> list[Finding]:
    """Check that disclosed problems match the bundle's commitments.

    Args:
        run: of a bundle without tests.
        openings: by dataset and problem.
    """
    findings = []
    for name, said in run.attested.datasets.items():
        path = run.folder / commitments_file(name)
        if said.commitments is None or not path.is_file():
            continue
        rows = [row for _, row in read_lines(path)]
        if compute_root(rows) != said.commitments:
            findings.append(differs(f"{name}: the commitments are not those of the statement"))
        shown = [(row, openings[key]) for row in rows if (key := (name, str(row.get("problem_id")))) in openings]
        wrong = [str(row["problem_id"]) for row, each in shown if commit(each.record, each.salt) != row["commitment"]]
        if wrong:
            findings.append(differs(f"{name}: {', '.join(wrong[:5])}: not the tests that were committed to"))
        elif shown:
            findings.append(matches(f"{name}: {len(shown)} of {len(rows)} hidden problems are those committed to"))
    return findings


def parse_opened_problems(run: OpenedRun, openings: Mapping[tuple[str, str], Opening]) -> dict[str, list[Problem]]:
    """Return the problems that openings show, by dataset. Raises BadInputError."""
    found: dict[str, list[Problem]] = {}
    for number, ((name, _), opening) in enumerate(openings.items(), 1):
        if name in run.attested.datasets:
            found.setdefault(name, []).append(parse_record(Row(opening.record, "openings", number), name))
    return found
