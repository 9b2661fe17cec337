"""Resource limits of contained processes."""

from __future__ import annotations

import resource
import time

MIB = 1024 * 1024
STOP_FACTOR = 1.2
"""A program is stopped at this many times its CPU limit; between 1.0 and this it is run again alone."""
INTERPRETER_MIB = 64
"""Address space that the interpreter itself takes (30 MiB measured), on top of the program's own limit. It exceeds
what the interpreter holds, so that the resident memory decides (`resident_limit_mib`)."""
RUNNER_RESIDENT_MIB = 24
"""Resident memory of a runner that becomes an executed program: the program's peak is at least this."""
PYTHON_STACK_MIB = 64
"""Main thread's stack. Threads get 8 MiB, as usual, unless the program asks for another size."""
FILE_MIB = 64
"""Largest file in the private directory."""
MAX_INPUT_MIB = 4096
"""Maximum size of what a harness worker writes itself: the memory files of inputs."""
OPEN_FILES = 256
CPU_SLACK_SECONDS = 5
"""CPU seconds that a runner may use before it must raise its own CPU limit, which it does after each group of tests."""
TASKS_PER_USER = 8192
"""RLIMIT_NPROC counts all threads of the user, the neighbours' too, so this is a far backstop: the runner stops a
program at `supervision.THREADS` threads, and fork is denied."""

SESSION_OPEN_FILES = 64
"""Maximum open files of a session: its idle pipes and sockets use the kernel's memory, which RLIMIT_AS does not
count."""
SESSION_TASKS_PER_USER = TASKS_PER_USER * 3 // 4
"""Counted over all of the user's threads like TASKS_PER_USER: what all sessions hold leaves programs the rest."""
SESSION_PENDING_SIGNALS = 64
"""Counted over the user's processes too: below the 256 of programs, for the same reason."""


def wall_limit(time_seconds: float) -> float:
    """Return the wall seconds after which a program is stopped in any case.

    A program that lacked CPU time until then is run again alone; see `timeouts`.
    """
    return 2 * time_seconds + 5


def resident_limit_mib(memory_mib: int, idle_mib: int) -> int:
    """Return the resident memory above which a program has passed its limit, whatever it was allowed to map.

    Args:
        memory_mib: the limit.
        idle_mib: resident memory of an idle program in the language.
    """
    return max(memory_mib + idle_mib, RUNNER_RESIDENT_MIB)


def _round_up(seconds: float) -> int:
    """Round up as `math.ceil` does, without loading `math`, which is a file of its own."""
    return -int(-seconds // 1)


def _set_limit(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(what, (value, value))


def limit_program(
    time_seconds: float, memory_mib: int, max_input_bytes: int, *, executed: bool, reserved_mib: int
) -> None:
    """Limit this process, a runner, and the children that it forks.

    Args:
        time_seconds: CPU seconds.
        memory_mib: what a child may map, its language's own share included.
        max_input_bytes: size of the largest file that the runner writes.
        executed: each child becomes another program.
        reserved_mib: further addresses that a child may reserve. `memory_mib` then bounds private writable memory only,
            which native code escapes by a growing stack; the limit of addresses bounds that too.

    The limits are set once, because ten calls in each child would take 0.2 ms. The filter lets a child change its stack
    limit only, so soft limits suffice where a runner needs the hard limit.
    """
    _set_limit(resource.RLIMIT_AS, (memory_mib + reserved_mib) * MIB)
    if reserved_mib > 0:
        _set_limit(resource.RLIMIT_DATA, memory_mib * MIB)
    _limit_common(max(FILE_MIB, max_input_bytes // MIB + 1))
    _, max_bytes = resource.getrlimit(resource.RLIMIT_STACK)
    if executed and max_bytes == resource.RLIM_INFINITY:
        # Contest programs recurse deeply, as far as their memory goes. glibc also gives each of their threads a stack
        # of this limit: 256 MiB left room for two threads in 512.
        resource.setrlimit(resource.RLIMIT_STACK, (max_bytes, max_bytes))
    else:
        _limit_stack(PYTHON_STACK_MIB)
    refresh_cpu_limit(time_seconds)


def _limit_stack(stack_mib: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = stack_mib * MIB if hard == resource.RLIM_INFINITY else min(stack_mib * MIB, hard)
    # The hard limit stays, because some programs raise their soft limit.
    resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))


def limit_session(memory_mib: int, max_file_bytes: int) -> None:
    """Limit this process, a session's worker, and the interpreter that it forks.

    No CPU limit is set: the kernel's limit counts a process's whole life, and a session has no end. The worker watches
    each execution instead.
    """
    _set_limit(resource.RLIMIT_AS, (memory_mib + INTERPRETER_MIB) * MIB)
    _limit_common(max(FILE_MIB, max_file_bytes // MIB + 1))
    _limit_stack(PYTHON_STACK_MIB)
    _set_limit(resource.RLIMIT_NOFILE, SESSION_OPEN_FILES)
    _set_limit(resource.RLIMIT_NPROC, SESSION_TASKS_PER_USER)
    _set_limit(resource.RLIMIT_SIGPENDING, SESSION_PENDING_SIGNALS)


def limit_harness_worker() -> None:
    """Set the limits of this harness worker, and so of its children, that no job changes."""
    _limit_common(MAX_INPUT_MIB)
    _limit_stack(PYTHON_STACK_MIB)


def compute_job_limits(time_seconds: float, memory_mib: int, output_bytes: int) -> list[tuple[int, tuple[int, int]]]:
    """Return the soft and hard limits that a harness worker's child sets for itself."""
    wanted = (
        (resource.RLIMIT_AS, (memory_mib + INTERPRETER_MIB) * MIB),
        (resource.RLIMIT_FSIZE, max(FILE_MIB * MIB, output_bytes + MIB)),
        (resource.RLIMIT_CPU, _round_up(time_seconds * STOP_FACTOR) + CompileLimits.CPU_SECONDS + CPU_SLACK_SECONDS),
    )
    found = []
    for what, value in wanted:
        _, hard = resource.getrlimit(what)
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        found.append((what, (least, least)))
    return found


def refresh_cpu_limit(time_seconds: float) -> None:
    """Set the CPU limit that the next children inherit, in whole seconds. It is only a backstop.

    The runner counts its own seconds against the limit, so the limit moves on as they pass.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    wanted = int(time.process_time()) + _round_up(time_seconds * STOP_FACTOR) + CPU_SLACK_SECONDS
    if hard == resource.RLIM_INFINITY or wanted <= hard:
        resource.setrlimit(resource.RLIMIT_CPU, (wanted, hard))


def limit_compiler(cpu_seconds: int, memory_mib: int, file_mib: int) -> None:
    """Limit this process and each stage that it starts as a compiler."""
    _set_limit(resource.RLIMIT_AS, memory_mib * MIB)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    _limit_common(file_mib)


def _limit_common(file_mib: int) -> None:
    _set_limit(resource.RLIMIT_FSIZE, file_mib * MIB)
    _set_limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    _set_limit(resource.RLIMIT_NPROC, TASKS_PER_USER)
    # With a limit of 0 the kernel would still pipe a dump to the machine's program for dumps, if it has such a program.
    _set_limit(resource.RLIMIT_CORE, 1)
    _set_limit(resource.RLIMIT_MEMLOCK, 0)
    _set_limit(resource.RLIMIT_MSGQUEUE, 0)
    _set_limit(resource.RLIMIT_SIGPENDING, 256)


class CompileLimits:
    """Soft limits around Python's own compiler, in the runner. The children set their own limits afterwards."""

    CPU_SECONDS = 10
    MEMORY_MIB = 1024

    def __enter__(self) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        spent = _round_up(used.ru_utime + used.ru_stime)
        self._memory = resource.getrlimit(resource.RLIMIT_AS)
        self._cpu = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_AS, (self.MEMORY_MIB * MIB, self._memory[1]))
        resource.setrlimit(resource.RLIMIT_CPU, (spent + self.CPU_SECONDS, self._cpu[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_AS, self._memory)
        resource.setrlimit(resource.RLIMIT_CPU, self._cpu)
