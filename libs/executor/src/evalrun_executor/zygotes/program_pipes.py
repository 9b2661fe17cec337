"""Pipes that a program worker's program writes to. The service reads them, so that the worker holds no output."""

import asyncio
import os
from collections.abc import Callable

from evalrun_executor.contained.supervision import KEPT_STDERR, QUICK_SECONDS

_CHUNK = 1 << 18


class ProgramPipes:
    """Stdout and stderr of a program. Output that fits into the pipes waits in them until the program ends."""

    def __init__(self, output_bytes: int, owner: int, stop: Callable[[], None]) -> None:
        """Open the pipes.

        Args:
            output_bytes: maximum bytes of stdout that are kept. Of stderr the end is kept.
            owner: the program's user, who may open the pipes again, as /dev/stdout.
            stop: called once if the program prints more to stdout.
        """
        self._loop = asyncio.get_running_loop()
        self._max_bytes = output_bytes
        self._kept_stderr = min(KEPT_STDERR, output_bytes)
        self._stop = stop
        self._out, self._out_end = os.pipe()
        self._err, self._err_end = os.pipe()
        # A blocking read would stop the whole service while a program prints nothing.
        for fd in (self._out, self._err):
            os.set_blocking(fd, False)
            # Opening /dev/stdout opens the pipe again, with the rights of its owner. Without this change a program of
            # another user could not.
            if owner != os.geteuid():
                os.fchown(fd, owner, -1)
        self._stdout = bytearray()
        self._stderr = bytearray()
        self.is_over = False
        """Whether the program printed more than is kept."""
        self._watched = False
        # Most programs end within `QUICK_SECONDS` and print little: registering with the event loop costs more than
        # reading once at the end.
        self._timer = self._loop.call_later(QUICK_SECONDS, self._watch)

    @property
    def ends(self) -> tuple[int, int]:
        """The ends that the program writes to. This process holds them, too, until `hand_over`."""
        return self._out_end, self._err_end

    def hand_over(self) -> None:
        """Close our copies of the program's ends, once these are sent: reading would never end while we hold them."""
        for fd in self.ends:
            os.close(fd)
        self._out_end = self._err_end = -1

    def read_texts(self) -> tuple[bytes, bytes]:
        """Return the start of stdout and the end of stderr, as far as the program has written."""
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
        """Read output as it comes from now on: a program that fills a pipe waits for its reader."""
        self._watched = True
        self._loop.add_reader(self._out, self._read_out)
        self._loop.add_reader(self._err, self._read_err)

    def _read_out(self) -> None:
        while data := self._read_piece(self._out):
            self._stdout += data
            if len(self._stdout) > self._max_bytes:
                # The rest of a pipe is still read, or the program could not end.
                del self._stdout[self._max_bytes :]
                if not self.is_over:
                    self.is_over = True
                    self._stop()

    def _read_err(self) -> None:
        while data := self._read_piece(self._err):
            self._stderr += data
            # The text is cut at twice the bound, so that each byte is moved once on average.
            if len(self._stderr) > 2 * self._kept_stderr:
                del self._stderr[: -self._kept_stderr]

    def _read_piece(self, fd: int) -> bytes:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return b""
        if not data and self._watched:
            # The end of a pipe stays readable: the loop would report it again and again.
            self._loop.remove_reader(fd)
        return data
