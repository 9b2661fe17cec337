"""`evalrun report`: writes report.html again from a run's outputs."""

from pathlib import Path

from fsspec.implementations.local import LocalFileSystem

from evalrun_results.outputs.destination import REPORT, resolve_destination
from evalrun_results.report.document import render_report
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.atomic_files import write_atomically
from evalrun_runtime.exits import BadInputError, ExitCode


def write_report(run: str, *, output: Path | None) -> ExitCode:
    """Write the report of a run into its directory, or to the file `output` if that is given.

    Raises:
        BadInputError: there is no finished run, the run is not on this machine and `output` is missing, or the file
            cannot be written.
    """
    stored = StoredRun.open(run)
    target = output or _locate_report(run)
    try:
        write_atomically(target.resolve(), render_report(stored.report()).encode())
    except OSError as error:
        raise BadInputError(f"{target}: cannot be written: {error.strerror}") from error
    print(f"report: {target}")  # noqa: T201 - the command's result
    return ExitCode.SUCCEEDED


def _locate_report(run: str) -> Path:
    files, path = resolve_destination(run)
    if not isinstance(files, LocalFileSystem):
        raise BadInputError(f"{run}: is not on this machine: name the file to write with --output")
    return Path(path) / REPORT
