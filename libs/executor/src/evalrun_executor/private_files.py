"""Files around a run: those that a request puts into the private directory, and those that it collects.

Only callers in this process can name files, because requests of the batch API have no such fields.
"""

import os
import stat
from collections.abc import Mapping, Sequence

from evalrun_executor.api import RunReply, RunRequest
from evalrun_executor.contained import frames
from evalrun_executor.errors import ExecutorLost


class RequestWithFiles(RunRequest, frozen=True, forbid_unknown_fields=True):
    """A program in mode `stdio` with one input, and files around it."""

    files: dict[str, bytes] = {}  # noqa: RUF012 - a msgspec struct copies it
    """Contents by relative, normalised path. They are in the private directory before the compiler and before the run.
    """
    fetch: list[str] = []  # noqa: RUF012 - as above
    """Paths of the files that the reply returns, if they are regular files after the run."""


class ReplyWithFiles(RunReply, frozen=True):
    """The reply to a `RequestWithFiles`."""

    files: dict[str, bytes] | None = {}  # noqa: RUF012 - as above
    """Contents by path, without missing files. None: together they exceed `frames.FILES_BYTES`."""


def list_job_fields(request: RunRequest) -> tuple[list[tuple[bytes, int]], list[bytes]]:
    """Return the fields of a `frames.Job` for the request's files: those to place, and those to collect."""
    if not isinstance(request, RequestWithFiles):
        return [], []
    placed = [(name.encode(), len(content)) for name, content in request.files.items()]
    return placed, [name.encode() for name in request.fetch]


def list_contents(request: RunRequest) -> Sequence[bytes]:
    """Return the contents of the files to place, in order."""
    return [*request.files.values()] if isinstance(request, RequestWithFiles) else []


def find_complaints(request: RunRequest) -> list[tuple[bool, str]]:
    """Return checks of the request's files: whether the executor refuses the request, and with which message."""
    if not isinstance(request, RequestWithFiles):
        return []
    return [
        (request.mode != "stdio", "files: in mode stdio only"),
        (len(request.inputs) != 1, "files: with one input only"),
    ]


def read_files(payload: bytes, descriptors: list[int], request: RunRequest) -> Mapping[str, bytes] | None:
    """Read a FILES frame and its memory file, and close the memory file. Return None if the files are too large.

    Raises:
        ExecutorLost: the frame is malformed.
    """
    return read_parts(payload, descriptors, request.fetch if isinstance(request, RequestWithFiles) else [])


def read_parts(payload: bytes, descriptors: list[int], wanted: Sequence[str]) -> Mapping[str, bytes] | None:
    """Read a FILES frame for the files of these paths; see `read_files`. Raises ExecutorLost."""
    if not descriptors or len(payload) % frames.INDEX.size or len(payload) > len(wanted) * frames.INDEX.size:
        raise ExecutorLost("a runner sent files that nobody asked for")
    fd = descriptors.pop(0)
    sizes = [size for (size,) in frames.INDEX.iter_unpack(payload)]
    try:
        if sizes[-1:] == [frames.TOO_LARGE]:
            return None
        found = [(name, size) for name, size in zip(wanted, sizes, strict=False) if size != frames.ABSENT]
        if len(sizes) != len(wanted) or sum(size for _, size in found) > frames.FILES_BYTES:
            raise ExecutorLost("a runner sent files that cannot be")
        return _read(fd, found)
    finally:
        os.close(fd)


def _read(fd: int, parts: Sequence[tuple[str, int]]) -> dict[str, bytes]:
    """Read the parts of a memory file, in order. Raises ExecutorLost."""
    # Reading anything but a file might never end: a runner that was taken over could send a pipe.
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise ExecutorLost("a runner sent something else than a memory file")
    content = {}
    offset = 0
    for name, size in parts:
        content[name] = os.pread(fd, size, offset)
        if len(content[name]) != size:
            raise ExecutorLost("a runner sent less than it says")
        offset += size
    return content
