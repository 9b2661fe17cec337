"""Contained interpreters: starts their zygote, hands them code, reads their replies.

A reply comes from a worker beside hostile code, so its frames are read like a runner's. The content of the reply is the
hostile code's own: it is shown to the caller, and nothing else follows from it.
"""

import asyncio
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from evalrun_executor.contained import frames
from evalrun_executor.contained.limits import wall_limit
from evalrun_executor.errors import ExecutorLost
from evalrun_executor.private_files import read_parts
from evalrun_executor.zygotes.frame_reader import MAX_TEXT, FrameReader
from evalrun_executor.zygotes.zygote_process import ZygotePlan, ZygoteProcess

IMPORTS = ("_ast", "linecache", "traceback")
"""Modules that every session needs, imported before the fork so that their pages are shared."""
_SILENCE_SECONDS = 120.0
"""Seconds without a frame, beyond the execution's wall limit, after which a worker is lost."""
_START_SECONDS = 60.0
_MAX_PID = 1 << 22
"""Maximum process id of any kernel (PID_MAX_LIMIT). Reading the clock of a larger number would be an error later."""


@dataclass(frozen=True)
class CodeError:
    """Exception that the code raised."""

    name: str
    value: str
    traceback: str


@dataclass(frozen=True)
class Outcome:
    """Outcome of an execution."""

    stopped: int
    """Why the code was interrupted: a `frames.NOT_STOPPED`, `STOPPED_TIME` or `STOPPED_OUTPUT`."""
    cpu_seconds: float
    wall_seconds: float
    stdout: bytes
    stderr: bytes
    stdout_bytes: int
    """Number of printed bytes; `stdout` holds the first of them."""
    stderr_bytes: int
    result: str
    """The last expression's value, as text; empty without a value."""
    error: CodeError | None
    held_bytes: int
    """Bytes held in files, pipes and sockets."""
    threads: int
    pid: int
    lost: str
    """Reason why the session ended with the execution; empty if it continues."""


def parse_executed(payload: bytes, output_bytes: int) -> Outcome:
    """Parse an EXECUTED frame. Raises ExecutorLost if it is malformed."""
    head = frames.EXECUTED_HEAD
    if len(payload) < head.size:
        raise ExecutorLost("a session sent a short frame")
    stopped, alive, cpu, wall, out_total, err_total, out_size, err_size, size, held, threads, pid = head.unpack_from(
        payload
    )
    texts = payload[head.size :]
    known = stopped <= frames.STOPPED_OUTPUT and alive <= 1 and cpu >= 0 and wall >= 0 and pid <= _MAX_PID
    kept = out_size <= min(out_total, output_bytes) and err_size <= min(err_total, output_bytes)
    if not (known and kept and out_size + err_size + size <= len(texts) and (size > 0) == bool(alive)):
        raise ExecutorLost("a session sent an impossible answer")
    out, err, reply, reason = _cut(texts, out_size, err_size, size)
    result, error = parse_reply(reply) if alive else ("", None)
    lost = "" if alive else reason.decode(errors="replace") or "for an unknown reason"
    return Outcome(
        stopped, cpu, wall, out, err, out_total, err_total, result, error, held, threads, pid, lost
    )  # fmt: skip


def parse_reply(reply: bytes) -> tuple[str, CodeError | None]:
    """Parse the interpreter's reply: the result's text and the exception. Raises ExecutorLost if it is malformed."""
    head = frames.REPLY_HEAD
    if len(reply) < head.size:
        raise ExecutorLost("a session sent a short reply")
    raised, *sizes = head.unpack_from(reply)
    if any(size > frames.MAX_REPLY_TEXT for size in sizes) or len(reply) != head.size + sum(sizes):
        raise ExecutorLost("a session sent an impossible reply")
    result, name, value, trace, _ = (part.decode(errors="replace") for part in _cut(reply[head.size :], *sizes))
    return result, CodeError(name, value, trace) if raised else None


def _cut(data: bytes, *sizes: int) -> list[bytes]:
    """Return pieces of these sizes, and the rest."""
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


class Interpreter:
    """The process of a live session. Calls are sequential. `ended` is done once the session's directory is free."""

    def __init__(self, zygote: ZygoteProcess, number: int) -> None:
        """Start the session's worker through the zygote. Raises ExecutorLost."""
        self._socket, self.ended = zygote.spawn(number, frames.KIND_SESSION, ())
        self._zygote = zygote
        self._calls = 0
        self._closed = False
        self._silence: asyncio.Timeout | None = None
        self._silence_seconds = 0.0
        self.number = number

    @property
    def gone(self) -> bool:
        """Whether its process has ended."""
        return self.ended.done() or self._zygote.lost.done()

    @property
    def place(self) -> str:
        """The directory that contains the interpreter's private directory."""
        return self._zygote.place

    async def start(self, memory_mib: int, files: Mapping[str, bytes]) -> Outcome:
        """Prepare the interpreter. Raises ExecutorLost."""
        placed = [(name.encode(), len(content)) for name, content in files.items()]
        job = frames.Job("start", "", b"", 0.0, memory_mib, 0, [], placed)
        return await self._run_job(job, list(files.values()), _START_SECONDS)

    async def execute(self, code: str, time_seconds: float, output_bytes: int) -> Outcome:
        """Execute code. Raises ExecutorLost."""
        job = frames.Job("execute", "", code.encode(), time_seconds, 0, output_bytes, [])
        self._silence_seconds = wall_limit(time_seconds) + _SILENCE_SECONDS
        try:
            async with asyncio.timeout(self._silence_seconds) as self._silence:
                return await self._run_job(job, [], None)
        except TimeoutError as error:
            raise ExecutorLost(f"a session said nothing for {self._silence_seconds:.0f} s") from error
        finally:
            self._silence = None

    def pause(self) -> None:
        """Stop the executed code while others have their turn. Does nothing if the code has ended."""
        self._order(frames.PAUSE, None)

    def resume(self) -> None:
        self._order(frames.RESUME, asyncio.get_running_loop().time() + self._silence_seconds)

    def _order(self, order: bytes, silent_until: float | None) -> None:
        if self._silence is None or self._silence.expired() or self._closed:
            return
        self._silence.reschedule(silent_until)
        # If the worker has gone, the execution reports that.
        with suppress(OSError):
            self._socket.send(order)

    async def fetch(self, names: Sequence[str]) -> Mapping[str, bytes] | None:
        """Return files of the session's directory, without missing files; None: the files are too large.

        Raises:
            ExecutorLost: the session is lost.
        """
        job = frames.Job("fetch", "", b"", 0.0, 0, 0, [], wanted=[name.encode() for name in names])
        with self._send_job(job, []) as reader:
            payload = await _answer(reader, frames.FILES, _SILENCE_SECONDS)
            return read_parts(payload, reader.descriptors, names)

    def close(self) -> None:
        """End the interpreter: its worker sees our end close, kills it, and empties its directory.

        A call in flight is lost.
        """
        if not self._closed:
            self._closed = True
            # The worker may have gone already.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._close_socket()

    def _close_socket(self) -> None:
        # During a call the event loop watches the socket.
        if self._closed and not self._calls:
            self._socket.close()

    async def _run_job(self, job: frames.Job, contents: Sequence[bytes], silence_seconds: float | None) -> Outcome:
        with self._send_job(job, contents) as reader:
            return parse_executed(await _answer(reader, frames.EXECUTED, silence_seconds), job.output_bytes)

    @contextmanager
    def _send_job(self, job: frames.Job, contents: Sequence[bytes]) -> Iterator[FrameReader]:
        """Send a job. Yield the reader of the reply."""
        self._send(job, contents)
        reader = FrameReader(self._socket, 2 * job.output_bytes + MAX_TEXT)
        self._calls += 1
        try:
            yield reader
        finally:
            self._calls -= 1
            reader.close_descriptors()
            self._close_socket()

    def _send(self, job: frames.Job, contents: Sequence[bytes]) -> None:
        blob = os.memfd_create("job")
        try:
            with open(blob, "wb", closefd=False) as file:
                file.writelines([job.encode(), *contents])
            socket.send_fds(self._socket, [b"J"], [blob])
        except OSError as error:
            raise ExecutorLost(f"a session is gone: {error}") from error
        finally:
            os.close(blob)


async def _answer(reader: FrameReader, wanted: int, silence_seconds: float | None) -> bytes:
    """Return the payload of a frame of the type `wanted`. Raises ExecutorLost."""
    frame = await reader.next(silence_seconds)
    if frame is None:
        raise ExecutorLost("its process is gone")
    kind, payload = frame
    if kind == frames.FAULT:
        raise ExecutorLost(payload.decode(errors="replace"))
    if kind != wanted:
        raise ExecutorLost(f"a session sent a frame of type {kind}")
    return payload


class Interpreters:
    """The zygote of sessions, started with the first session and restarted if it dies."""

    def __init__(self, plan: ZygotePlan) -> None:
        self._plan = replace(plan, harnesses={}, imports=IMPORTS)
        self._zygote: ZygoteProcess | None = None
        self._free: list[int] = []
        self._used = 0
        self._starting = asyncio.Lock()

    async def open(self, memory_mib: int, files: Mapping[str, bytes]) -> tuple[Interpreter, Outcome]:
        """Start an interpreter. Raises Unusable or ExecutorLost."""
        zygote = await self._live_zygote()
        number = self._free.pop() if self._free else self._next_number()
        interpreter = Interpreter(zygote, number)
        interpreter.ended.add_done_callback(lambda _: self._free_number(zygote, number))
        try:
            outcome = await interpreter.start(memory_mib, files)
            if outcome.lost:
                raise ExecutorLost(f"a session could not start: {outcome.lost}")
        except BaseException:
            interpreter.close()
            raise
        return interpreter, outcome

    def _next_number(self) -> int:
        self._used += 1
        return self._used - 1

    def _free_number(self, zygote: ZygoteProcess, number: int) -> None:
        if zygote is self._zygote:
            self._free.append(number)

    async def _live_zygote(self) -> ZygoteProcess:
        async with self._starting:
            if self._zygote is not None and self._zygote.lost.done():
                await self._zygote.close()
                self._zygote = None
            if self._zygote is None:
                self._free, self._used = [], 0
                self._zygote = await ZygoteProcess.start(self._plan)
            return self._zygote

    async def close(self) -> None:
        """End every session."""
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            await zygote.close()
