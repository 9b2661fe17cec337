"""The audit of a run's data: whether its records are those of a manifest that passed an audit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from evalrun_data.governance.manifest import MAX_MANIFEST_BYTES, mismatches, parse_manifest
from evalrun_data.governance.prepared import AUDIT, MANIFESTS, REPORT
from evalrun_data.governance.prepared_check import MAX_AUDIT_BYTES, parse_audit
from evalrun_data.published import known_role
from evalrun_data.records import Problem
from evalrun_data.sources import Source
from evalrun_runtime.exits import BadInputError, EndCause

AuditPolicy = Literal["Require", "Warn", "Ignore"]

MAX_SHOWN: Final = 3


SET_POLICY: Final = "write auditPolicy: Warn"
"""Remedy for a run that a file describes."""
COPY_ELSEWHERE: Final = "name a copy of the file in another directory, where no manifest lies beside it"
"""Remedy if only flags name the judged data."""


class AuditFailedError(BadInputError):
    """Raised when a run's data did not pass its audit, or is not the data that was audited."""

    cause = EndCause.AUDIT_FAILED


@dataclass(frozen=True, slots=True)
class DatasetAudit:
    """The audit of a dataset, as a run records it."""

    manifest: str
    manifest_sha256: str
    state: str
    """State of the dataset in its audit: passed, failed, incomplete, or missing if no audit lies beside the manifest.
    """
    role: str = ""
    audit_sha256: str = ""
    warnings: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Copies for the run's outputs, by their names in `audit/`."""


def audit_dataset(
    name: str,
    source: Source,
    problems: Iterable[Problem],
    *,
    manifest: str | None,
    policy: AuditPolicy | None,
    all_tests: bool = True,
    remedy: str = SET_POLICY,
) -> DatasetAudit | None:
    """Check a dataset against its manifest and the audit beside it.

    Args:
        name: the dataset.
        source: of its records. A manifest in `data_manifests` beside it, or one directory above, is found.
        problems: all its records; not read if there is no manifest.
        manifest: where the manifest is, relative to the same directory as the source; None where the spec names none.
        policy: None requires what is found: a failed audit or other records are refused, a missing audit is a warning.
        all_tests: whether the records have all their tests; otherwise their numbers are not compared.
        remedy: what somebody does who wants the data as it is.

    Returns:
        What the run records, or None if there is no manifest, or it is to be ignored.

    Raises:
        AuditFailedError: the data may not be used.
    """
    if policy == "Ignore":
        return None
    place = manifest or _manifest_beside(source, name)
    if place is None:
        if policy == "Require":
            raise AuditFailedError(
                f"{EndCause.AUDIT_FAILED}: dataset '{name}' names no manifest, and none lies beside {source.name}: "
                "prepare it with `evalrun data prepare`, or write auditPolicy: Ignore"
            )
        return None
    try:
        files = {"manifest.jsonl": source.make_sibling(place).content(MAX_MANIFEST_BYTES)}
        known = parse_manifest(files["manifest.jsonl"], place)
        faults = mismatches(known, problems, name, tests=all_tests)
        if (content := _content(source.make_sibling(_make_path_beside(place, AUDIT)))) is not None:
            files[AUDIT] = content
        audit, missing = _read_audit(place, files.get(AUDIT), name, known.sha256, faults)
        if (content := _content(source.make_sibling(_make_path_beside(place, REPORT)))) is not None:
            files[REPORT] = content
    except BadInputError as error:
        raise AuditFailedError(f"{EndCause.AUDIT_FAILED}: dataset '{name}': {error}") from error
    found = DatasetAudit(place, known.sha256, *audit, files={f"{name}/{file}": each for file, each in files.items()})
    if missing and policy != "Require":
        found = replace(found, warnings=(missing,))
    elif missing:
        faults.append(missing)
    if not faults:
        return found
    if policy == "Warn":
        return replace(found, warnings=(*found.warnings, *faults))
    shown = "; ".join(faults[:MAX_SHOWN])
    if len(faults) > MAX_SHOWN:
        shown += f" (and {len(faults) - MAX_SHOWN} more)"
    again = "audit it again (evalrun data audit, with --allow for overlaps that are fine)"
    advice = f"use the data that {place} lists, {again}, or {remedy}"
    raise AuditFailedError(f"{EndCause.AUDIT_FAILED}: dataset '{name}': {shown}: {advice}")


def choose_role(name: str, given: str | None, audit: DatasetAudit | None, problems: Sequence[Problem]) -> str:
    """Return the role of a dataset: from the spec, else its audit, its records, or its well-known name."""
    recorded = problems[0].role if problems else ""
    return given or (audit.role if audit else "") or recorded or known_role(name)


def _read_audit(
    place: str, content: bytes | None, name: str, manifest_sha256: str, faults: list[str]
) -> tuple[tuple[str, str, str], str]:
    """Return state, role and hash of the audit beside a manifest, and why there is none. Adds to the faults."""
    file = _make_path_beside(place, AUDIT)
    if content is None:
        return ("missing", "", ""), f"no audit lies beside its manifest ({file}): run `evalrun data audit`"
    audit = parse_audit(content, file)
    dataset = audit.datasets.get(name)
    if dataset is None:
        return ("missing", "", audit.sha256), f"{file} does not audit it: run `evalrun data audit`"
    if dataset.manifest_sha256 != manifest_sha256:
        faults.append(f"its manifest is not the one that {file} audited")
    if dataset.state != "passed":
        ended = "failed" if dataset.state == "failed" else f"is {dataset.state}"
        faults.append(f"its audit {ended}: see {_make_path_beside(place, REPORT)}")
    return (dataset.state, dataset.role, audit.sha256), ""


def _content(file: Source) -> bytes | None:
    """Return the content of a file beside a manifest, or None if it does not exist."""
    return file.content(MAX_AUDIT_BYTES) if file.exists() else None


def _manifest_beside(source: Source, name: str) -> str | None:
    """Return the manifest that `evalrun data prepare` wrote beside a local source, or None."""
    path = None if source.is_builtin else source.path
    if path is None:
        return None
    directories = (path.parent, path.parent.parent)
    files = (directory / MANIFESTS / f"{name}.jsonl" for directory in directories)
    return next((str(file) for file in files if file.is_file()), None)


def _make_path_beside(place: str, name: str) -> str:
    directory, slash, _ = place.rpartition("/")
    return f"{directory}{slash}{name}"
