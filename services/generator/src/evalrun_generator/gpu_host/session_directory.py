"""The temporary directory of a run's Ray, which contains everything that its processes write."""

import json
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from evalrun_generator.gpu_host.processes import (
    Descendants,
    end_descendants,
    find_descendants,
    find_processes,
    find_shared_memory,
    find_shared_memory_by_name,
    remove_unused,
    start_time,
)

logger = logging.getLogger(__name__)

END_SECONDS: Final = 15.0
PLACE: Final = Path("/tmp")  # noqa: S108 - the paths of Ray's sockets must stay below 108 bytes
PREFIX: Final = "evalrun-ray-"
OWNER: Final = "owner.json"
TIMES: Final = "gpu_host.json"
"""File of seconds in the run's directory of logs, for the command that shows them."""
CODE: Final = ("evalrun_api", "evalrun_generator", "evalrun_proto", "evalrun_registry", "evalrun_runtime")
"""Our packages that the generator and the replicas' actors import."""


@dataclass(frozen=True)
class SessionDirectory:
    """The directory of a run's Ray."""

    path: Path

    @property
    def temporary(self) -> Path:
        """TMPDIR of the processes."""
        return self.path / "tmp"

    @property
    def code(self) -> Path:
        """PYTHONPATH of the processes: our packages without the packages installed beside them."""
        return self.path / "code"

    def remove(self) -> None:
        # The owner's name goes last: a directory without it would never count as abandoned.
        for path in self.path.iterdir() if self.path.is_dir() else ():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != OWNER:
                path.unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)


def make_session_directory(place: Path = PLACE) -> SessionDirectory:
    """Make a directory that names this process as its owner, with links to our packages."""
    unnamed = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=place))
    owner = {"pid": os.getpid(), "start": start_time(os.getpid())}
    (unnamed / OWNER).write_text(json.dumps(owner))
    # The directory gets its final name only once it names its owner. Without an owner it would stay behind if this
    # process were killed now.
    directory = SessionDirectory(unnamed.rename(place / unnamed.name.removeprefix(".")))
    directory.temporary.mkdir()
    directory.code.mkdir()
    for name in CODE:
        spec = find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise RuntimeError(f"the package {name} is not installed")
        (directory.code / name).symlink_to(next(iter(spec.submodule_search_locations)))
    return directory


@contextmanager
def own_session(seen: Descendants) -> Iterator[SessionDirectory]:
    """Yield a directory for a Ray that is started here. Directories of killed owners are removed first.

    At the end every process below this one is killed, and the directory is removed.
    """
    for left in remove_abandoned():
        logger.warning("removed %s, which a killed run had left", left)
    directory = make_session_directory()
    try:
        yield directory
    finally:
        left_over = end_descendants(END_SECONDS, seen)
        if left_over:
            logger.error("processes that do not end after SIGKILL: %s", ", ".join(map(str, left_over)))
        directory.remove()


def remove_abandoned(place: Path = PLACE) -> list[Path]:
    """End the processes of killed owners and remove their directories. Return the directories."""
    found = find_abandoned_directories(place)
    for path in found:
        pids = find_processes(path)
        pids += find_descendants(pids)
        segments = find_shared_memory(pids) | find_shared_memory_by_name(pids)
        for pid in pids:
            _kill(pid)
        remove_unused(segments)
        SessionDirectory(path).remove()
    return found


def find_abandoned_directories(place: Path = PLACE) -> list[Path]:
    """Return this user's directories whose owner has ended without removing them.

    A directory without an owner is not ours, whatever its name: processes in it are not killed.
    """
    own = (path for path in sorted(place.glob(f"{PREFIX}*")) if not path.is_symlink())
    return [path for path in own if path.stat().st_uid == os.getuid() and _owner_has_ended(path)]


def _owner_has_ended(path: Path) -> bool:
    try:
        owner = json.loads((path / OWNER).read_text())
        return start_time(int(owner["pid"])) != int(owner["start"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
