"""The runs that a viewer shows: found in directories, each under an id that its addresses have."""

import re
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Final

from evalrun_cli.local.workspace import Workspace
from evalrun_runtime.exits import BadInputError

MAX_DEPTH: Final = 2
"""Directories below a named one in which runs are looked for."""


def find_runs(places: Iterable[str]) -> dict[str, str]:
    """Return the runs in these places by id, in order of their names.

    Args:
        places: directories of runs, directories that hold such directories, or URLs of runs.

    Raises:
        BadInputError: a directory is not there.
    """
    found: dict[str, str] = {}
    for place in places:
        for run in [place] if "://" in place else map(str, _runs_below(Path(place))):
            if run in found.values():
                continue
            found[free_id(run, found)] = run
    return found


def _runs_below(place: Path) -> Iterator[Path]:
    if not place.is_dir():
        raise BadInputError(f"{place}: no such directory: name the directory of a run, or a directory of runs")
    yield from _runs_in(place, MAX_DEPTH)


def _runs_in(directory: Path, depth: int) -> Iterator[Path]:
    if is_run(directory):
        yield directory
    elif depth:
        for inside in sorted(directory.iterdir()):
            if inside.is_dir() and not inside.name.startswith("."):
                yield from _runs_in(inside, depth - 1)


def is_run(directory: Path) -> bool:
    """Return whether a run's outputs or its ledger lie in a directory."""
    workspace = Workspace(directory)
    return workspace.summary.is_file() or workspace.ledger.is_file()


def free_id(run: str, taken: Container[str] = ()) -> str:
    """Return an id for a run in a place that no other has: letters and digits alone, as addresses hold it."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", run.rstrip("/").rpartition("/")[2]).strip(".-") or "run"
    if run in {".", ".."}:
        name = "run"
    number, chosen = 1, name
    while chosen in taken:
        number += 1
        chosen = f"{name}-{number}"
    return chosen
