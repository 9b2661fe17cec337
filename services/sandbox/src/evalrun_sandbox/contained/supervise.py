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
QUICK_MS = 10
THREADS = 256
FRONT_LEFT = "front"
_CHUNK = 1 << 18


class FrontGoneError(Exception):
    """The front closed its end: nobody wants the answer."""


class Outcome:
    """What a child did, raw."""

    def __init__(self, stopped: str | None, status: int, cpu_seconds: float, peak_kib: int) -> None:
        self.stopped = stopped
        self.status = status
        self.cpu_seconds = cpu_seconds
        self.peak_kib = peak_kib
        self.wall_seconds = 0.0
        self.stdout = b""
        self.stderr = b""


class Watch:
    """Holds what stays the same from test to test."""

    def __init__(self, front: int, work_folder: str, output_bytes: int, cpus: int) -> None:
        self._front = front
        self._folder = work_folder
        self._output_bytes = output_bytes
        self._cpus = cpus
        self._poller = select.poll()
        self._poller.register(front, select.POLLIN | select.POLLRDHUP)

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
        texts: dict[int, bytearray] = {out: bytearray(), err: bytearray()}
        stopped: str | None = None
        pidfd = os.pidfd_open(pid)
        self._poller.register(pidfd, select.POLLIN)
        try:
            # Most tests are over within this, their output waiting in the pipes: one wake-up instead of four.
            quick = self._poller.poll(QUICK_MS)
            if not quick:
                wall = wall_limit(time_seconds) if wall_seconds is None else wall_seconds
                stopped = self._until_ended(pid, pidfd, texts, started + wall, STOP_FACTOR * time_seconds)
            elif quick[0][0] == self._front:
                stopped = FRONT_LEFT
        finally:
            self._poller.unregister(pidfd)
            os.close(pidfd)
        if stopped is not None:
            _kill(pid)
        _, status, usage = os.wait4(pid, 0)
        outcome = Outcome(stopped, status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
        outcome.stdout = self._rest(out, texts[out], outcome)
        outcome.stderr = self._rest(err, texts[err], outcome)
        outcome.wall_seconds = time.monotonic() - started
        if stopped == FRONT_LEFT:
            raise FrontGoneError
        return outcome

    def _rest(self, fd: int, text: bytearray, outcome: Outcome) -> bytes:
        """Give all that the dead child wrote, up to the cap, and close our end."""
        os.set_blocking(fd, False)
        try:
            while len(text) <= self._output_bytes and (data := os.read(fd, _CHUNK)):
                text += data
        except BlockingIOError:  # a straggler still holds the other end, where programs may fork
            pass
        os.close(fd)
        if len(text) > self._output_bytes:
            outcome.stopped = outcome.stopped or Stop.OUTPUT
            return bytes(text[: self._output_bytes])
        return bytes(text)

    def _until_ended(
        self, pid: int, pidfd: int, texts: dict[int, bytearray], deadline: float, stop_at: float
    ) -> str | None:
        """Drain and look, until the child has ended (None) or has to be stopped: gives why."""
        next_look = time.monotonic() + TICK_SECONDS - QUICK_MS / 1000
        open_ends = set(texts)
        for fd in texts:
            self._poller.register(fd, select.POLLIN)
        try:
            while True:
                left = next_look - time.monotonic()
                if left <= 0:
                    stopped, used = self._look(pid, stop_at, deadline)
                    if stopped is not None:
                        return stopped
                    left = min(TICK_SECONDS, max((stop_at - used) / self._cpus, 0.001))
                    next_look = time.monotonic() + left
                for fd, events in self._poller.poll(left * 1000):
                    if fd == pidfd:
                        return None
                    if fd == self._front:
                        return FRONT_LEFT
                    if _read_some(fd, texts[fd], events) == 0:
                        self._poller.unregister(fd)
                        open_ends.discard(fd)
                    elif len(texts[fd]) > self._output_bytes:
                        return Stop.OUTPUT
        finally:
            for fd in open_ends:
                self._poller.unregister(fd)

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


def _kill(pid: int) -> None:
    os.kill(pid, 9)  # not reaped yet, so the number is still its own
    try:
        os.killpg(pid, 9)
    except ProcessLookupError:  # no group of its own
        pass
