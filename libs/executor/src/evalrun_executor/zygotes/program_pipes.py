"""The pipes that a program of a program worker writes to, read here: the worker holds nothing of it."""

import asyncio
import os
from collections.abc import Callable

from evalrun_executor.contained.supervision import KEPT_STDERR, QUICK_SECONDS

_CHUNK = 1 << 18


class ProgramPipes:
    """Stdout and stderr of one program. What fits into the pipes waits in them until its end."""

    def __init__(self, output_bytes: int, owner: int, stop: Callable[[], None]) -> None:
        """Open the pipes.

        Args:
            output_bytes: of stdout that are kept; of stderr the end is.
            owner: the program's user, who may open them again, as /dev/stdout.
            stop: called once if the program prints more.
        """
        self._loop = asyncio.get_running_loop()
        self._max_bytes = output_bytes
        self._kept_stderr = min(KEPT_STDERR, output_bytes)
        self._stop = stop
        self._out, self._out_end = os.pipe()
        self._err, self._err_end = os.pipe()
        for fd in (self._out, self._err):
            os.set_blocking(fd, False)
            if owner != os.geteuid():
                os.fchown(fd, owner, -1)
        self._stdout = bytearray()
        self._stderr = bytearray()
        self.is_over = False
        """It printed more than is kept."""
        self._watched = False
        self._timer = self._loop.call_later(QUICK_SECONDS, self._watch)

    @property
    def ends(self) -> tuple[int, int]:
        """The ends that the program writes to, ours until `hand_over`."""
        return self._out_end, self._err_end

    def hand_over(self) -> None:
        """Close the program's ends, once they are sent."""
        for fd in self.ends:
            os.close(fd)
        self._out_end = self._err_end = -1

    def texts(self) -> tuple[bytes, bytes]:
        """Return what the program has written so far to stdout, at most what is kept, and the end of stderr."""
        self._read_out()
        self._read_err()
        return bytes(self._stdout), bytes(self._stderr[-self._kept_stderr :])

    def close(self) -> None:
        """Close the pipes."""
        self._timer.cancel()
        if self._watched:
            self._loop.remove_reader(self._out)
            self._loop.remove_reader(self._err)
        for fd in (self._out, self._err, *self.ends):
            if fd >= 0:
                os.close(fd)

    def _watch(self) -> None:
        """Read as it comes: a program that runs longer may wait for us to."""
        self._watched = True
        self._loop.add_reader(self._out, self._read_out)
        self._loop.add_reader(self._err, self._read_err)

    def _read_out(self) -> None:
        while data := self._piece(self._out):
            self._stdout += data
            if len(self._stdout) > self._max_bytes:
                del self._stdout[self._max_bytes :]
                if not self.is_over:
                    self.is_over = True
                    self._stop()

    def _read_err(self) -> None:
        while data := self._piece(self._err):
            self._stderr += data
            if len(self._stderr) > 2 * self._kept_stderr:
                del self._stderr[: -self._kept_stderr]

    def _piece(self, fd: int) -> bytes:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return b""
        if not data and self._watched:  # else it would be reported again and again
            self._loop.remove_reader(fd)
        return data
