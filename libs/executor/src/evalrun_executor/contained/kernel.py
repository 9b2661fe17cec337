"""The few kernel calls that Python's `os` lacks."""

from __future__ import annotations

import os

from evalrun_executor.contained.c_types import Int, Long, Pointer, ULong, function, get_errno

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
CLOSE_RANGE = 436  # the same number on every architecture, like all calls since Linux 5.1

_syscall = function("syscall")
_syscall.restype = Long
_prctl, plain_prctl = function("prctl"), function("prctl")
"""prctl(2) without conversions: ints that fit a C int, or bytes for a pointer; gives 0, or -1 where it failed."""
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
        function("malloc_trim")(0)
    except OSError:  # a C library other than glibc
        return


def close_from(first: int) -> None:
    """Close every descriptor from `first` on."""
    if _syscall(Long(CLOSE_RANGE), ULong(first), ULong(0xFFFFFFFF), ULong(0)) != 0:
        os.closerange(first, os.sysconf("SC_OPEN_MAX"))  # Linux before 5.9


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when `parent` ends.

    `parent` must be single-threaded, because the kernel watches the thread that forked.
    """
    prctl(PR_SET_PDEATHSIG, 9)
    if os.getppid() != parent:  # it ended before the request was made
        os._exit(1)
