"""The in-toto statement about a run: its files by digest, its rows by Merkle roots, and its figures. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from evalrun_results.samples import JsonObject

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://evalrun.dev/attestation/eval-run/v1"

ROW_SETS: Final = ("results", "completions", "verdicts")
"""Sets of rows with a Merkle root: whole rows of results.jsonl, the completions alone, and rows without tests' texts.
"""

_CONTENT_OF_TESTS: Final = ("input", "expected_output", "stdout", "stderr", "compile_stderr", "reason")
_COMPLETION: Final = (
    "dataset", "problem_id", "sample", "turn", "repeat", "model", "response", "finish_reason", "output_tokens",
)  # fmt: skip


class StatementError(Exception):
    """The statement is not about a run; the message says why."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of a run's outputs."""

    name: str
    sha256: str
    length: int
    """Length in bytes."""
    packed_sha256: str | None
    """Digest of the compressed file in the bundle; None if the bundle leaves it out."""


@dataclass(frozen=True, slots=True)
class RowSet:
    """Rows of a run, in the order of results.jsonl."""

    count: int
    root: str
    """Merkle root by RFC 6962, hexadecimal."""


@dataclass(frozen=True, slots=True)
class AttestedDataset:
    """Problems that a run was judged by."""

    problems: int
    records_sha256: str
    """Digest of the problems with their tests, as run_info.json has it."""
    commitments: RowSet | None
    """Salted commitments to hidden problems; None if the bundle has the problems."""


def completion_row(row: Mapping[str, Any]) -> JsonObject:
    """Return the part of a result's row that the model made."""
    return {name: row.get(name) for name in _COMPLETION}


def verdict_row(row: Mapping[str, Any]) -> JsonObject:
    """Return a result's row without quotations of the tests, so that it can be shown where tests are hidden."""
    tests = [
        {name: value for name, value in test.items() if name not in _CONTENT_OF_TESTS}
        for test in row.get("tests") or ()
    ]
    return {**row, "tests": tests}


def make_statement(
    summary: Mapping[str, Any],
    run_info: Mapping[str, Any],
    files: Sequence[File],
    rows: Mapping[str, RowSet],
    datasets: Mapping[str, AttestedDataset],
) -> dict[str, Any]:
    """Return the statement about a run.

    Args:
        summary: content of summary.json.
        run_info: content of run_info.json.
        files: all output files, in order.
        rows: by name of `ROW_SETS`.
        datasets: by name.
    """
    spec = run_info.get("spec") or {}
    subject = [
        {
            "name": file.name,
            "digest": {"sha256": file.sha256},
            "annotations": {"length": file.length, "packedSha256": file.packed_sha256},
        }
        for file in files
    ]
    predicate = {
        "run": {
            "name": run_info.get("run"),
            "startedAt": run_info.get("started_at"),
            "endedAt": run_info.get("ended_at"),
            "state": summary.get("state"),
            "partial": summary.get("partial"),
            "stoppedEarly": summary.get("stoppedEarly"),
        },
        "model": {
            "path": (spec.get("model") or {}).get("path"),
            "engines": [
                {"models": each.get("models"), "engine": each.get("engine"), "loadFormat": each.get("load_format")}
                for each in run_info.get("replicas") or ()
            ],
            "images": run_info.get("images"),
        },
        "protocol": spec.get("protocol"),
        "thresholds": {"gates": spec.get("gates") or [], "decision": summary.get("gate")},
        "judge": {
            "versions": run_info.get("versions"),
            "judges": [
                {name: each.get(name) for name in ("judge_version", "backend", "containment_level", "python_version")}
                for each in (run_info.get("judges") or {}).values()
            ],
            "containmentLevels": run_info.get("containment_levels"),
        },
        "datasets": {
            name: {
                **asdict(attested),
                "coverage": figures.get("coverage"),
                "metrics": figures.get("metrics"),
                "counts": figures.get("counts"),
            }
            for name, attested in datasets.items()
            for figures in [summary["datasets"].get(name) or {}]
        },
        "rows": {name: asdict(found) for name, found in rows.items()},
    }
    return {
        "_type": STATEMENT_TYPE,
        "subject": subject,
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }


@dataclass(frozen=True, slots=True)
class AttestedRun:
    """The content of a statement about a run."""

    files: Mapping[str, File]
    rows: Mapping[str, RowSet]
    datasets: Mapping[str, AttestedDataset]
    figures: Mapping[str, Mapping[str, Any]]
    """Coverage, metrics and counts by dataset."""
    predicate: Mapping[str, Any]


def parse_statement(statement: Mapping[str, Any]) -> AttestedRun:
    """Parse a statement about a run.

    Raises:
        StatementError: it is about something else, or a field is missing.
    """
    if (statement.get("_type"), statement.get("predicateType")) != (STATEMENT_TYPE, PREDICATE_TYPE):
        raise StatementError(
            f"its predicate is {statement.get('predicateType')!r}: this evalrun reads {PREDICATE_TYPE}"
        )
    try:
        files = [
            File(
                each["name"],
                each["digest"]["sha256"],
                each["annotations"]["length"],
                each["annotations"]["packedSha256"],
            )
            for each in statement["subject"]
        ]
        predicate = statement["predicate"]
        return AttestedRun(
            {file.name: file for file in files},
            {name: RowSet(**predicate["rows"][name]) for name in ROW_SETS},
            {
                name: AttestedDataset(
                    each["problems"],
                    each["records_sha256"],
                    None if each["commitments"] is None else RowSet(**each["commitments"]),
                )
                for name, each in predicate["datasets"].items()
            },
            predicate["datasets"],
            predicate,
        )
    except (LookupError, TypeError, AttributeError) as error:
        raise StatementError("a field of it is missing or of another type") from error
