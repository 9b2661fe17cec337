"""Pure: how a run ended, from what the kernel said about it."""

from __future__ import annotations

import os
import signal

from evalrun_sandbox.contained.limits import MIB, STOP_FACTOR

EXITED, TIMEOUT, MEMORY_LIMIT, OUTPUT_LIMIT = range(4)
"""As in `frames.ENDS`."""

NEAR_LIMIT = 0.8
"""A crash with this share of the memory limit resident is taken for the limit's doing: an allocation that fails gives
NULL, and most programs then crash. A caught MemoryError and a normal end is a normal end."""

_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGKILL, signal.SIGILL, signal.SIGTRAP)
_OUT_OF_MEMORY_LINES = (b"MemoryError", b"numpy.core._exceptions._ArrayMemoryError", b"numpy._core._exceptions.")


class Stop:
    """Why the runner itself stopped a program."""

    TIME = "time"
    OUTPUT = "output"


class UnexplainedKillError(Exception):
    """SIGKILL, and neither the runner nor the program can have sent it: the machine ran out of memory."""


def end_of(
    *,
    status: int,
    stopped: str | None,
    cpu_seconds: float,
    time_limit: float,
    peak_kib: int,
    memory_mib: int,
    stderr: bytes,
    own_kill_possible: bool,
) -> tuple[int, int | None]:
    """Give the end and the exit code (negative: signal; None where a limit ended the run).

    Args:
        status: as wait4 gave it.
        stopped: a `Stop`, another reason that the runner had to stop the program, or None.
        cpu_seconds: used by the run.
        time_limit: CPU seconds it was allowed.
        peak_kib: most memory resident.
        memory_mib: its memory limit.
        stderr: what it wrote there.
        own_kill_possible: the program could have sent itself SIGKILL (no seccomp filter).

    Raises:
        UnexplainedKillError: see there.
    """
    code = os.waitstatus_to_exitcode(status)
    if stopped == Stop.OUTPUT:
        return OUTPUT_LIMIT, None
    if stopped == Stop.TIME or cpu_seconds >= STOP_FACTOR * time_limit:
        return TIMEOUT, None
    if stopped is not None:
        return EXITED, code
    if code == 1 and _last_line(stderr).startswith(_OUT_OF_MEMORY_LINES):
        return MEMORY_LIMIT, None
    if code == -signal.SIGABRT and b"std::bad_alloc" in stderr:
        return MEMORY_LIMIT, None
    if -code in _CRASHES and peak_kib * 1024 >= NEAR_LIMIT * memory_mib * MIB:
        return MEMORY_LIMIT, None
    if code == -signal.SIGKILL and not own_kill_possible:
        raise UnexplainedKillError
    return EXITED, code


def _last_line(text: bytes) -> bytes:
    return text.rstrip()[-1000:].rpartition(b"\n")[2]
