"""Supervises a child: drains its output, holds it to its limits, and reaps it."""

# ruff: noqa: SIM105
# Why: pathlib and contextlib would make the zygote larger, and each fork dearer.
from __future__ import annotations

import os
import select
import time
from _collections_abc import Callable
from _signal import (  # type: ignore[import-not-found]  # no stubs; `signal` itself makes enums of what it gives
    SIG_BLOCK,
    SIG_SETMASK,
    SIGCHLD,
    pthread_sigmask,
    sigtimedwait,
)
from resource import struct_rusage

from evalrun_executor.contained import directory
from evalrun_executor.contained.frames import NOT_STOPPED, STOP, STOPPED_OTHER, STOPPED_OUTPUT, STOPPED_TIME
from evalrun_executor.contained.kernel import count_threads
from evalrun_executor.contained.limits import MIB

TICK_SECONDS = 0.02
"""Seconds between two checks of a running child. They bound by how much the child can exceed a limit that the kernel
does not enforce."""
QUICK_SECONDS = 0.04
THREADS = 256
KEPT_STDERR = 1 << 16
"""Bytes at the end of stderr that are kept: a traceback stands there. Nobody compares stderr, so a longer text is no
failure."""
_SERVICE_LEFT = -1
_CHUNK = 1 << 18
_PIPE_BYTES = 1 << 16
CHILD_ENDED = (SIGCHLD,)
wait_for_signal = sigtimedwait
SERVICE_GONE, FAULTY = 3, 4
"""Exit statuses of a runner or a harness worker that could not go on."""


def expect_children() -> None:
    """Block SIGCHLD in this process, so that `sigtimedwait` can wait for it. `expect_none` undoes it in a child."""
    pthread_sigmask(SIG_BLOCK, CHILD_ENDED)


def expect_none() -> None:
    """Block no signal, as an ordinary program starts."""
    pthread_sigmask(SIG_SETMASK, ())


class ServiceGoneError(Exception):
    """The service closed its end, so nobody waits for the answer."""


class _Stop(Exception):  # noqa: N818 - an order, not an error
    """The child has to be stopped."""

    def __init__(self, why: int, reason: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.reason = reason


class ChildResult:
    """Raw facts about the end of a child."""

    def __init__(self, stopped: int, status: int, cpu_seconds: float, wall_seconds: float, peak_kib: int) -> None:
        self.stopped = stopped
        self.status = status
        self.cpu_seconds = cpu_seconds
        self.wall_seconds = wall_seconds
        self.peak_kib = peak_kib
        self.stdout = b""
        self.stderr = b""


Ended = tuple[int, "struct_rusage", float]
"""Wait status, usage, wall seconds."""
Limits = Callable[[], "tuple[float, float]"]
"""Returns the CPU and wall seconds at which a child is stopped; called again at each check."""
Pipes = tuple[int, int, int, int, int]
"""The descriptors of one child: its stdin, stdout and stderr, and our ends of the latter two."""


def open_pipes(stdin: int) -> Pipes:
    """Return the descriptors for a child that reads `stdin`."""
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    return stdin, out_end, err_end, out, err


class ChildSupervisor:
    """Supervises the children of a slot; holds what is the same for all tests."""

    def __init__(self, service: int, work_directory: str, output_bytes: int, cpus: int, *, may_fork: bool) -> None:
        self._may_fork = may_fork
        self._service = service
        self._folder = work_directory
        self.output_bytes = output_bytes
        self._files: tuple[int, ...] = ()
        self._cut = -1
        """The descriptor whose output is truncated to its end."""
        self._kept = min(KEPT_STDERR, output_bytes)
        self._free = 0
        self._cpus = cpus
        self.quick_seconds = QUICK_SECONDS
        self._poller = select.poll()
        self._poller.register(service, select.POLLIN | select.POLLRDHUP)

    def read_outcome(self, ended: Ended, pipes: Pipes) -> ChildResult:
        """Return the result of a child that ended within `quick_seconds`, and close its pipes."""
        status, usage, wall = ended
        outcome = ChildResult(NOT_STOPPED, status, usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss)
        for fd in pipes[:3]:
            os.close(fd)
        outcome.stdout = self._read_rest(pipes[3], b"", outcome)
        outcome.stderr = self._read_end(pipes[4], b"")
        return outcome

    def watch_child(self, pid: int, pipes: Pipes, started: float, limits: tuple[float, float]) -> ChildResult:
        """Watch `pid` to its end and reap it.

        Args:
            pid: a child of this process.
            pipes: the child's descriptors and ours; all of them are closed here.
            started: time of the start, by the monotonic clock.
            limits: CPU seconds and wall seconds at which the child is stopped.

        Raises:
            ServiceGoneError: the service left; the child is dead and reaped.
        """
        out, err = pipes[3:]
        self._cut = err
        for fd in pipes[:3]:
            os.close(fd)
        pidfd = os.pidfd_open(pid)
        self._poller.register(pidfd, select.POLLIN)
        texts = {out: bytearray(), err: bytearray()}
        stopped, reason = NOT_STOPPED, ""
        self._free = directory.count_free_bytes(self._folder)
        try:
            self._watch(pid, pidfd, texts, started, lambda: limits)
        except _Stop as stop:
            stopped, reason = stop.why, stop.reason
        finally:
            self._poller.unregister(pidfd)
            os.close(pidfd)
        if stopped != NOT_STOPPED:
            _kill(pid)
        _, status, usage = os.wait4(pid, 0)
        # Take this child's SIGCHLD. Otherwise the next child would seem to have ended at once.
        sigtimedwait(CHILD_ENDED, 0)
        wall = time.monotonic() - started
        outcome = ChildResult(stopped, status, usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss)
        outcome.stdout = self._read_rest(out, bytes(texts[out]), outcome)
        outcome.stderr = self._read_end(err, bytes(texts[err]))
        if len(outcome.stdout) + len(outcome.stderr) >= _PIPE_BYTES:
            # The child filled a pipe and waited for us to read. The next children of this program will do so too, so
            # their pipes are read from their start.
            self.quick_seconds = 0.0
        if stopped == _SERVICE_LEFT:
            raise ServiceGoneError
        if stopped == STOPPED_OTHER:
            outcome.stderr += f"\nstopped by the sandbox: {reason}\n".encode()
        return outcome

    def watch_filed_child(self, pid: int, files: tuple[int, ...], started: float, limits: Limits) -> ChildResult:
        """Supervise like `watch_child`, for a child that writes into open files: in memory, or the service's pipes."""
        pidfd = os.pidfd_open(pid)
        self._poller.register(pidfd, select.POLLIN)
        self._files = files
        stopped, reason = NOT_STOPPED, ""
        self._free = directory.count_free_bytes(self._folder)
        try:
            self._watch(pid, pidfd, {}, started, limits)
        except _Stop as stop:
            stopped, reason = stop.why, stop.reason
        finally:
            self._files = ()
            self._poller.unregister(pidfd)
            os.close(pidfd)
        if stopped != NOT_STOPPED:
            _kill(pid)
        _, status, usage = os.wait4(pid, 0)
        # Take this child's SIGCHLD. Otherwise the next child would seem to have ended at once.
        sigtimedwait(CHILD_ENDED, 0)
        if stopped == _SERVICE_LEFT:
            raise ServiceGoneError
        if stopped == STOPPED_OTHER:
            try:
                os.lseek(files[1], 0, os.SEEK_END)
            except OSError:
                # A pipe has no position.
                pass
            os.set_blocking(files[1], True)
            os.write(files[1], f"\nstopped by the sandbox: {reason}\n".encode())
        cpu = usage.ru_utime + usage.ru_stime
        return ChildResult(stopped, status, cpu, time.monotonic() - started, usage.ru_maxrss)

    def _read_rest(self, fd: int, text: bytes, outcome: ChildResult) -> bytes:
        """Return all that the dead child wrote, up to the cap, and close our end."""
        # Reading ends because nobody else holds the other end any more. On machines where programs may fork, a process
        # that outlived the child may hold it: reading must not wait for that process.
        cap = self.output_bytes
        if self._may_fork:
            os.set_blocking(fd, False)
        try:
            while len(text) <= cap and (data := os.read(fd, _CHUNK)):
                text += data
        except BlockingIOError:
            pass
        os.close(fd)
        if len(text) > cap:
            outcome.stopped = outcome.stopped or STOPPED_OUTPUT
            return text[:cap]
        return text

    def _read_end(self, fd: int, text: bytes) -> bytes:
        """Return the end of what the dead child wrote, and close our end; see `_read_rest`."""
        if self._may_fork:
            os.set_blocking(fd, False)
        try:
            while data := os.read(fd, _CHUNK):
                text = (text + data)[-self._kept :]
        except BlockingIOError:
            pass
        os.close(fd)
        return text[-self._kept :]

    def _watch(self, pid: int, pidfd: int, texts: dict[int, bytearray], started: float, limits: Limits) -> None:
        """Drain the pipes and check the child at each tick until it has ended. Raises _Stop to have it stopped."""
        next_look = time.monotonic() + TICK_SECONDS
        open_ends = set(texts)
        for fd in texts:
            self._poller.register(fd, select.POLLIN)
        try:
            while True:
                left = next_look - time.monotonic()
                if left <= 0:
                    stop_at, wall = limits()
                    used = self._check_child(pid, stop_at, started + wall)
                    # Threads on all CPUs together reach the limit no sooner than this.
                    left = min(TICK_SECONDS, max((stop_at - used) / self._cpus, 0.001))
                    next_look = time.monotonic() + left
                for fd, events in self._poller.poll(left * 1000):
                    if fd == pidfd:
                        return
                    if fd == self._service:
                        raise _Stop(self._read_order())
                    if _read_some(fd, texts[fd], events) == 0:
                        self._poller.unregister(fd)
                        open_ends.discard(fd)
                    elif fd == self._cut:
                        if len(texts[fd]) > 2 * self._kept:
                            del texts[fd][: -self._kept]
                    elif len(texts[fd]) > self.output_bytes:
                        raise _Stop(STOPPED_OUTPUT)
        finally:
            for fd in open_ends:
                self._poller.unregister(fd)

    def _read_order(self) -> int:
        """Return why the service wants the child stopped."""
        try:
            return STOPPED_OUTPUT if os.read(self._service, 1) == STOP else _SERVICE_LEFT
        except ConnectionResetError:
            return _SERVICE_LEFT

    def _check_child(self, pid: int, stop_at: float, deadline: float) -> float:
        """Return the CPU seconds that the child has used. Raises _Stop if the child exceeds a limit."""
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            # The child has just ended and shows no descriptors any more: the check below would report that it hides
            # them.
            return 0.0
        try:
            used = read_cpu_seconds(pid)
        except OSError:
            # The child has ended in between.
            return 0.0
        threads = count_threads(pid)
        if used >= stop_at or time.monotonic() >= deadline:
            raise _Stop(STOPPED_TIME)
        if threads > THREADS:
            raise _Stop(STOPPED_OTHER, f"more than {THREADS} threads")
        if any(os.fstat(fd).st_size > self.output_bytes for fd in self._files):
            raise _Stop(STOPPED_OUTPUT)
        reason = directory.find_breach(self._folder)
        if reason is None and self._free - directory.count_free_bytes(self._folder) > directory.TOTAL_MIB * MIB:
            # This check takes 1 ms, so it is made only if somebody has filled the disk meanwhile.
            reason = directory.find_hidden_breach(self._folder, pid)
        if reason is not None:
            raise _Stop(STOPPED_OTHER, reason)
        return used


def read_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used. Raises OSError if the process has ended."""
    # The number names the process's own CPU clock: include/linux/posix-timers.h.
    return time.clock_gettime((~pid << 3) | 2)


def _read_some(fd: int, text: bytearray, events: int) -> int:
    """Append available output to `text`. Return the number of bytes read, 0 at the end."""
    if not events & select.POLLIN:
        return 0
    data = os.read(fd, _CHUNK)
    text += data
    return len(data)


def _kill(pid: int) -> None:
    # The child is not reaped yet, so nobody else can have its process id.
    os.kill(pid, 9)
    try:
        os.killpg(pid, 9)
    except ProcessLookupError:
        # The child leads no group.
        pass
