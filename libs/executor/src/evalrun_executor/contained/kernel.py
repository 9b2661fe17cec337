"""The few kernel calls that Python's `os` lacks, and process facts that `/proc` shows under Landlock."""

# ruff: noqa: PTH116
# Why: pathlib would make the zygote larger, and each fork dearer.
from __future__ import annotations

import os

from evalrun_executor.contained.c_types import Int, Long, Pointer, ULong, get_errno, load_function

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
# The number is the same on every architecture, as for all calls since Linux 5.1.
CLOSE_RANGE = 436

_syscall = load_function("syscall")
_syscall.restype = Long
_prctl, plain_prctl = load_function("prctl"), load_function("prctl")
"""prctl(2) without conversions: takes ints that fit a C int, or bytes for a pointer. Returns 0, or -1 on failure."""
_prctl.argtypes = [Int, ULong, Pointer, ULong, ULong]


def syscall(number: int, *arguments: object) -> int:
    """Call the kernel; integers must fit a C int or be values of `c_types`. Raises OSError."""
    result: int = _syscall(Long(number), *arguments)
    if result < 0:
        code = get_errno()
        raise OSError(code, os.strerror(code))
    return result


def prctl(option: int, argument: int, pointer: object = None) -> None:
    """Call prctl(2). Raises OSError."""
    if _prctl(option, argument, pointer, 0, 0) != 0:
        code = get_errno()
        raise OSError(code, os.strerror(code))


def trim_heap() -> None:
    """Give unused pages of the C library's heap back to the kernel: every mapped page makes each fork dearer."""
    try:
        load_function("malloc_trim")(0)
    # The C library is not glibc.
    except OSError:
        return


def close_from(first: int) -> None:
    """Close every descriptor from `first` on."""
    if _syscall(Long(CLOSE_RANGE), ULong(first), ULong(0xFFFFFFFF), ULong(0)) != 0:
        # Linux before 5.9 lacks the call.
        os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when `parent` ends.

    `parent` must be single-threaded, because the kernel watches the thread that forked.
    """
    prctl(PR_SET_PDEATHSIG, 9)
    # The kernel reports only an end after the request. `getppid` shows a parent that ended before.
    if os.getppid() != parent:
        os._exit(1)


def count_threads(pid: int) -> int:
    """Return how many threads a process has; 0 if the process has ended or this machine hides processes."""
    try:
        # Landlock lets us stat this directory, but not read it.
        return os.stat(f"/proc/{pid}/task").st_nlink - 2
    except OSError:
        return 0
