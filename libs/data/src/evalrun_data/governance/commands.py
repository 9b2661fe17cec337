"""The commands of `evalrun data`, which report results on stdout and errors on stderr."""

import os
import sys
import time
from pathlib import Path

from evalrun_data.governance.allow_file import read_allow_file
from evalrun_data.governance.audit import audit_directory
from evalrun_data.governance.audit_result import AuditResult
from evalrun_data.governance.fusion_source import fetch_fusion_rows
from evalrun_data.governance.plan import read_plan
from evalrun_data.governance.prepare import Preparation, PrepareProgress
from evalrun_data.governance.prepared import AUDIT, MANIFESTS, REPORT
from evalrun_data.governance.prepared_check import check_prepared
from evalrun_registry.fusion_routes import server_url
from evalrun_runtime.exits import BadInputError, ExitCode

SHOWN_OVERLAPS = 10
PROGRESS_SECONDS = 2.0


class ProgressLines:
    """Prints how far a preparation is, every two seconds at most."""

    def __init__(self) -> None:
        self._next = time.monotonic() + PROGRESS_SECONDS

    def __call__(self, progress: PrepareProgress) -> None:
        """Print the progress if it is time."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PROGRESS_SECONDS
        done = f"{progress.done / 1e6:,.0f} MB" if progress.step == "copying" else f"{progress.done:,} problems"
        _err(f"{progress.dataset}: {progress.step}, {done}")


def prepare_data(plan_file: Path, *, output: Path, sandbox_fusion: str | None) -> ExitCode:
    """Prepare the datasets of a plan. Raises BadInputError if the plan, a source or the directory cannot be used."""
    plan = read_plan(plan_file)
    endpoint = server_url(sandbox_fusion or os.environ.get("SANDBOX_FUSION_ENDPOINT", ""))

    def fetch_rows(source: str, target: Path) -> None:
        fetch_fusion_rows(source, target, endpoint)

    try:
        result = Preparation(plan, output, ProgressLines(), fetch_rows).run()
    except OSError as error:
        raise BadInputError(f"{error.filename or output}: cannot be written: {error.strerror or error}") from error
    return _told(result, output)


def audit_data(directory: Path, *, allow: Path | None) -> ExitCode:
    """Audit a prepared directory. Raises BadInputError if it or the allow file cannot be used."""
    return _told(audit_directory(directory, read_allow_file(allow) if allow else ()), directory)


def show_data(directory: Path) -> ExitCode:
    """Show a prepared directory. Raises BadInputError if its files are not those that were audited."""
    audit = check_prepared(directory)
    _out(f"{directory}: audit {audit.state}")
    for name, dataset in audit.datasets.items():
        _out(
            f"  {name}: {dataset.records} records, {dataset.removed} duplicates removed, role {dataset.role}, "
            f"audit {dataset.state}, manifest {dataset.manifest_sha256}"
        )
    return ExitCode.SUCCEEDED if audit.state == "passed" else ExitCode.FAILED


def _told(result: AuditResult, directory: Path) -> ExitCode:
    for audited in result.datasets:
        dataset = audited.dataset
        _out(
            f"{dataset.name}: {dataset.kept} records, {dataset.removed} duplicates removed, role {dataset.role}, "
            f"audit {audited.state}"
        )
    not_allowed = [overlap for overlap in result.overlaps if overlap.allowed is None]
    for overlap in not_allowed[:SHOWN_OVERLAPS]:
        _err(f"overlap ({overlap.kind}, {overlap.jaccard:.2f}): {overlap.first} and {overlap.second}")
    if not_allowed:
        _err(
            f"evalrun: the audit failed: {len(not_allowed)} overlaps: see {directory / MANIFESTS / REPORT} (all of "
            f"them: "
            f"{AUDIT} beside it); take the data apart, or list what is fine in an allow file"
        )
    return ExitCode.SUCCEEDED if result.state == "passed" else ExitCode.FAILED


def _out(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _err(line: str) -> None:
    sys.stderr.write(f"{line}\n")
