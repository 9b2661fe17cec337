"""Classifies how a run ended, from what the kernel reported. Pure."""

import os
import signal

from evalrun_executor.api import End
from evalrun_executor.contained.frames import NOT_STOPPED, STOPPED_OUTPUT, STOPPED_TIME
from evalrun_executor.contained.limits import MIB, STOP_FACTOR
from evalrun_executor.errors import ExecutorLost

NEAR_LIMIT = 0.8
"""A crash with this share of the memory limit resident counts as caused by the limit: a failed allocation returns NULL,
and most programs then crash. A program that catches MemoryError and ends normally has ended normally."""

_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGKILL, signal.SIGILL, signal.SIGTRAP)
_OUT_OF_MEMORY_LINES = (b"MemoryError", b"numpy.core._exceptions._ArrayMemoryError", b"numpy._core._exceptions.")


class UnexplainedKill(ExecutorLost):
    """The program was ended by a SIGKILL that neither the runner nor the program can have sent.

    The machine ran out of memory, so nothing is known about the program.
    """


def classify_end(
    *,
    status: int,
    stopped: int,
    cpu_seconds: float,
    time_limit: float,
    peak_kib: int,
    memory_mib: int,
    resident_mib: int,
    stderr: bytes,
    own_kill_possible: bool,
) -> tuple[End, int | None]:
    """Return the end and the exit code (negative: signal; None if a limit ended the run).

    Args:
        status: the wait status from wait4.
        stopped: whether and why the runner stopped the program, a `STOPPED_*` of `frames` or `NOT_STOPPED`.
        cpu_seconds: CPU time of the run.
        time_limit: CPU seconds that the run was allowed.
        peak_kib: peak resident memory.
        memory_mib: memory limit of the program.
        resident_mib: resident memory that the program may have, its interpreter included.
        stderr: what the program wrote to stderr.
        own_kill_possible: the program could have sent itself SIGKILL (no seccomp filter).

    Raises:
        UnexplainedKill: the machine ran out of memory.
    """
    code = os.waitstatus_to_exitcode(status)
    if stopped == STOPPED_OUTPUT:
        return "output_limit", None
    # The runner checks the time at each tick, so a program may end by itself just past the limit: what it used decides.
    if stopped == STOPPED_TIME or cpu_seconds >= STOP_FACTOR * time_limit:
        return "timeout", None
    if stopped != NOT_STOPPED:
        return "exited", code
    # The kernel bounds addresses, not resident memory, so a program may pass the limit and still end normally.
    if peak_kib * 1024 > resident_mib * MIB:
        return "memory_limit", None
    # An uncaught MemoryError ends Python with status 1, which a wrong program may also have: its last line tells them
    # apart.
    if code == 1 and _find_last_line(stderr).startswith(_OUT_OF_MEMORY_LINES):
        return "memory_limit", None
    # An uncaught `std::bad_alloc` aborts a C++ program. libstdc++ names it on stderr.
    if code == -signal.SIGABRT and b"std::bad_alloc" in stderr:
        return "memory_limit", None
    if -code in _CRASHES and peak_kib * 1024 >= NEAR_LIMIT * memory_mib * MIB:
        return "memory_limit", None
    if code == -signal.SIGKILL and not own_kill_possible:
        raise UnexplainedKill("a program was killed by something else: the machine ran out of memory")
    return "exited", code


def _find_last_line(text: bytes) -> bytes:
    return text.rstrip()[-1000:].rpartition(b"\n")[2]
