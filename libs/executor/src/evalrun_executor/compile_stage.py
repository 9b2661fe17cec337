"""Compiles a program: once, in a slot, before its tests."""

import os
import stat

from evalrun_executor.api import CompileResult, RunRequest
from evalrun_executor.batch import Work
from evalrun_executor.contained import frames
from evalrun_executor.contained.compiler import BINARY_MIB, WALL_SECONDS
from evalrun_executor.errors import ExecutorLost
from evalrun_executor.oom_kills import OomKills
from evalrun_executor.private_files import list_contents, list_job_fields
from evalrun_executor.toolchain import Toolchain, static_is_missing
from evalrun_executor.zygotes.frame_reader import MAX_TEXT, FrameReader, parse_compiled
from evalrun_executor.zygotes.zygote_process import ZygoteProcess

_OUTPUT_BYTES = 64 * 1024
_ATTEMPTS = 2


class CompileStage:
    """Compiles a request's program. `run_in` sets `compiled`, `executable` and `was_killed`."""

    def __init__(self, zygote: ZygoteProcess, toolchain: Toolchain, request: RunRequest, oom_kills: OomKills) -> None:
        self._zygote = zygote
        self._toolchain = toolchain
        self._request = request
        self._oom_kills = oom_kills
        self.compiled = CompileResult("error")
        self.executable: int | None = None
        """Read-only descriptor of the compiled program, which the caller closes; None: it did not compile."""
        self.was_killed = False
        """The machine killed the compiler at the last attempt too: `compiled` says nothing about the program."""

    async def run_in(self, slot: int) -> None:
        """Compile in `slot`, statically linked where that works. Raises ExecutorLost.

        What does not compile is compiled once more, for a stage of the compiler that the machine has killed may end
        the driver as a mistake in the program does. Where the machine has killed the last attempt, as far as the
        compiler's processes and the kernel's count of such kills tell, nothing is known about the program.
        """
        for _ in range(_ATTEMPTS):
            kills = self._oom_kills.count()
            self.was_killed = False
            await self._compile(slot)
            if self.compiled.status != "error":
                self.was_killed = False
                return
            self.was_killed |= self._oom_kills.count() > kills

    async def _compile(self, slot: int) -> None:
        for command in self._toolchain.commands(self._request.language):
            self.compiled, self.executable = await self._try(slot, command)
            if self.compiled.status != "error":
                self._toolchain.learn(self._request.language, command)
            if self.compiled.status != "error" or not static_is_missing(self.compiled.stderr):
                return

    async def _try(self, slot: int, command: list[str]) -> tuple[CompileResult, int | None]:
        request = self._request
        code = request.code.encode("utf-8", "surrogatepass")
        placed, _ = list_job_fields(request)
        source = self._toolchain.source(request.language)
        job = frames.Job("\n".join(command), source, code, 0.0, 0, _OUTPUT_BYTES, [], placed)
        work = Work(job, list_contents(request), [])
        try:
            runner, _ = self._zygote.spawn(slot, frames.KIND_COMPILE, [work.blob, work.indices])
        finally:
            work.close()
        reader = FrameReader(runner, MAX_TEXT)
        compiled: CompileResult | None = None
        executable: int | None = None
        try:
            while (frame := await reader.next(WALL_SECONDS + 60)) is not None:
                kind, payload = frame
                if kind == frames.COMPILED:
                    compiled = parse_compiled(payload)
                elif kind == frames.KILLED:
                    self.was_killed = True
                elif kind == frames.BINARY and reader.descriptors and executable is None:
                    executable = _read_only(reader.descriptors[0])
                elif kind == frames.FAULT:
                    raise ExecutorLost(payload.decode(errors="replace"))
                elif kind == frames.DONE and compiled is not None and (executable is None) == (compiled.status != "ok"):
                    return compiled, executable
                else:
                    break
        except BaseException:
            _close(executable)
            raise
        finally:
            reader.close()
        _close(executable)
        raise ExecutorLost("the compile stage ended without an answer")


def _close(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)


def _read_only(binary: int) -> int:
    """Reopen a memory file, because a file held open for writing cannot be executed. Raises ExecutorLost."""
    found = os.fstat(binary)
    if not stat.S_ISREG(found.st_mode) or found.st_size > BINARY_MIB << 20:
        raise ExecutorLost("the compile stage sent something else than a program")
    return os.open(f"/proc/self/fd/{binary}", os.O_RDONLY | os.O_CLOEXEC)
