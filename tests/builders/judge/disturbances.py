"""What slows a machine from outside: other processes, and a quota of CPU."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_BURN = "items = list(range(1 << 18))\nwhile True: items.sort(key=lambda n: (n * 7919) % 10007)"
"""Takes CPU, caches and memory."""
_V1, _V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
_PERIOD_US = 100_000


class NoQuotaError(Exception):
    """This process may not make a control group with a quota of CPU."""


@contextmanager
def load_of(processes: int) -> Iterator[None]:
    """Keep so many other processes busy inside the block."""
    with ExitStack() as stack:
        for _ in range(processes):
            burning = subprocess.Popen([sys.executable, "-I", "-S", "-c", _BURN])
            stack.callback(burning.wait)
            stack.callback(burning.kill)
        yield


@contextmanager
def throttled(pid: int, cpus: float) -> Iterator[None]:
    """Hold a process, and what it starts and has started, to so much CPU inside the block. Raises NoQuotaError."""
    old = (_V1 / "cgroup.procs").exists()
    root = _V1 if old else _V2
    group = root / f"evalrun-test-{pid}"
    quota = int(cpus * _PERIOD_US)
    try:
        group.mkdir()
        if old:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (group / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
        for member in _family(pid):
            (group / "cgroup.procs").write_text(str(member))
    except OSError as error:
        _remove(group, root)
        raise NoQuotaError(f"no quota of CPU can be set here: {error}") from error
    try:
        yield
    finally:
        _remove(group, root)


def _remove(group: Path, root: Path) -> None:
    if not group.exists():
        return
    for member in (group / "cgroup.procs").read_text().split():
        try:
            (root / "cgroup.procs").write_text(member)
        except ProcessLookupError:
            continue  # it has just ended
    group.rmdir()


def _family(pid: int) -> list[int]:
    found = [pid]
    for member in found:  # the list is its own queue
        for task in Path(f"/proc/{member}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found
