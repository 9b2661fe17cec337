"""The runner's watch over one child: drain what it prints, hold it to its limits, reap it."""

# ruff: noqa: PTH116, SIM105
# Why: pathlib and contextlib would make the zygote larger, and each fork dearer.
from __future__ import annotations

import os
import select
import time

from evalrun_sandbox.contained import folder
from evalrun_sandbox.contained.ends import Stop
from evalrun_sandbox.contained.limits import STOP_FACTOR, wall_limit

TICK_SECONDS = 0.02
"""Between two looks at a running child: bounds by how much it can pass a limit that the kernel does not hold."""
THREADS = 256
_CHUNK = 1 << 18


class FrontGoneError(Exception):
    """The front closed its end: nobody wants the answer."""


class Outcome:
    """What a child did, raw."""

    def __init__(self, stopped: str | None, stdout: bytes, stderr: bytes, wall_seconds: float) -> None:
        self.stopped = stopped
        self.stdout = stdout
        self.stderr = stderr
        self.wall_seconds = wall_seconds
        self.status = 0
        self.cpu_seconds = 0.0
        self.peak_kib = 0


class Watch:
    """Holds what stays the same from test to test."""

    def __init__(self, front: int, work_folder: str, output_bytes: int, cpus: int) -> None:
        self._front = front
        self._folder = work_folder
        self._output_bytes = output_bytes
        self._cpus = cpus

    def child(self, pid: int, out: int, err: int, time_seconds: float, wall_seconds: float | None = None) -> Outcome:
        """Watch `pid` to its end and reap it.

        Args:
            pid: a child of this process.
            out: our end of its stdout; closed here.
            err: our end of its stderr; closed here.
            time_seconds: CPU limit; stopped at `STOP_FACTOR` times that.
            wall_seconds: wall limit, where it does not follow from the CPU limit.

        Raises:
            FrontGoneError: the front left; the child is dead and reaped.
        """
        started = time.monotonic()
        pidfd = os.pidfd_open(pid)
        texts = {out: bytearray(), err: bytearray()}
        try:
            stopped, gone = self._until_ended(pid, pidfd, texts, started, time_seconds, wall_seconds)
        finally:
            os.close(pidfd)
        if stopped is not None or gone:
            _kill(pid)
        _, status, usage = os.wait4(pid, 0)
        wall = time.monotonic() - started
        for fd, text in texts.items():
            if stopped is None and _drain(fd, text, self._output_bytes):
                stopped = Stop.OUTPUT
            os.close(fd)
        if gone:
            raise FrontGoneError
        cap = self._output_bytes
        outcome = Outcome(stopped, bytes(texts[out][:cap]), bytes(texts[err][:cap]), wall)
        outcome.status = status
        outcome.cpu_seconds = usage.ru_utime + usage.ru_stime
        outcome.peak_kib = usage.ru_maxrss
        return outcome

    def _until_ended(
        self,
        pid: int,
        pidfd: int,
        texts: dict[int, bytearray],
        started: float,
        time_seconds: float,
        wall_seconds: float | None,
    ) -> tuple[str | None, bool]:
        """Give why the child has to be stopped (None: it ended), and whether the front left."""
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        poller.register(self._front, select.POLLIN | select.POLLRDHUP)
        for fd in texts:
            poller.register(fd, select.POLLIN)
        deadline = started + (wall_limit(time_seconds) if wall_seconds is None else wall_seconds)
        next_look = started + TICK_SECONDS
        stop_at = STOP_FACTOR * time_seconds
        while True:
            left = next_look - time.monotonic()
            if left <= 0:
                stopped, used = self._look(pid, stop_at, deadline)
                if stopped is not None:
                    return stopped, False
                left = min(TICK_SECONDS, max((stop_at - used) / self._cpus, 0.001))
                next_look = time.monotonic() + left
            ended = False
            for fd, events in poller.poll(left * 1000):
                if fd == pidfd:
                    ended = True
                elif fd == self._front:
                    return None, True
                elif _read_some(fd, texts[fd], events) == 0:
                    poller.unregister(fd)
                elif len(texts[fd]) > self._output_bytes:
                    return Stop.OUTPUT, False
            if ended:
                return None, False

    def _look(self, pid: int, stop_at: float, deadline: float) -> tuple[str | None, float]:
        """Give why the child has to be stopped, and the CPU seconds it has used."""
        try:
            used = time.clock_gettime((~pid << 3) | 2)  # the process's own CPU clock: include/linux/posix-timers.h
            threads = os.stat(f"/proc/{pid}/task").st_nlink - 2  # Landlock lets us stat, not read
        except OSError:  # it has just ended
            return None, 0.0
        if used >= stop_at or time.monotonic() >= deadline:
            return Stop.TIME, used
        if threads > THREADS:
            return f"more than {THREADS} threads", used
        return folder.breach(self._folder), used


def _read_some(fd: int, text: bytearray, events: int) -> int:
    """Read what is there; 0 at the end."""
    if not events & select.POLLIN:
        return 0
    data = os.read(fd, _CHUNK)
    text += data
    return len(data)


def _drain(fd: int, text: bytearray, cap: int) -> bool:
    """Read what the dead child left in the pipe; says whether it is more than the cap."""
    os.set_blocking(fd, False)
    try:
        while len(text) <= cap and (data := os.read(fd, _CHUNK)):
            text += data
    except BlockingIOError:  # a straggler still holds the other end, where the kernel lets programs fork
        pass
    return len(text) > cap


def _kill(pid: int) -> None:
    os.kill(pid, 9)  # not reaped yet, so the number is still its own
    try:
        os.killpg(pid, 9)
    except ProcessLookupError:  # no group of its own
        pass
