"""The memory of a stopped interpreter, read from the kernel."""

from dataclasses import dataclass
from pathlib import Path

_MAPPING_BYTES = 256
"""Bytes of kernel memory per mapping; a process may have 65,530 mappings."""
_COUNTED = ("Pss:", "SwapPss:")


@dataclass(frozen=True)
class Footprint:
    """Resources that a process holds."""

    memory_bytes: int
    """Bytes of the process's own pages, and its share of the pages that other processes use too."""
    maps_removed_file: bool
    """Whether the process maps a removed file of its directory, which holds otherwise invisible disk space."""


def footprint(pid: int, place: str, proc: Path = Path("/proc")) -> Footprint | None:
    """Return the resources of a process, or None if the kernel does not reveal them.

    Args:
        pid: the process.
        place: the directory that holds the process's private directory.
        proc: where the process file system is mounted.
    """
    try:
        rollup = (proc / str(pid) / "smaps_rollup").read_text()
        maps = (proc / str(pid) / "maps").read_text(errors="replace").splitlines()
    except OSError:
        return None
    pages = sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith(_COUNTED)) * 1024
    removed = any(line.endswith(" (deleted)") and f" {place}/" in line for line in maps)
    return Footprint(pages + _MAPPING_BYTES * len(maps), removed)
