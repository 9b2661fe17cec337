"""Compiles programs. The compiler driver runs as a separate contained child, under another policy than programs."""

# ruff: noqa: PTH109, PTH113, PTH123, SIM105
# Why: pathlib and contextlib would make the zygote larger, and each fork dearer.
from __future__ import annotations

import os
import time

from evalrun_executor.contained.frames import NOT_STOPPED, STOPPED_TIME, Job
from evalrun_executor.contained.kernel import PR_SET_CHILD_SUBREAPER, close_from, die_with, prctl
from evalrun_executor.contained.limits import MIB, limit_compiler
from evalrun_executor.contained.site import Site
from evalrun_executor.contained.supervision import ChildSupervisor, Pipes, expect_children, expect_none, open_pipes

CPU_SECONDS = 30
WALL_FACTOR = 3
WALL_SECONDS = WALL_FACTOR * CPU_SECONDS
MEMORY_MIB = 2048
BINARY_MIB = 64
_OUTPUT = "a.out"
_KILLED = (9, 128 + 9 << 8)
"""Wait statuses of a process that SIGKILL ended, and of a shell whose last command SIGKILL ended. No compiler sends
itself a SIGKILL."""


class Compiled:
    """Result of compiling."""

    def __init__(
        self,
        status: int,
        seconds: float,
        stderr: bytes,
        binary: int | None = None,
        *,
        killed: bool = False,
        held_up: bool = False,
    ) -> None:
        self.status = status
        self.seconds = seconds
        self.stderr = stderr
        self.binary = binary
        """A memory file."""
        self.killed = killed
        self.held_up = held_up
        """Whether the wall clock stopped the compiler, see `is_held_up`."""


class Stage:
    """A running compiler."""

    def __init__(self, pid: int, pipes: Pipes, cpu_seconds: int) -> None:
        self.pid = pid
        self._pipes = pipes
        self._started = time.monotonic()
        self._cpu = _read_children_cpu()
        self._cpu_seconds = cpu_seconds

    def finish(self, supervisor: ChildSupervisor) -> Compiled:
        """Wait for the compiler and all that it started. Raises ServiceGoneError."""
        try:
            limits = (self._cpu_seconds, WALL_FACTOR * self._cpu_seconds)
            outcome = supervisor.watch_child(self.pid, self._pipes, self._started, limits)
        finally:
            # The driver may leave stages behind (`cc1`, `ld`). They would write on while the next test runs.
            _reap_all(self.pid)
        seconds = time.monotonic() - self._started
        killed = outcome.stopped == NOT_STOPPED and outcome.status in _KILLED
        used, limit = _read_children_cpu() - self._cpu, self._cpu_seconds
        if outcome.stopped == STOPPED_TIME or is_out_of_time(killed, outcome.cpu_seconds, used, limit):
            return Compiled(2, seconds, outcome.stderr, held_up=is_held_up(outcome.stopped, used, limit))
        if killed:
            return Compiled(1, seconds, outcome.stderr, killed=True)
        if outcome.status != 0 or not os.path.isfile(_OUTPUT):
            return Compiled(1, seconds, outcome.stderr or b"the compiler failed without a word\n")
        return Compiled(0, seconds, outcome.stderr, _copy_to_memory_file())


def start_compiler(site: Site, job: Job, source: str) -> Stage:
    """Start the compiler in the current directory, the slot's private one, on a file named `source`.

    `job.mode` is the command line, split at newlines, as a language's `Compilation` describes it, but with the
    compiler's path for `{compiler}`; `job.time_seconds` is the limit of its CPU time, 0 for the default.
    Raises OSError.
    """
    cpu_seconds = int(job.time_seconds) or CPU_SECONDS
    paths = {"{source}": source, "{output}": _OUTPUT}
    command = [paths.get(word, word) for word in job.mode.split("\n")]
    with open(source, "wb") as file:
        file.write(job.code)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    pipes = open_pipes(os.open("/dev/null", os.O_RDONLY))
    runner = os.getpid()
    expect_children()
    pid = os.fork()
    if pid == 0:
        die_with(runner)
        expect_none()
        # The driver and its stages are one group, which `_reap_all` kills as a whole.
        os.setpgid(0, 0)
        for place in (0, 1, 2):
            os.dup2(pipes[place], place)
        close_from(3)
        limit_compiler(cpu_seconds, MEMORY_MIB, BINARY_MIB)
        if site.compiler_filter is not None:
            site.compiler_filter.install()
        environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TMPDIR": os.getcwd()}
        # Without the `finally` a failed start would run on as a second runner.
        try:
            os.execve(command[0], command, environment)  # noqa: S606
        finally:
            os._exit(127)
    return Stage(pid, pipes, cpu_seconds)


def is_out_of_time(killed: bool, driver_seconds: float, all_seconds: float, limit: int) -> bool:
    """Return whether the compiler passed its limit of CPU time. Pure.

    Args:
        killed: SIGKILL ended the driver. The limit's hard bound sends it too, to a stage that ignores SIGXCPU as Go's
            do; the driver, which is killed with it, has not taken over what the stage used.
        driver_seconds: CPU time of the driver and of what it has waited for.
        all_seconds: CPU time of all processes that were started. Several parallel stages may legitimately use more
            than the limit of a single stage.
        limit: CPU seconds of each process.
    """
    return driver_seconds >= limit or (killed and all_seconds >= limit)


def is_held_up(stopped: int, all_seconds: float, limit: int) -> bool:
    """Return whether the wall clock stopped a compiler that, with all its stages, had not used its CPU time. Pure.

    It slept, or the machine was too busy for it. The service, which may read `/proc`, tells the two apart.
    """
    return stopped == STOPPED_TIME and all_seconds < limit


def _read_children_cpu() -> float:
    """Return CPU seconds of all children that have been reaped."""
    times = os.times()
    return times.children_user + times.children_system


def _reap_all(group: int) -> None:
    """Kill and reap the stages that the driver left behind. This process inherits them as their subreaper."""
    while True:
        try:
            os.killpg(group, 9)
        except ProcessLookupError:
            pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _copy_to_memory_file() -> int | None:
    with open(_OUTPUT, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > BINARY_MIB * MIB:
            return None
        binary = os.memfd_create("program")
        offset = 0
        while offset < size:
            offset += os.sendfile(binary, file.fileno(), offset, size - offset)
    return binary
