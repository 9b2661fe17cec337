"""Removes the texts that models and their programs wrote from old runs, and keeps every metric.

`evalrun prune` on one machine. In a cluster a CronJob runs `python -m evalrun_results.retention` with the image of the
aggregator, over the outputs in buckets and volumes.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import fsspec
from fsspec.implementations.local import LocalFileSystem

from evalrun_data.store_problems import name_read_errors
from evalrun_results.outputs.destination import REPORT, SUMMARY, resolve_destination
from evalrun_results.report.document import render_report
from evalrun_results.sample_index.stored_index import INDEX_DIRECTORY
from evalrun_results.stored_run import StoredRun
from evalrun_runtime.atomic_files import atomic_file, write_atomically, write_text
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.termination import end_with

MARKER: Final = "pruned.json"
"""File that records when a run lost its completions."""
RUN_INFO: Final = "run_info.json"
WRITTEN_BY_MODELS: Final = ("response", "code")
"""Columns of the results that hold a completion."""
PRINTED: Final = ("stdout", "stderr", "compile_stderr")
"""Fields of a test that hold a program's output."""
RESULTS: Final = ("results.jsonl", "results.parquet")
_BATCH_ROWS: Final = 256


def check_answers_kept(place: str) -> None:
    """Raise BadInputError for a run whose answers were removed, or a directory that cannot be read.

    Args:
        place: directory of a run, or URL of its outputs.
    """
    files, path = resolve_destination(place)
    with name_read_errors(place):
        if files.exists(f"{path.rstrip('/')}/{MARKER}"):
            raise BadInputError(f"{place}: its answers are gone: `evalrun prune` removed them ({MARKER})")


def prune(
    places: Sequence[str], *, days: int | None, now: datetime, is_dry: bool, report: Callable[[str], None]
) -> ExitCode:
    """Prune the runs in these directories that ended long enough before `now`.

    Args:
        places: directories of a run or of runs: paths, or fsspec URLs.
        days: retention of every run; None uses each run's `output.retainCompletionsDays`, and keeps runs without it.
        now: the time.
        is_dry: report without changing anything.
        report: receives a line per run.

    Raises:
        BadInputError: a directory holds no run, or a file cannot be read or written.
    """
    for place in places:
        files, path = resolve_destination(place)
        with name_read_errors(place):
            runs = _runs_in(files, path.rstrip("/"), place)
        for run in runs:
            with name_read_errors(run):
                report(f"{run}: {_prune_if_due(files, run, days=days, now=now, is_dry=is_dry)}")
    return ExitCode.SUCCEEDED


def is_due(ended_at: datetime, now: datetime, days: int) -> bool:
    """Return whether a run's completions have been kept for their time."""
    return now - ended_at > timedelta(days=days)


def remove_texts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the results without the texts that a model or its program wrote."""
    tests = [{**test, **dict.fromkeys(PRINTED, "")} for test in row["tests"]]
    return {**row, **dict.fromkeys(WRITTEN_BY_MODELS, ""), "tests": tests}


def _prune_if_due(files: fsspec.AbstractFileSystem, run: str, *, days: int | None, now: datetime, is_dry: bool) -> str:
    """Prune a run if it is due, and return a line about the result."""
    if files.exists(f"{run}/{MARKER}"):
        return "pruned already"
    info = _run_info(files, run)
    kept_days = _read_days(info) if days is None else days
    if kept_days is None:
        return "kept, its spec has no output.retainCompletionsDays"
    if not is_due(_read_end_time(info, f"{run}/{RUN_INFO}"), now, kept_days):
        return f"kept, it is not older than {kept_days} days"
    if is_dry:
        return "would be pruned"
    if isinstance(files, LocalFileSystem):
        _prune_directory(Path(run), now)
    else:
        _prune_elsewhere(files, run, now)
    return "pruned"


def _runs_in(files: fsspec.AbstractFileSystem, path: str, place: str) -> list[str]:
    """Return the finished run in a directory, or those in the directories inside it. Raises BadInputError."""
    if files.exists(f"{path}/{SUMMARY}"):
        return [path]
    inside = files.ls(path, detail=False) if files.isdir(path) else []
    found = [run for run in sorted(str(each).rstrip("/") for each in inside) if files.exists(f"{run}/{SUMMARY}")]
    if not found:
        raise BadInputError(
            f"{place}: no finished run here or in subdirectories: name a run's outputs, or a directory of runs"
        )
    return found


def _run_info(files: fsspec.AbstractFileSystem, run: str) -> Mapping[str, Any]:
    """Return a run's run_info.json. Raises BadInputError if it cannot be read."""
    file = f"{run}/{RUN_INFO}"
    try:
        info = json.loads(files.cat_file(file))
    except (OSError, ValueError) as error:
        raise BadInputError(f"{file}: cannot be read ({error}): when the run ended is not known") from error
    if not isinstance(info, dict):
        raise BadInputError(f"{file}: holds no object: when the run ended is not known")
    return info


def _read_days(info: Mapping[str, Any]) -> int | None:
    """Return the days that a run's spec names, or None if it names none."""
    spec = info.get("spec")
    output = spec.get("output") if isinstance(spec, dict) else None
    days = output.get("retainCompletionsDays") if isinstance(output, dict) else None
    return days if isinstance(days, int) else None


def _read_end_time(info: Mapping[str, Any], file: str) -> datetime:
    """Return the time at which a run ended. Raises BadInputError if the file lacks it."""
    try:
        return datetime.fromisoformat(info["ended_at"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{file}: does not say when the run ended ({error})") from error


def _prune_directory(run: Path, now: datetime) -> None:
    try:
        _rewrite(run)
        for file in _find_answer_files(run):
            file.unlink()
        _write_report(run)
        _mark(run, now)
    except OSError as error:
        raise BadInputError(f"{error.filename or run}: cannot be pruned: {error.strerror or error}") from error


def _prune_elsewhere(files: fsspec.AbstractFileSystem, run: str, now: datetime) -> None:
    """Prune a run of an object store: a copy of its files is rewritten and sent back, the marker last.

    One that was interrupted is pruned again from the start.
    """
    with TemporaryDirectory(prefix="evalrun-retention-") as scratch:
        copy = Path(scratch)
        for name in (SUMMARY, RUN_INFO, *RESULTS):
            if files.exists(f"{run}/{name}"):
                files.get_file(f"{run}/{name}", str(copy / name))
        _rewrite(copy)
        _write_report(copy)
        _mark(copy, now)
        for pattern in ("qa_logs/*_qa.jsonl", f"{INDEX_DIRECTORY}/*"):
            for file in files.glob(f"{run}/{pattern}"):
                files.rm_file(file)
        for name in (*RESULTS, REPORT, MARKER):
            if (copy / name).exists():
                files.put_file(str(copy / name), f"{run}/{name}")


def _rewrite(run: Path) -> None:
    _rewrite_jsonl(run / RESULTS[0])
    _rewrite_parquet(run / RESULTS[1])


def _mark(run: Path, now: datetime) -> None:
    write_text(run / MARKER, json.dumps({"pruned_at": now.astimezone(UTC).isoformat()}) + "\n")


def _write_report(run: Path) -> None:
    write_atomically(run / REPORT, render_report(StoredRun.open(str(run)).report()).encode())


def _find_answer_files(run: Path) -> Iterator[Path]:
    """Yield the files that hold answers, beside the results."""
    yield from run.glob("ledger.sqlite3*")
    yield from run.glob("qa_logs/*_qa.jsonl")
    yield from run.glob(REPORT)
    yield from run.glob(f"{INDEX_DIRECTORY}/*")


def _rewrite_jsonl(file: Path) -> None:
    if not file.exists():
        return
    with file.open(encoding="utf-8") as lines, atomic_file(file) as target:
        for line in lines:
            target.write(json.dumps(remove_texts(json.loads(line)), ensure_ascii=False).encode() + b"\n")


def _rewrite_parquet(file: Path) -> None:
    if not file.exists():
        return
    # Importing pyarrow costs 0.3 s.
    import pyarrow
    import pyarrow.parquet

    with (
        pyarrow.parquet.ParquetFile(file) as source,
        atomic_file(file) as target,
        pyarrow.parquet.ParquetWriter(target, source.schema_arrow) as writer,
    ):
        for batch in source.iter_batches(batch_size=_BATCH_ROWS):
            rows = [remove_texts(row) for row in batch.to_pylist()]
            writer.write_table(pyarrow.Table.from_pylist(rows, schema=source.schema_arrow))


def main(arguments: Sequence[str] | None = None) -> ExitCode:
    """Prune as the command line says: `evalrun prune` for a pod, where the command is not."""
    parser = argparse.ArgumentParser(prog="evalrun prune", description=__doc__)
    parser.add_argument("places", nargs="+")
    parser.add_argument("--retain-completions-days", type=int)
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args(arguments)
    try:
        return prune(
            given.places,
            days=given.retain_completions_days,
            now=datetime.now(UTC),
            is_dry=given.dry_run,
            report=lambda line: print(line, flush=True),  # noqa: T201 - the Job's log
        )
    except BadInputError as error:
        return end_with(error, ExitCode.BAD_INPUT)


if __name__ == "__main__":
    sys.exit(main())
