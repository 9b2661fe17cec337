"""The private directory of a slot: bounds what a program may write, and is emptied after each test.

Programs may nest directories deeper than PATH_MAX and remove their own rights to them. Everything therefore goes by
descriptor, directory by directory, and rights are restored before looking.
"""

# ruff: noqa: PTH116
# Why: pathlib and contextlib would make the zygote larger, and each fork dearer.
from __future__ import annotations

import os
import stat

from evalrun_executor.contained.kernel import count_threads
from evalrun_executor.contained.limits import OPEN_FILES

FILES = 1000
TOTAL_MIB = 128
DEPTH = 16
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def find_breach(directory: str) -> str | None:
    """Return how the directory exceeds its bounds, or None."""
    return measure(directory)[0]


def measure(directory: str) -> tuple[str | None, int]:
    """Return how the directory exceeds its bounds, or None, and the bytes of its files."""
    totals = [0, 0]
    root = os.open(directory, _OPEN)
    try:
        deeper = _measure(root, totals, DEPTH)
    except OSError:
        # The program changed the directory during the measurement. The next check, 20 ms later, finds a breach.
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


def count_free_bytes(directory: str) -> int:
    """Return the free bytes on the directory's file system."""
    found = os.statvfs(directory)
    return found.f_bfree * found.f_frsize


def find_hidden_breach(directory: str, pid: int) -> str | None:
    """Return the complaint if a process holds too many bytes in open files without a name, else None.

    The bound is that of the directory. The kernel shows a process's descriptors to the process's own user as long as
    the process is dumpable. A process whose first thread has exited shows no descriptors: this function assumes that
    such a process exceeds the bound, unless that thread is its only thread. Then the process is ending, which takes
    long if it had much memory.
    """
    device = os.stat(directory).st_dev
    try:
        os.stat(f"/proc/{pid}/exe")
    except FileNotFoundError:
        if count_threads(pid) == 1:
            return None
        return f"more than {TOTAL_MIB} MiB in files without a name, as far as can be seen"
    except OSError:
        # The process is not dumpable, or belongs to another user.
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
                child = _open_directory(entry.name, fd)
            except OSError:
                # The entry has gone, or has changed its kind. The entries beside it still count.
                continue
            try:
                if not _measure(child, totals, depth - 1):
                    return False
            finally:
                os.close(child)
    return True


def _open_directory(name: str, parent: int) -> int:
    try:
        return os.open(name, _OPEN, dir_fd=parent)
    except PermissionError:
        # A program may take its own rights to a directory away.
        os.chmod(name, 0o700, dir_fd=parent)
        return os.open(name, _OPEN, dir_fd=parent)


def empty(directory: str) -> None:
    """Remove everything in the directory. Raises OSError."""
    fd = os.open(directory, _OPEN)
    try:
        # One descriptor walks down and up again: a descriptor per level would run out in a deep nest, and paths longer
        # than PATH_MAX cannot be opened. `names` leads from the directory down to `fd`.
        names: list[str] = []
        while True:
            inner = _remove_flat(fd)
            if inner is not None:
                deeper = _open_directory(inner, fd)
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
    """Remove the files and the empty directories in `fd`. Return a directory that is not empty, or None."""
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
