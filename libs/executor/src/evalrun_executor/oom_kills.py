"""Counts the processes that the kernel killed because memory ran out."""

from collections.abc import Iterable
from pathlib import Path

_KEY = "oom_kill"


class OomKills:
    """The kernel's count: that of this process's cgroup if it has a count, else that of the whole machine.

    Args:
        files: files to read; the first that has a count is used. None reads the kernel's files.
    """

    def __init__(self, files: Iterable[Path] | None = None) -> None:
        counted = (file for file in (_list_kernel_files() if files is None else files) if _read_count(file) is not None)
        self._file = next(counted, None)

    def count(self) -> int:
        """Return the number of kills; 0 if the kernel does not count them."""
        return 0 if self._file is None else _read_count(self._file) or 0


def _list_kernel_files() -> list[Path]:
    # In a container the path in /proc/self/cgroup may be the host's, while the container's own cgroup is the root.
    cgroups = Path("/sys/fs/cgroup")
    return [
        *(cgroups / path.lstrip("/") / "memory.events" for path in _find_cgroup()),
        cgroups / "memory.events",
        Path("/proc/vmstat"),
    ]


def _find_cgroup() -> list[str]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    return [line.removeprefix("0::") for line in lines if line.startswith("0::")]


def _read_count(file: Path) -> int | None:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [_KEY]), None)
