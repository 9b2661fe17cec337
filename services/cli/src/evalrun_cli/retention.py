"""`evalrun prune`: removes what models and their programs wrote from old runs, and keeps every figure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from evalrun_cli.comparisons.report_file import write_report
from evalrun_cli.local.workspace import Workspace
from evalrun_runtime.atomic_files import atomic_file, write_text
from evalrun_runtime.exits import BadInputError, ExitCode

MARKER: Final = "pruned.json"
"""File that says when a run lost its answers."""
WRITTEN_BY_MODELS: Final = ("response", "code")
"""Columns of the results that hold an answer."""
PRINTED: Final = ("stdout", "stderr", "compile_stderr")
"""Fields of a test that hold what a program printed."""
_BATCH_ROWS: Final = 256


def prune(places: Sequence[Path], *, days: int, now: datetime, is_dry: bool) -> ExitCode:
    """Prune the runs in these directories that ended more than `days` days before `now`.

    Raises:
        BadInputError: a directory holds no run, or a file cannot be read or written.
    """
    runs = [run for place in places for run in _runs_in(place)]
    for run in runs:
        if (run / MARKER).exists():
            click.echo(f"{run}: pruned already")
        elif not is_due(_ended_at(run), now, days):
            click.echo(f"{run}: kept, it is not older than {days} days")
        elif is_dry:
            click.echo(f"{run}: would be pruned")
        else:
            _prune(run, now)
            click.echo(f"{run}: pruned")
    return ExitCode.SUCCEEDED


def is_due(ended_at: datetime, now: datetime, days: int) -> bool:
    """Return whether a run's answers have been kept for their time."""
    return now - ended_at > timedelta(days=days)


def without_texts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the results without what a model or its program wrote."""
    tests = [{**test, **dict.fromkeys(PRINTED, "")} for test in row["tests"]]
    return {**row, **dict.fromkeys(WRITTEN_BY_MODELS, ""), "tests": tests}


def _runs_in(place: Path) -> list[Path]:
    """Return the finished run in a directory, or those in the directories inside it. Raises BadInputError."""
    found = [place] if Workspace(place).summary.is_file() else _below(place)
    if not found:
        raise BadInputError(
            f"{place}: no finished run here or in subfolders: name a run's outputs, or a directory of runs"
        )
    return found


def _below(place: Path) -> list[Path]:
    directories = sorted(place.iterdir()) if place.is_dir() else []
    return [directory for directory in directories if Workspace(directory).summary.is_file()]


def _ended_at(run: Path) -> datetime:
    """Return when a run ended. Raises BadInputError if its run_info.json does not say."""
    file = run / "run_info.json"
    try:
        return datetime.fromisoformat(json.loads(file.read_text(encoding="utf-8"))["ended_at"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{file}: does not say when the run ended ({error})") from error


def _prune(run: Path, now: datetime) -> None:
    try:
        _rewrite_jsonl(run / "results.jsonl")
        _rewrite_parquet(run / "results.parquet")
        for file in _holding_answers(run):
            file.unlink()
        write_text(run / MARKER, json.dumps({"pruned_at": now.astimezone(UTC).isoformat()}) + "\n")
    except OSError as error:
        raise BadInputError(f"{error.filename or run}: cannot be pruned: {error.strerror or error}") from error
    write_report(str(run), output=None)


def _holding_answers(run: Path) -> Iterator[Path]:
    """Yield the files that hold answers, beside the results."""
    yield from run.glob("ledger.sqlite3*")
    yield from run.glob("qa_logs/*_qa.jsonl")
    yield from run.glob("report.html")


def _rewrite_jsonl(file: Path) -> None:
    if not file.exists():
        return
    with file.open(encoding="utf-8") as lines, atomic_file(file) as target:
        for line in lines:
            target.write(json.dumps(without_texts(json.loads(line)), ensure_ascii=False).encode() + b"\n")


def _rewrite_parquet(file: Path) -> None:
    if not file.exists():
        return
    import pyarrow  # costs 0.3 s to import
    import pyarrow.parquet

    with (
        pyarrow.parquet.ParquetFile(file) as source,
        atomic_file(file) as target,
        pyarrow.parquet.ParquetWriter(target, source.schema_arrow) as writer,
    ):
        for batch in source.iter_batches(batch_size=_BATCH_ROWS):
            rows = [without_texts(row) for row in batch.to_pylist()]
            writer.write_table(pyarrow.Table.from_pylist(rows, schema=source.schema_arrow))
