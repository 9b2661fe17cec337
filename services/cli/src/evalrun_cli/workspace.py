"""The folder of a run on one machine: its work order, ledger, logs and results."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from evalrun_runtime.exits import BadInputError

WORK_ORDER = "work_order.json"

COMPARED = ("run", "spec", "sources", "responses", "rejudge")
"""What of a work order must be the same when its run is resumed; where and when it was started may differ."""


@dataclass(frozen=True)
class Workspace:
    """Where everything of one run lies."""

    directory: Path

    @property
    def work_order(self) -> Path:
        """What the aggregator is told to do."""
        return self.directory / WORK_ORDER

    @property
    def ledger(self) -> Path:
        """The run's SQLite ledger."""
        return self.directory / "ledger.sqlite3"

    @property
    def logs(self) -> Path:
        """One log file a service."""
        return self.directory / "logs"

    @property
    def summary(self) -> Path:
        """Written last: a run with it is complete."""
        return self.directory / "summary.json"

    def discard_unused(self) -> None:
        """Take the folder away again where no ledger was made: nothing was done in it, and the user types it again."""
        if self.ledger.exists():
            return
        shutil.rmtree(self.logs, ignore_errors=True)
        self.work_order.unlink(missing_ok=True)
        if not any(self.directory.iterdir()):
            self.directory.rmdir()


def default_directory(run: str, now: datetime) -> Path:
    """Give `outputs/<run>_<YYYYMMDD_HHMMSS>`."""
    return Path("outputs") / f"{run}_{now:%Y%m%d_%H%M%S}"


def create(directory: Path, work_order: Mapping[str, Any]) -> Workspace:
    """Make the folder of a new run.

    Raises:
        BadInputError: the folder holds something already, or cannot be made.
    """
    workspace = Workspace(directory)
    try:
        if directory.exists() and any(directory.iterdir()):
            resume = "--resume" if "responses" in work_order else f"--resume {directory}"  # judge names it by --output
            advice = f"add {resume}" if workspace.work_order.exists() else "name another folder"
            raise BadInputError(f"--output {directory}: the folder is not empty: {advice}")
        workspace.logs.mkdir(parents=True)
        temporary = workspace.work_order.with_suffix(".tmp")
        temporary.write_text(json.dumps(work_order, indent=2) + "\n")
        temporary.replace(workspace.work_order)
    except OSError as error:
        raise BadInputError(f"--output {directory}: {error.strerror}: {error.filename}") from error
    return workspace


def reopen(directory: Path, work_order: Mapping[str, Any]) -> Workspace:
    """Open the folder of a run that was stopped.

    Raises:
        BadInputError: no run lies there, or it is another one.
    """
    workspace = Workspace(directory)
    stored = read_work_order(directory)
    changed = [name for name in COMPARED if stored.get(name) != work_order.get(name)]
    if changed:
        raise BadInputError(f"--resume {directory}: the run there has another {changed[0]}: see {workspace.work_order}")
    workspace.logs.mkdir(exist_ok=True)
    return workspace


def read_work_order(directory: Path) -> Mapping[str, Any]:
    """Give the work order of the run in `directory`; BadInputError where there is none."""
    path = Workspace(directory).work_order
    try:
        stored: Mapping[str, Any] = json.loads(path.read_text())
    except OSError as error:
        raise BadInputError(f"{directory}: no run lies there: {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadInputError(f"{path}: not readable as JSON: {error}") from error
    return stored
