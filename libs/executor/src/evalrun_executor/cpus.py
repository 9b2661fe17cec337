"""Counts the programs that this process's share of the machine runs at full speed."""

import os
from pathlib import Path, PurePosixPath


def usable_cpus(root: Path = Path("/")) -> int:
    """Return the number of CPUs that this process may use: its affinity, or its quota if that is less; at least 1.

    `docker run --cpus 2` and a pod's limit set a quota and no affinity: on a machine of 64 CPUs 64 slots would leave
    each program a thirtieth of a CPU. Quotas of control groups of version 2 are found.

    Args:
        root: the directory that contains /proc and /sys.
    """
    # Systems other than Linux have no affinity. There a service must get far enough to report that it runs on Linux
    # only.
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([bound, *map(int, _read_quotas(root))]))


def _read_quotas(root: Path) -> list[float]:
    """Return the quotas, in CPUs, of this process's control group and the groups above it that have a quota."""
    groups = _read_text(root / "proc/self/cgroup")
    own = next((line.removeprefix("0::/") for line in groups.splitlines() if line.startswith("0::/")), "")
    found = []
    for group in (PurePosixPath(own), *PurePosixPath(own).parents):
        quota, _, period = _read_text(root / "sys/fs/cgroup" / group / "cpu.max").partition(" ")
        if quota.isdigit() and period.strip().isdigit() and int(period):
            found.append(int(quota) / int(period))
    return found


def _read_text(file: Path) -> str:
    """Return a file's content, or an empty text if it does not exist (older kernel, container's own view)."""
    try:
        return file.read_text()
    except OSError:
        return ""
