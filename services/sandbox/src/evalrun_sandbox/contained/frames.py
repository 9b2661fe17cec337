"""What runner and front say to each other.

Front to runner: a memory file that the front wrote (a `Job`, then the inputs), trusted. Runner to front: frames on a
stream socket. The runner stands near hostile code, so the front takes every byte of a frame as hostile: sizes are
bounded, and nothing but fixed structs and raw texts is read.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Callable

KIND_PROGRAM, KIND_HARNESS, KIND_COMPILE, KIND_EXECUTABLE = range(4)

FRAME = struct.Struct("<BI")
"""Type of frame, payload bytes."""
COMPILED, RUN, DONE, FAULT, BINARY = 1, 2, 3, 4, 5
"""A RUN is one test's result; DONE ends the job; FAULT is text on why the runner could not go on; with a BINARY, which
is empty, comes the descriptor of a compiled program."""

COMPILED_HEAD = struct.Struct("<Bd")
"""Status (see `COMPILE_STATUS`), seconds; stderr follows."""
COMPILE_STATUS = ("ok", "error", "timeout")

RUN_HEAD = struct.Struct("<IBiddQI")
"""Index, why the runner stopped it (see `NOT_STOPPED`), wait status, CPU seconds, wall seconds, peak KiB, bytes of
stdout; stdout and stderr follow. Raw: what it means, the front says."""
NOT_STOPPED, STOPPED_TIME, STOPPED_OUTPUT, STOPPED_OTHER = range(4)
"""`STOPPED_OTHER`: the reason stands at the end of stderr."""

INDEX = struct.Struct("<I")
"""An item of the index pipe: the runners of one batch take the next test from it, and its end stops them."""


class Job:
    """One program as a runner sees it."""

    def __init__(
        self,
        mode: str,
        language: str,
        code: bytes,
        time_seconds: float,
        memory_mib: int,
        output_bytes: int,
        sizes: list[int],
    ) -> None:
        self.mode = mode
        self.language = language
        self.code = code
        self.time_seconds = time_seconds
        self.memory_mib = memory_mib
        self.output_bytes = output_bytes
        self.sizes = sizes
        """Bytes of each input."""

    def encode(self) -> bytes:
        """Give the head of the memory file; the inputs follow it, one after another."""
        fields = (
            self.mode, self.language, self.code, self.time_seconds, self.memory_mib, self.output_bytes, self.sizes
        )  # fmt: skip
        body = marshal.dumps(fields, 2)  # version 2 reads the same in every Python
        return struct.pack("<Q", len(body)) + body


def decode_job(read_at: Callable[[int, int], bytes]) -> tuple[Job, list[int]]:
    """Read a job; gives it and the offset of each input. `read_at(size, offset)` reads the memory file."""
    (length,) = struct.unpack("<Q", read_at(8, 0))
    job = Job(*marshal.loads(read_at(length, 8)))  # noqa: S302 - written by the front, whom the zygote trusts
    offsets = []
    offset = 8 + length
    for size in job.sizes:
        offsets.append(offset)
        offset += size
    return job, offsets
