"""Number of programs that this process's share of the machine runs at full speed."""

import os
from pathlib import Path, PurePosixPath


def usable_cpus(root: Path = Path("/")) -> int:
    """Return the CPUs that this process may use: those it is bound to, fewer where a quota gives it less, at least 1.

    `docker run --cpus 2` and a pod's limit set a quota and no affinity: on a machine of 64 CPUs 64 slots
    would leave each program a thirtieth of a CPU. Quotas of control groups of version 2 are found.

    Args:
        root: where /proc and /sys are.
    """
    bound = len(os.sched_getaffinity(0))
    return max(1, min([bound, *map(int, _quotas(root))]))


def _quotas(root: Path) -> list[float]:
    """Return the CPUs that this process's control group and those above it may use, of each that has a quota."""
    groups = _text(root / "proc/self/cgroup")
    own = next((line.removeprefix("0::/") for line in groups.splitlines() if line.startswith("0::/")), "")
    found = []
    for group in (PurePosixPath(own), *PurePosixPath(own).parents):
        quota, _, period = _text(root / "sys/fs/cgroup" / group / "cpu.max").partition(" ")
        if quota.isdigit() and period.strip().isdigit() and int(period):
            found.append(int(quota) / int(period))
    return found


def _text(file: Path) -> str:
    """Return a file's content, or an empty text if it does not exist (older kernel, container's own view)."""
    try:
        return file.read_text()
    except OSError:
        return ""
