"""The directory of a local run: its run configuration, ledger, logs and results."""

import json
import shlex
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evalrun_runtime.exits import BadInputError

if TYPE_CHECKING:
    # The import takes a third of the time of `evalrun show`, which only needs paths.
    from evalrun_api.run_config import RunConfig

WORK_ORDER: Final = "work_order.json"
START_SETTINGS: Final = "start_settings.json"
QUICK_FILE: Final = "evalrun.yaml"
"""A quick run, as a file."""

FIXED: Final = ("run", "sources", "responses", "answers_per_problem", "rejudge")
FIXED_IN_SPEC: Final = ("model", "protocol", "datasets")
"""Fields that completions and verdicts depend on: a resumed run must have the same values. All others may change."""
MAX_SHOWN_DIFFERENCES: Final = 4


@dataclass(frozen=True)
class Workspace:
    """Paths of a run's files."""

    directory: Path
    is_new: bool = False
    """Whether this command created the directory."""

    @property
    def work_order(self) -> Path:
        """The run's run configuration for the aggregator."""
        return self.directory / WORK_ORDER

    @property
    def ledger(self) -> Path:
        """The run's SQLite ledger."""
        return self.directory / "ledger.sqlite3"

    @property
    def logs(self) -> Path:
        """Directory with a log file per service."""
        return self.directory / "logs"

    @property
    def summary(self) -> Path:
        """Written last: its presence means that the run is complete."""
        return self.directory / "summary.json"

    @property
    def has_completions(self) -> bool:
        """Whether any completion is stored, which starting over would lose.

        Raises:
            BadInputError: the ledger cannot be read, so nobody can tell.
        """
        if not self.ledger.exists():
            return False
        try:
            with closing(sqlite3.connect(f"{self.ledger.resolve().as_uri()}?mode=ro", uri=True)) as ledger:
                # A run that was stopped before its tables were created has none.
                if ledger.execute("SELECT 1 FROM sqlite_master WHERE name = 'completions'").fetchone() is None:
                    return False
                return ledger.execute("SELECT 1 FROM completions LIMIT 1").fetchone() is not None
        except sqlite3.DatabaseError as error:
            raise BadInputError(f"ledger {self.ledger}: cannot be read: {error}") from error

    def write_order(self, order: "RunConfig") -> None:
        """Write the run configuration atomically. Raises BadInputError, for example if the disk is full."""
        temporary = self.work_order.with_suffix(".tmp")
        try:
            temporary.write_text(json.dumps(order.to_wire(), indent=2) + "\n")
            temporary.replace(self.work_order)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise BadInputError(f"{self.work_order}: cannot be written: {error.strerror}") from error

    def discard_unused(self) -> None:
        """Remove the command's files if no completion is stored, so that the user can correct the command and repeat
        it."""
        if self.ledger.exists():
            if not self.is_new or self._may_have_completions():
                return
            for name in ("", "-wal", "-shm", ".lock", ".control"):
                self.ledger.with_name(self.ledger.name + name).unlink(missing_ok=True)
        shutil.rmtree(self.logs, ignore_errors=True)
        for name in (WORK_ORDER, START_SETTINGS, *([QUICK_FILE] if self.is_new else [])):
            (self.directory / name).unlink(missing_ok=True)
        if not any(self.directory.iterdir()):
            self.directory.rmdir()

    def _may_have_completions(self) -> bool:
        try:
            return self.has_completions
        except BadInputError:
            return True


def shown_path(directory: Path) -> Path:
    """Return the shortest path that works from the current directory."""
    return directory.relative_to(Path.cwd()) if directory.is_relative_to(Path.cwd()) else directory


def default_directory(run: str, now: datetime) -> Path:
    """Return `outputs/<run>_<YYYYMMDD_HHMMSS>`."""
    return Path("outputs") / f"{run}_{now:%Y%m%d_%H%M%S}"


def create(directory: Path, order: "RunConfig") -> Workspace:
    """Create the directory of a new run.

    Raises:
        BadInputError: the directory is not empty, or cannot be created.
    """
    workspace = Workspace(directory, is_new=True)
    try:
        if directory.exists() and any(directory.iterdir()):
            resume = f"go on with its run by evalrun resume {shlex.quote(str(shown_path(directory)))}"
            advice = resume if workspace.work_order.exists() else "name another directory"
            raise BadInputError(f"--output {directory}: the directory is not empty: {advice}")
        workspace.logs.mkdir(parents=True)
    except OSError as error:
        raise BadInputError(f"--output {directory}: {error.strerror}: {error.filename}") from error
    try:
        workspace.write_order(order)
    except BadInputError:
        workspace.discard_unused()
        raise
    return workspace


def reopen(directory: Path, order: "RunConfig") -> Workspace:
    """Open the directory of a stopped run and apply the settings that may change.

    A run without completions starts over.


    Raises:
        BadInputError: there is no run, or its completions were made with other settings, which the message names.
    """
    workspace = Workspace(directory)
    stored = order_in(directory)
    changed = list(differences(_select_fixed(stored.to_wire()), _select_fixed(order.to_wire())))
    if changed and workspace.has_completions:
        shown = "; ".join(changed[:MAX_SHOWN_DIFFERENCES])
        more = f"; and {len(changed) - MAX_SHOWN_DIFFERENCES} more" if len(changed) > MAX_SHOWN_DIFFERENCES else ""
        raise BadInputError(
            f"--resume {directory}: the answers there were made with other settings: {shown}{more}. Restore them, or "
            "start a new run in another directory"
        )
    if changed:
        for name in ("", "-wal", "-shm"):
            workspace.ledger.with_name(workspace.ledger.name + name).unlink(missing_ok=True)
    workspace.logs.mkdir(exist_ok=True)
    workspace.write_order(order.model_copy(update={"created": stored.created}))
    return workspace


def differences(stored: Any, wanted: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401 - JSON
    """Yield each difference of two JSON values as `PATH is A there and B here`, in the order of the first value."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        for name in dict.fromkeys([*stored, *wanted]):
            yield from differences(stored.get(name), wanted.get(name), f"{path}.{name}" if path else name)
    elif isinstance(stored, list) and isinstance(wanted, list) and len(stored) == len(wanted):
        for index, (old, new) in enumerate(zip(stored, wanted, strict=True)):
            yield from differences(old, new, f"{path}[{index}]")
    elif stored != wanted:
        yield f"{path} is {_shown(stored)} there and {_shown(wanted)} here"


def _select_fixed(order: Mapping[str, Any]) -> dict[str, Any]:
    spec = order.get("spec", {})
    fixed: dict[str, Any] = {name: order.get(name) for name in FIXED}
    fixed["draws_for_a_race"] = order.get("race_problems") is not None
    fixed["spec"] = {name: spec.get(name) for name in FIXED_IN_SPEC}
    asked = {endpoint.get("model") for endpoint in spec.get("endpoints") or ()} - {None}
    fixed["spec"]["endpoints[].model"] = sorted(asked)
    return fixed


def _shown(value: Any) -> str:  # noqa: ANN401 - JSON
    text = "not set" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def order_in(directory: Path) -> "RunConfig":
    """Return the run configuration of the run in `directory`. Raises BadInputError if it is missing or damaged."""
    path = Workspace(directory).work_order
    if not path.is_file():
        raise BadInputError(f"{directory}: no run lies there: {path} is missing")
    from evalrun_api.run_config import read_run_config

    return read_run_config(path)
