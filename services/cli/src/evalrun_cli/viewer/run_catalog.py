"""Finds the runs that a viewer shows, in directories and at URLs, and gives each an id for its addresses."""

import os
import re
import stat
from collections.abc import Collection, Container, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from evalrun_cli.local.workspace import Workspace
from evalrun_data.store_problems import name_read_errors
from evalrun_results.outputs.destination import SUMMARY, resolve_destination
from evalrun_results.stored_run import RESULT_FILES
from evalrun_runtime.exits import BadInputError

MAX_DEPTH: Final = 2
"""Directories below a named one in which runs are looked for."""


def find_runs(place: str, known: Collection[str] = ()) -> list[str]:
    """Return the runs in a place, in order of their names.

    Args:
        place: the directory or URL of a run, or of directories of runs.
        known: runs found at a URL before; a known run whose directory still exists is not checked again.

    Raises:
        BadInputError: the place does not exist, or cannot be read.
    """
    return _runs_at(place, known) if "://" in place else list(_runs_below(Path(place)))


def _runs_at(url: str, known: Collection[str]) -> list[str]:
    """Return the ended run at a URL, or those directly inside it."""
    files, path = resolve_destination(url)
    path = path.rstrip("/")
    with name_read_errors(url):
        # fsspec caches listings, so new runs would never appear.
        files.invalidate_cache()
        if files.exists(f"{path}/{SUMMARY}"):
            return [url]
        inside = files.ls(path, detail=True) if files.isdir(path) else []
        names = sorted(each["name"].rstrip("/").rpartition("/")[2] for each in inside if each["type"] == "directory")
        runs = {name: f"{url.rstrip('/')}/{name}" for name in names}
        return [run for name, run in runs.items() if run in known or files.exists(f"{path}/{name}/{SUMMARY}")]


def _runs_below(place: Path) -> Iterator[str]:
    try:
        if not place.is_dir():
            raise BadInputError(f"{place}: no such directory: name the directory of a run, or a directory of runs")
        next(place.iterdir(), None)
    except OSError as error:
        raise BadInputError(f"{place}: cannot be read: {error.strerror}") from error
    yield from map(str, _runs_in(place, MAX_DEPTH))


def _runs_in(directory: Path, depth: int) -> Iterator[Path]:
    try:
        if is_run(directory):
            yield directory
            return
        # Links are left out. They may lead out of the named directory, so whoever may write there would choose what the
        # page shows.
        inside = sorted(
            each
            for each in directory.iterdir()
            if not each.name.startswith(".") and each.is_dir() and not each.is_symlink()
        )
    # The directory may not be read, such as lost+found of a volume, or it is being removed.
    except OSError:
        return
    if depth:
        for each in inside:
            yield from _runs_in(each, depth - 1)


def check_own_files(directory: Path) -> None:
    """Refuse a run with a file that lies elsewhere, or that is a pipe or a device: reading it might never end.

    Raises:
        BadInputError: a file is refused; the message names it.
    """
    workspace = Workspace(directory)
    documents = (workspace.summary, directory / "run_info.json", workspace.ledger, workspace.work_order)
    for file in (*documents, *(directory / name for name in RESULT_FILES)):
        if not file.exists():
            continue
        if not file.is_file():
            raise BadInputError(f"{file}: is a pipe or a device: put the file itself there")
        if not is_inside(file, directory):
            raise BadInputError(f"{file}: leads out of the run's directory: put the file itself there")


def is_inside(file: Path, directory: Path) -> bool:
    """Return whether a file lies in a directory once links are followed."""
    return file.resolve().is_relative_to(directory.resolve())


def open_inside(file: Path, directory: Path) -> BinaryIO | None:
    """Open a file to read it; None if it is not there, is no ordinary file, or lies elsewhere once links are followed.

    Args:
        file: its path.
        directory: directory in which the file must lie; its path has no links.
    """
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its writer.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    opened = os.fdopen(descriptor, "rb")
    # The opened file is checked, not its path, which could be replaced by a link in between.
    lies_at = Path(f"/proc/self/fd/{descriptor}").readlink()
    if stat.S_ISREG(os.fstat(descriptor).st_mode) and lies_at.is_relative_to(directory):
        return opened
    opened.close()
    return None


def is_run(directory: Path) -> bool:
    """Return whether a run's outputs or its ledger lie in a directory."""
    workspace = Workspace(directory)
    return workspace.summary.is_file() or workspace.ledger.is_file()


def free_id(run: str, taken: Container[str] = ()) -> str:
    """Return a free id for a run, of letters, digits, `.`, `_` and `-`, because the id is part of addresses."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", run.rstrip("/").rpartition("/")[2]).strip(".-") or "run"
    if run in {".", ".."}:
        name = "run"
    number, chosen = 1, name
    while chosen in taken:
        number += 1
        chosen = f"{name}-{number}"
    return chosen
