"""Reads frames from a runner. Every byte is checked, because the runner stands beside hostile code."""

import asyncio
import math
import os
import socket
import stat
from dataclasses import dataclass
from typing import Any

from evalrun_executor.api import CompileResult, ProgramRun
from evalrun_executor.contained import frames
from evalrun_executor.errors import ExecutorLost
from evalrun_executor.zygotes.run_ends import classify_end

_CHUNK = 1 << 18
_MAX_STATUS = 0xFFFF
# Bytes that a runner may add to stderr.
_REASON = 1000
MAX_TEXT = 1 << 20
"""Bytes of a compiler's complaint, or of a fault."""


class FrameReader:
    """Reads whole frames from a non-blocking socket."""

    def __init__(self, runner: socket.socket, max_payload: int, descriptors: int = 1) -> None:
        """Read from `runner`. A frame of more than `max_payload` bytes, or more descriptors at once, is refused."""
        self._socket = runner
        self._max_payload = max_payload
        self._buffer = bytearray()
        self.descriptors: list[int] = []
        """Descriptors of the frames that follow, in order; `close` closes them."""
        self._max_descriptors = descriptors

    async def next(self, silence_seconds: float | None) -> tuple[int, bytes] | None:
        """Return the next frame's type and payload; None at the end of the stream.

        Args:
            silence_seconds: how long the runner may stay silent; None: no limit, because the caller has a limit.

        Raises:
            ExecutorLost: the runner sent nonsense, or nothing for `silence_seconds`.
        """
        head = frames.FRAME.size
        while True:
            if len(self._buffer) >= head:
                kind, length = frames.FRAME.unpack_from(self._buffer)
                # The length is checked before anything is kept: a hostile runner could otherwise announce 4 GiB and
                # fill our memory.
                if length > self._max_payload:
                    raise ExecutorLost(f"a runner announced a frame of {length} bytes")
                if len(self._buffer) >= head + length:
                    payload = bytes(self._buffer[head : head + length])
                    del self._buffer[: head + length]
                    return kind, payload
            data = await self._receive(silence_seconds)
            if not data:
                return None
            self._buffer += data

    async def _receive(self, silence_seconds: float | None) -> bytes:
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self._socket, _CHUNK, self._max_descriptors)
            except BlockingIOError:
                await self._wait(silence_seconds)
                continue
            # A runner that was killed resets the socket. That is its end, and how it ended comes from the zygote.
            except ConnectionError:
                return b""
            self.descriptors += fds
            # The kernel has installed the descriptors already, so `close` closes them even when there are too many.
            if len(self.descriptors) > self._max_descriptors:
                raise ExecutorLost("a runner sent too many descriptors")
            return data

    async def _wait(self, silence_seconds: float | None) -> None:
        try:
            async with asyncio.timeout(silence_seconds):
                await _wait_until_readable(self._socket)
        except TimeoutError as error:
            raise ExecutorLost(f"a runner said nothing for {silence_seconds:.0f} s") from error

    def close(self) -> None:
        """Close the socket, and the descriptors that came over it and were not taken."""
        self._socket.close()
        self.close_descriptors()

    def close_descriptors(self) -> None:
        """Close the descriptors that came over the socket and were not taken."""
        for fd in self.descriptors:
            os.close(fd)
        self.descriptors.clear()


async def _wait_until_readable(runner: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(runner, _set_ready, ready)
    try:
        await ready
    finally:
        loop.remove_reader(runner)


def _set_ready(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def parse_compiled(payload: bytes) -> CompileResult:
    """Read a COMPILED frame. Raises ExecutorLost."""
    head = frames.COMPILED_HEAD
    if len(payload) < head.size:
        raise ExecutorLost("a runner sent a short frame")
    status, seconds = head.unpack_from(payload)
    if status >= len(frames.COMPILE_STATUS) or not 0 <= seconds < math.inf:
        raise ExecutorLost(f"a runner sent compile status {status}")
    return CompileResult(frames.COMPILE_STATUS[status], seconds, payload[head.size :][:MAX_TEXT])  # type: ignore[arg-type]  # of Literals


@dataclass(frozen=True)
class RunRules:
    """Limits that a RUN frame must respect, and the interpretation of its raw facts."""

    inputs: int
    output_bytes: int
    time_seconds: float
    memory_mib: int
    resident_mib: int
    """Resident memory above which a program has passed its memory limit."""
    own_kill_possible: bool
    """Whether the program could have sent itself SIGKILL, because there is no filter."""


def parse_run(payload: bytes, rules: RunRules) -> tuple[int, ProgramRun]:
    """Read a RUN frame. Return the test's index and its run.

    Raises:
        ExecutorLost: the frame is malformed.
        UnexplainedKill: the machine ran out of memory.
    """
    head = frames.RUN_HEAD
    if len(payload) < head.size:
        raise ExecutorLost("a runner sent a short frame")
    *facts, out_size = head.unpack_from(payload)
    if not _is_possible(facts, out_size, len(payload) - head.size - out_size, rules):
        raise ExecutorLost("a runner sent a result that cannot be")
    return _make_run(facts, payload[head.size : head.size + out_size], payload[head.size + out_size :], rules)


def parse_filed(
    payload: bytes, descriptors: list[int], rules: RunRules, printed: tuple[bytes, bytes] | None = None
) -> tuple[int, ProgramRun]:
    """Read a FILED frame, and close the descriptors that belong to it. Return as `parse_run`, and raise as it does.

    Args:
        payload: the payload of the frame.
        descriptors: the descriptors that came over the socket, in order.
        rules: the bounds of a possible result.
        printed: stdout and stderr if our own pipes carried them; None if they are in memory files.
    """
    if len(payload) != frames.FILED_HEAD.size:
        raise ExecutorLost("a harness worker sent a short frame")
    *facts, out_size, err_size = frames.FILED_HEAD.unpack(payload)
    if not _is_possible(facts, out_size, err_size, rules):
        raise ExecutorLost("a harness worker sent an impossible result")
    if printed is not None:
        return _make_run(facts, *printed, rules)
    stdout = _take_text(descriptors, out_size)
    return _make_run(facts, stdout, _take_text(descriptors, err_size), rules)


def parse_complaint(payload: bytes, descriptors: list[int]) -> bytes:
    """Read a compiler's message from its descriptor, and close the descriptor. Raises ExecutorLost."""
    if len(payload) != frames.INDEX.size:
        raise ExecutorLost("a harness worker sent a short frame")
    return _take_text(descriptors, min(MAX_TEXT, *frames.INDEX.unpack(payload)))


def _is_possible(facts: list[Any], out_size: int, err_size: int, rules: RunRules) -> bool:
    # `math.inf` and NaN fail these comparisons too. A status that is neither an exit nor a signal would be misread
    # later.
    index, stopped, status, cpu, wall, _ = facts
    max_bytes = rules.output_bytes
    return (
        index < rules.inputs
        and stopped <= frames.STOPPED_OTHER
        and 0 <= status <= _MAX_STATUS
        and (os.WIFEXITED(status) or os.WIFSIGNALED(status))
        and 0 <= cpu < math.inf
        and 0 <= wall < math.inf
        and out_size <= max_bytes
        and 0 <= err_size <= max_bytes + _REASON
    )  # fmt: skip


def _make_run(facts: list[Any], stdout: bytes, stderr: bytes, rules: RunRules) -> tuple[int, ProgramRun]:
    index, stopped, status, cpu, wall, peak_kib = facts
    end, code = classify_end(
        status=status, stopped=stopped, cpu_seconds=cpu, time_limit=rules.time_seconds, peak_kib=peak_kib,
        memory_mib=rules.memory_mib, resident_mib=rules.resident_mib, stderr=stderr,
        own_kill_possible=rules.own_kill_possible,
    )  # fmt: skip
    return index, ProgramRun(end, code, stdout, stderr, cpu, wall, -(-peak_kib // 1024))


def _take_text(descriptors: list[int], size: int) -> bytes:
    """Read a memory file of `size` bytes; an empty text has no file. Raises ExecutorLost."""
    if size == 0:
        return b""
    if not descriptors:
        raise ExecutorLost("a harness worker sent a result without its texts")
    fd = descriptors.pop(0)
    try:
        # Reading anything but a file might never end: a runner that was taken over could send a pipe.
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ExecutorLost("a harness worker sent a descriptor that is not a memory file")
        # A file may be shorter than announced, and `pread` may return less than asked for: the length is checked at the
        # end.
        text = bytearray()
        while len(text) < size and (part := os.pread(fd, size - len(text), len(text))):
            text += part
    finally:
        os.close(fd)
    if len(text) != size:
        raise ExecutorLost("a harness worker sent a text that is shorter than announced")
    return bytes(text)
