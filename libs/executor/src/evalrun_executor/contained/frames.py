"""Messages between runner and service.

Service to runner: a memory file that the service wrote (a `Job`, the program's text, the inputs), trusted. Runner to
service: frames on a stream socket. The runner is close to hostile code, so the service treats every byte of a frame as
hostile: sizes are bounded, and only fixed structs and raw texts are read.
"""

from __future__ import annotations

import _socket
import _struct as struct
import errno
import marshal
import os
import time
from _collections_abc import Callable

(
    KIND_PROGRAM, KIND_HARNESS, KIND_COMPILE, KIND_EXECUTABLE, KIND_HARNESS_WORKER, KIND_SESSION, KIND_PROGRAM_WORKER,
    KIND_INTERPRETED,
) = range(8)  # fmt: skip
"""Kinds of spawned processes: a runner of a Python program, harness, compiler or executable; a harness worker; the
worker of a live session; a worker for Python programs of one input; a runner of a text that an executable reads."""

ExecutionFields = tuple[str, list[bytes], list[bytes], int, int]
"""How an executable is started: the name of the file that it reads, empty if it is the program itself; its arguments,
its own name first, where `{source}` stands for that file's path; `NAME=VALUE` of its environment beside the usual; the
MiB that it may map beyond its limit, and those that it may reserve without use."""

FRAME = struct.Struct("<BI")
"""Type of frame, payload bytes."""
(
    COMPILED, RUN, DONE, FAULT, BINARY, FILED, COMPLAINT, FILES, EXECUTED, KILLED, COMPILING, HELD_UP,
) = range(1, 13)  # fmt: skip
"""A RUN is one test's result. DONE ends the job. FAULT is a text: why the runner could not go on. BINARY is empty and
comes with the descriptor of a compiled program. FILED is a RUN whose texts come as descriptors of memory files, one per
text that is not empty: so a harness worker never holds what a program wrote. A program worker's FILED comes without
descriptors, because its program writes to pipes whose other ends the service has.
COMPLAINT holds the size (an `INDEX`) of the compiler's message, which comes as a descriptor; it follows its COMPILED.
FILES holds the size (an `INDEX`) of each file that the job wants back, up to the first that is `TOO_LARGE`, and comes
with the descriptor of a memory file that holds their contents, one after another. EXECUTED: see `EXECUTED_HEAD`.
KILLED is empty and follows the COMPILED of a compiler that ended by a SIGKILL which was not the runner's.
COMPILING holds the process id (an `INDEX`) of a compiler that has started. HELD_UP is empty and follows the COMPILED of
a compiler that the wall clock stopped before it had used its CPU time."""

_REFUSAL_PAUSE_SECONDS = 0.002
_MAX_REFUSALS = 5000
"""Ten seconds in all."""

FILES_BYTES = 64 << 20
"""Maximum bytes of the files that come back from one run, together."""
ABSENT, TOO_LARGE = 0xFFFFFFFF, 0xFFFFFFFE
"""Values in place of a size in FILES: the file is absent, or too large."""

COMPILED_HEAD = struct.Struct("<Bd")
"""Status (see `COMPILE_STATUS`), seconds; stderr follows."""
COMPILE_STATUS = ("ok", "error", "timeout")

RUN_HEAD = struct.Struct("<IBiddQI")
"""Index, why the runner stopped the child (see `NOT_STOPPED`), wait status, CPU seconds, wall seconds, peak KiB, bytes
of stdout; stdout and stderr follow. The service interprets these facts, see `run_ends`."""
NOT_STOPPED, STOPPED_TIME, STOPPED_OUTPUT, STOPPED_OTHER = range(4)
"""Why a child was stopped. With `STOPPED_OTHER` the reason stands at the end of stderr."""

FILED_HEAD = struct.Struct("<IBiddQII")
"""As `RUN_HEAD`, then bytes of stderr."""

PAUSE, RESUME = b"P", b"R"
"""Messages to a session's worker during an execution: stop the code, so that other sessions have a turn, and let the
code continue."""
EXECUTED_HEAD = struct.Struct("<BBddQQIIIQII")
"""A session's answer to a job: why the worker interfered (see `NOT_STOPPED`), whether the interpreter lives on, CPU and
wall seconds, bytes that it printed to stdout and to stderr, sizes of stdout, stderr and the interpreter's reply, which
follow, bytes that it holds outside its memory (files, pipes, sockets), threads, process id. The rest
of the payload says why the interpreter has ended."""

REPLY_HEAD = struct.Struct("<BIIII")
"""The interpreter's report on a piece of code: 0, or 1 if the code raised; sizes of the result's text, the exception's
name, its text, and the traceback, which follow. The code in the session can forge all of these."""

MAX_REPLY_TEXT = 1 << 16
"""Bytes of each text in a reply."""

INDEX = struct.Struct("<I")
"""An item of the index pipe: the runners of one batch take the next test from it, and its end stops them."""


class Job:
    """A program, as sent to a runner."""

    def __init__(
        self,
        mode: str,
        source: str,
        code: bytes,
        time_seconds: float,
        memory_mib: int,
        output_bytes: int,
        sizes: list[int],
        placed: list[tuple[bytes, int]] | None = None,
        wanted: list[bytes] | None = None,
        execution: ExecutionFields | None = None,
    ) -> None:
        self.mode = mode
        self.source = source
        """Name of the file that a compiler reads; empty in a job of any other kind."""
        self.code = code
        """Empty in a harness worker, see `decode_job`."""
        self.code_size = len(code)
        self.time_seconds = time_seconds
        self.memory_mib = memory_mib
        self.output_bytes = output_bytes
        self.sizes = sizes
        """Bytes of each input."""
        self.placed = placed or []
        """Path and bytes of each file that the private directory holds before a run, see `exchange`."""
        self.wanted = wanted or []
        """Paths of the files that come back after a run."""
        self.execution = execution
        """None: nothing is executed."""

    def encode(self) -> bytes:
        """Return the first part of the memory file. The inputs follow, then the files to place."""
        fields = (
            self.mode, self.source, self.code_size, self.time_seconds, self.memory_mib, self.output_bytes, self.sizes,
            self.placed, self.wanted, self.execution,
        )  # fmt: skip
        # Version 2 of the format reads the same in every Python.
        body = marshal.dumps(fields, 2)
        return struct.pack("<Q", len(body)) + body + self.code


def decode_job(read_at: Callable[[int, int], bytes], *, with_code: bool = True) -> tuple[Job, int, list[int]]:
    """Read a job. Return the job, the offset of the program's text, and the offset of each input.

    Args:
        read_at: `read_at(size, offset)` reads the memory file.
        with_code: False leaves the text in the memory file: each later program might find what a harness worker holds.
    """
    (length,) = struct.unpack("<Q", read_at(8, 0))
    mode, source, size, *limits = marshal.loads(read_at(length, 8))  # noqa: S302 - by the service, whom we trust
    code = 8 + length
    job = Job(mode, source, read_at(size, code) if with_code else b"", *limits)
    job.code_size = size
    offsets = []
    offset = code + job.code_size
    for size in job.sizes:
        offsets.append(offset)
        offset += size
    return job, code, offsets


JOB, STOP = b"J", b"S"
"""Messages from the service to a worker: a job, whose descriptors come with the message, and the order to stop the
running program, which has printed too much."""


def make_plain_memory(name: str) -> int:
    """Return an empty memory file that nobody may execute.

    A compiled program may execute a file by its descriptor: it must not be able to write an executable file.
    """
    fd = os.memfd_create(name)
    # From Linux 6.3 on MFD_NOEXEC_SEAL would do this.
    os.fchmod(fd, 0o600)
    return fd


def make_memory_file(blob: int, offset: int, size: int) -> int:
    """Return a memory file with a copy of a piece of `blob`, rewound, to be used as stdin."""
    fd = make_plain_memory("stdin")
    copy(fd, blob, offset, size)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def copy(to: int, source: int, offset: int, size: int) -> None:
    """Append a piece of `source` to `to` without reading it into this process.

    Raises EOFError if `source` is shorter.
    """
    while size > 0:
        moved = os.sendfile(to, source, offset, size)
        if moved == 0:
            raise EOFError("a piece is shorter than it says")
        offset += moved
        size -= moved


def read_at(fd: int, size: int, offset: int) -> bytes:
    """Read a piece of a memory file. Raises OSError if the file is shorter."""
    data = bytearray()
    while len(data) < size:
        piece = os.pread(fd, size - len(data), offset + len(data))
        if not piece:
            raise OSError("the job is shorter than it says")
        data += piece
    return bytes(data)


def send_with_descriptors(
    service: _socket.socket, message: bytes | bytearray, fds: list[int], sleep: Callable[[float], None] = time.sleep
) -> int:
    """Send a message with descriptors, as `sendmsg` does; return how many bytes went. Raises OSError.

    For a user without privileges, such as a pod's, the kernel counts the descriptors that are sent and not yet
    received, and refuses more of them than the sender may open. Many slots that send at once reach that number, so
    this function waits until the service has received some.
    """
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))]
    for _ in range(_MAX_REFUSALS):
        try:
            return service.sendmsg([message], rights)
        except OSError as error:
            if error.errno != errno.ETOOMANYREFS:
                raise
        sleep(_REFUSAL_PAUSE_SECONDS)
    return service.sendmsg([message], rights)
