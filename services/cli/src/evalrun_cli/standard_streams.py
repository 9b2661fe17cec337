"""Standard streams that cannot end a run: closed streams are replaced, and a pipe may lose its reader."""

import io
import os
import sys
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STREAMS: Final = {0: "stdin", 1: "stdout", 2: "stderr"}


class OutputLostError(Exception):
    """Stdout or stderr is no longer writable. The message names the reason."""


class _Writer(io.FileIO):
    """Writes to nothing once the reader of the pipe has gone, as in `evalrun run ... | head`."""

    def write(self, data: "ReadableBuffer") -> int:
        """Write the data. After a failure /dev/null replaces the stream; unless only the reader of a pipe has gone, the
        failure is raised once, as OutputLostError."""
        try:
            return super().write(data)
        except OSError as error:
            name = STREAMS[self.fileno()]
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self.fileno())
            os.close(nothing)
            if isinstance(error, BrokenPipeError):
                return memoryview(data).nbytes
            raise OutputLostError(f"{name}: {error.strerror}") from error


def prepare() -> None:
    """Open closed standard streams on /dev/null, and let stdout and stderr survive their reader.

    A run's results are its files, which do not depend on a reader of its lines. Streams that this process has replaced
    already, as a test's capture does, stay as they are.
    """
    for descriptor in STREAMS:
        try:
            os.fstat(descriptor)
        # The lowest free descriptor is this one.
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _wrap_stream(1, sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _wrap_stream(2, sys.stderr)


def _wrap_stream(descriptor: int, stream: TextIO | None) -> TextIO:
    if stream is not None:
        stream.flush()
    buffer = io.BufferedWriter(_Writer(descriptor, "w", closefd=False))
    return io.TextIOWrapper(
        buffer,
        encoding=getattr(stream, "encoding", "utf-8"),
        errors=getattr(stream, "errors", "backslashreplace"),
        line_buffering=getattr(stream, "line_buffering", False),
        write_through=getattr(stream, "write_through", False),
    )
