"""A batch: a program on its inputs, run by all runners that get a slot."""

import asyncio
import errno
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from evalrun_executor.api import CompileResult, ProgramRun, RunRequest
from evalrun_executor.contained import frames
from evalrun_executor.contained.limits import resident_limit_mib, wall_limit
from evalrun_executor.errors import ExecutorLost
from evalrun_executor.private_files import list_contents, list_job_fields, read_files
from evalrun_executor.timeouts import find_cut
from evalrun_executor.toolchain import make_execution
from evalrun_executor.zygotes.frame_reader import (
    MAX_TEXT,
    FrameReader,
    RunRules,
    parse_compiled,
    parse_complaint,
    parse_filed,
    parse_run,
)
from evalrun_executor.zygotes.program_pipes import ProgramPipes
from evalrun_executor.zygotes.zygote_process import ZygoteProcess
from evalrun_registry.languages import LANGUAGES

MAX_OUTPUT_BYTES = 256 << 20
"""Maximum bytes of stdout of a request's runs together. The run that passes this number has printed too much."""
MAX_INPUTS = 16384
"""Maximum inputs of a request: their indices fill a pipe of 64 KiB."""
_SILENCE_SECONDS = 120.0
"""Seconds without a frame, beyond the wall limit of the runner's test, after which the runner counts as lost."""
_ENDED_SECONDS = 10.0
_SMALL_BYTES = 1 << 20
_OUTPUTS = 2
"""Memory files that come with a run: its stdout and its stderr."""
_COMPILER_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE}


class Work:
    """A job's memory file, and the pipe from which its runners take the next index."""

    def __init__(self, job: frames.Job, inputs: Sequence[bytes], indices: Sequence[int]) -> None:
        self.blob = os.memfd_create("job")
        _write_all(self.blob, [job.encode(), *inputs])
        self.indices = -1
        self.indices = self.queue(indices)

    def queue(self, indices: Sequence[int]) -> int:
        """Replace the index pipe by a pipe that holds `indices`. Return its read end."""
        if self.indices >= 0:
            os.close(self.indices)
        self.indices, write_end = os.pipe()
        os.write(write_end, b"".join(frames.INDEX.pack(index) for index in indices))
        os.close(write_end)
        return self.indices

    def stop(self) -> None:
        """Empty the index pipe, so that no runner begins another test."""
        while os.read(self.indices, 1 << 16):
            pass

    def close(self) -> None:
        """Close both descriptors."""
        os.close(self.blob)
        os.close(self.indices)


class Batch:
    """Results of a request, as they arrive."""

    def __init__(
        self,
        zygote: ZygoteProcess,
        request: RunRequest,
        kind: int,
        executable: int | None = None,
        *,
        allowed: float | None = None,
        code: bytes | None = None,
    ) -> None:
        """Prepare the job.

        Args:
            zygote: runs the job.
            request: the program and its inputs.
            kind: a `frames.KIND_*`.
            executable: descriptor of a compiled program or an interpreter, which the caller closes.
            allowed: the time limit of these runs, longer than the request's limit on a slow machine; None means the
                request's limit.
            code: the compiled text for an interpreter; None means the request's text.
        """
        limits = request.limits
        self.allowed = limits.time_seconds if allowed is None else allowed
        self.zygote = zygote
        self._kind = kind
        self._executable = executable
        self._code = code
        self.request = request
        self._output_bytes = limits.output_kib * 1024
        language = LANGUAGES[request.language]
        job = frames.Job(
            request.mode, "", request.code.encode("utf-8", "surrogatepass") if code is None else code, self.allowed,
            limits.memory_mib, self._output_bytes, [len(text) for text in request.inputs], *list_job_fields(request),
            make_execution(request.language, limits.memory_mib),
        )  # fmt: skip
        self.work = Work(job, [*request.inputs, *list_contents(request)], range(len(request.inputs)))
        self._rules = RunRules(
            len(request.inputs),
            self._output_bytes,
            self.allowed,
            limits.memory_mib,
            resident_limit_mib(limits.memory_mib, language.footprint.resident_mib),
            not zygote.is_filtered,
        )
        self._stopped = False
        self._pipes: ProgramPipes | None = None
        self._printed = 0
        """Bytes of stdout of all runs so far."""
        self.runs: dict[int, ProgramRun] = {}
        self.files: Mapping[str, bytes] | None = {}
        """Files of the last run, for a `RequestWithFiles`; None: they are too large."""
        compiles = kind in (frames.KIND_PROGRAM, frames.KIND_PROGRAM_WORKER) or request.mode == "calls"
        self.compiled = None if compiles else CompileResult("ok")

    @property
    def left(self) -> int:
        """Number of runs that have not ended yet."""
        if self._stopped or (self.compiled is not None and self.compiled.status != "ok"):
            return 0
        return len(self.request.inputs) - len(self.runs)

    def alone(self, index: int, allowed: float) -> "Batch":
        """Return a batch of a single input, with another time limit."""
        request = msgspec.structs.replace(self.request, inputs=[self.request.inputs[index]])
        return Batch(self.zygote, request, self._kind, self._executable, allowed=allowed, code=self._code)

    def resume(self) -> bool:
        """Queue tests that were left out after timeouts that were refuted later. Return whether there are any."""
        left = [index for index in range(len(self.request.inputs)) if index not in self.runs]
        if not left or find_cut(self.runs, self.request.stop_after_timeouts) is not None:
            return False
        self._stopped = False
        self.work.queue(left)
        return True

    async def run_in(self, slot: int) -> None:
        """Run tests in `slot` until no test is left to begin.

        Raises:
            ExecutorLost: the runner died or sent nonsense.
        """
        fds = [self.work.blob, self.work.indices]
        if self._kind == frames.KIND_HARNESS_WORKER:
            await self._run_kept(slot, fds)
            return
        if self._kind == frames.KIND_PROGRAM_WORKER:
            await self._run_piped(slot, fds)
            return
        if self._executable is not None:
            fds.append(self._executable)
        runner, ended = self.zygote.spawn(slot, self._kind, fds)
        reader = FrameReader(runner, 2 * self._output_bytes + MAX_TEXT)
        try:
            await self._read_all(reader, ended)
        finally:
            reader.close()

    async def _run_kept(self, slot: int, fds: Sequence[int]) -> None:
        """Run the remaining tests through the slot's harness worker. Raises ExecutorLost."""
        worker = self.zygote.worker(slot, self._kind)
        reader = FrameReader(worker.socket, 2 * self._output_bytes + MAX_TEXT, descriptors=_OUTPUTS)
        done = False
        try:
            worker.ask(fds)
            if self._pipes is not None:
                self._pipes.hand_over()
            await self._read_all(reader, worker.ended)
            done = True
        finally:
            reader.close_descriptors()
            if not done:
                self.zygote.drop_worker(slot, self._kind)

    async def _run_piped(self, slot: int, fds: Sequence[int]) -> None:
        """Run the only test through the slot's program worker. Raises ExecutorLost."""
        worker = self.zygote.worker(slot, self._kind)
        self._pipes = pipes = ProgramPipes(self._output_bytes, self.zygote.user, worker.stop)
        try:
            await self._run_kept(slot, [*fds, *pipes.ends])
            if self.compiled is not None and self.compiled.status == "error" and not self.compiled.stderr:
                self.compiled = CompileResult("error", self.compiled.seconds, pipes.read_texts()[1])
        finally:
            self._pipes = None
            pipes.close()

    async def _read_all(self, reader: FrameReader, ended: asyncio.Future[int]) -> None:
        limit = wall_limit(self.allowed) + _SILENCE_SECONDS
        compiled = False
        while True:
            frame = await reader.next(limit)
            if frame is None:
                await self._explain_end(ended, compiled=compiled)
                return
            kind, payload = frame
            if kind == frames.RUN:
                self._take(*parse_run(payload, self._rules))
            elif kind == frames.FILED:
                printed = None if self._pipes is None else self._pipes.read_texts()
                index, run = parse_filed(payload, reader.descriptors, self._rules, printed)
                over = self._pipes is not None and self._pipes.is_over
                self._take(index, msgspec.structs.replace(run, end="output_limit", exit_code=None) if over else run)
            elif kind == frames.COMPILED:
                self.compiled = parse_compiled(payload)
                compiled = True
            elif kind == frames.COMPLAINT and self.compiled is not None:
                complaint = parse_complaint(payload, reader.descriptors)
                self.compiled = CompileResult(self.compiled.status, self.compiled.seconds, complaint)
            elif kind == frames.FILES:
                self.files = read_files(payload, reader.descriptors, self.request)
            elif kind == frames.DONE:
                return
            elif kind == frames.FAULT:
                raise ExecutorLost(payload.decode(errors="replace"))
            else:
                raise ExecutorLost(f"a runner sent a frame of type {kind}")

    def _take(self, index: int, run: ProgramRun) -> None:
        self._printed += len(run.stdout)
        if self._printed > MAX_OUTPUT_BYTES:
            run = msgspec.structs.replace(run, end="output_limit", exit_code=None, stdout=b"")
        self.runs[index] = run
        if run.end == "timeout" and find_cut(self.runs, self.request.stop_after_timeouts) is not None:
            self.work.stop()
            self._stopped = True

    async def _explain_end(self, ended: asyncio.Future[int], *, compiled: bool) -> None:
        """Record that the program killed the compiler in its runner. Raises ExecutorLost for any other end."""
        either: set[asyncio.Future[Any]] = {ended, self.zygote.lost}
        await asyncio.wait(either, timeout=_ENDED_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            raise ExecutorLost("the zygote died")
        code = os.waitstatus_to_exitcode(ended.result()) if ended.result() >= 0 else errno.EAGAIN
        if not compiled and self.compiled is None:
            if -code == signal.SIGXCPU:
                self.compiled = CompileResult(
                    "timeout", stderr=b"the interpreter took too long to compile the program\n"
                )
                return
            if -code in _COMPILER_CRASHES:
                self.compiled = CompileResult("error", stderr=b"the program crashes the interpreter's compiler\n")
                return
        raise ExecutorLost(f"a runner ended with {code}")

    def close(self) -> None:
        """Free the job."""
        self.work.close()


def _write_all(fd: int, pieces: Sequence[bytes]) -> None:
    if sum(map(len, pieces)) <= _SMALL_BYTES:
        # A memory file takes all of the bytes at once.
        os.write(fd, b"".join(pieces))
        return
    with os.fdopen(os.dup(fd), "wb") as file:
        file.writelines(pieces)
