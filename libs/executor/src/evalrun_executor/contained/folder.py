"""The private folder of a slot: what a program may fill, measured while it runs and emptied after each test.

Programs may nest folders deeper than PATH_MAX and take their own rights to them away, so everything goes by
descriptor, folder by folder, and rights are given back before looking.
"""

# ruff: noqa: PTH116
# Why: pathlib and contextlib would make the zygote larger, and each fork dearer.
from __future__ import annotations

import os
import stat

from evalrun_executor.contained.limits import OPEN_FILES

FILES = 1000
TOTAL_MIB = 128
DEPTH = 16
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def breach(folder: str) -> str | None:
    """Return how the folder passes its bounds; None where it does not."""
    return measure(folder)[0]


def measure(folder: str) -> tuple[str | None, int]:
    """Return how the folder passes its bounds, None where it does not, and the bytes of its files."""
    totals = [0, 0]
    root = os.open(folder, _OPEN)
    try:
        deeper = _measure(root, totals, DEPTH)
    except OSError:  # it changed underneath us: the next look will tell
        return None, totals[1]
    finally:
        os.close(root)
    reason = None
    if not deeper:
        reason = f"folders nested deeper than {DEPTH}"
    elif totals[0] > FILES:
        reason = f"more than {FILES} files"
    elif totals[1] > TOTAL_MIB * 1024 * 1024:
        reason = f"more than {TOTAL_MIB} MiB in files"
    return reason, totals[1]


def free_bytes(folder: str) -> int:
    """Return the room that is left on the folder's file system."""
    found = os.statvfs(folder)
    return found.f_bfree * found.f_frsize


def hidden_breach(folder: str, pid: int) -> str | None:
    """Return the complaint if a process holds more than the folder's bound in open files without a name, else None.

    The kernel shows a process's descriptors to the process's own user as long as the process is dumpable. A process
    whose first thread has exited shows no descriptors: this function assumes that such a process exceeds the bound.
    """
    device = os.stat(folder).st_dev
    try:
        os.stat(f"/proc/{pid}/exe")
    except FileNotFoundError:
        return f"more than {TOTAL_MIB} MiB in files without a name, as far as can be seen"
    except OSError:  # it may not be dumped, or its user is not ours
        return None
    sizes: dict[int, int] = {}
    for fd in range(OPEN_FILES):
        try:
            found = os.stat(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
        if found.st_dev == device and found.st_nlink == 0 and stat.S_ISREG(found.st_mode):
            sizes[found.st_ino] = found.st_blocks * 512
    total = sum(sizes.values())
    return f"more than {TOTAL_MIB} MiB in files without a name" if total > TOTAL_MIB * 1024 * 1024 else None


def _measure(fd: int, totals: list[int], depth: int) -> bool:
    with os.scandir(fd) as entries:
        for entry in entries:
            totals[0] += 1
            if totals[0] > FILES:
                return True
            try:
                found = entry.stat(follow_symlinks=False)
                totals[1] += found.st_blocks * 512
                if not stat.S_ISDIR(found.st_mode):
                    continue
                if depth == 0:
                    return False
                child = _enter(entry.name, fd)
            except OSError:  # it has gone, or become something else: what is beside it still counts
                continue
            try:
                if not _measure(child, totals, depth - 1):
                    return False
            finally:
                os.close(child)
    return True


def _enter(name: str, parent: int) -> int:
    try:
        return os.open(name, _OPEN, dir_fd=parent)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=parent)
        return os.open(name, _OPEN, dir_fd=parent)


def empty(folder: str) -> None:
    """Remove everything in the folder. Raises OSError."""
    fd = os.open(folder, _OPEN)
    try:
        names: list[str] = []  # from the folder down to `fd`
        while True:
            inner = _remove_flat(fd)
            if inner is not None:
                deeper = _enter(inner, fd)
                os.close(fd)
                fd = deeper
                names.append(inner)
            elif names:
                above = os.open("..", _OPEN, dir_fd=fd)
                os.close(fd)
                fd = above
                os.rmdir(names.pop(), dir_fd=fd)
            else:
                return
    finally:
        os.close(fd)


def _remove_flat(fd: int) -> str | None:
    """Remove the files and the empty folders in `fd`; gives a folder that is not empty, if there is one."""
    os.fchmod(fd, 0o700)
    inner = None
    with os.scandir(fd) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=fd)
                continue
            try:
                os.rmdir(entry.name, dir_fd=fd)
            except OSError:
                inner = entry.name
    return inner
