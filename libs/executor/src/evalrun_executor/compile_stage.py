"""Compiles a program once, in a slot, before its tests."""

import asyncio
import os
import stat

from evalrun_executor.api import CompileResult, RunRequest
from evalrun_executor.batch import Work
from evalrun_executor.contained import frames
from evalrun_executor.contained.compiler import BINARY_MIB, CPU_SECONDS, WALL_FACTOR
from evalrun_executor.errors import ExecutorLost
from evalrun_executor.oom_kills import OomKills
from evalrun_executor.private_files import list_contents, list_job_fields
from evalrun_executor.run_queues import QueuedTime, RunQueues
from evalrun_executor.toolchain import Toolchain, static_is_missing
from evalrun_executor.zygotes.frame_reader import MAX_TEXT, FrameReader, parse_compiled
from evalrun_executor.zygotes.zygote_process import ZygoteProcess

_OUTPUT_BYTES = 64 * 1024
_ATTEMPTS = 2
_LOOK_SECONDS = 0.5
"""Seconds between two measurements of how long the compiler waits for a CPU. Stages that matter live longer."""


class CompileStage:
    """Compiles a request's program. `run_in` sets `compiled`, `executable`, `was_killed` and `was_starved`.

    Args:
        zygote: starts the compiler.
        toolchain: knows the compiler's command.
        request: the program.
        oom_kills: counts kills for lack of memory.
        run_queues: measure waits for a CPU.
        cpu_seconds: the compiler's limit.
    """

    def __init__(
        self,
        zygote: ZygoteProcess,
        toolchain: Toolchain,
        request: RunRequest,
        oom_kills: OomKills,
        run_queues: RunQueues,
        cpu_seconds: int = CPU_SECONDS,
    ) -> None:
        self._zygote = zygote
        self._toolchain = toolchain
        self._request = request
        self._oom_kills = oom_kills
        self._run_queues = run_queues
        self._cpu_seconds = cpu_seconds
        self.compiled = CompileResult("error")
        self.executable: int | None = None
        """Read-only descriptor of the compiled program, which the caller closes; None: the program did not compile."""
        self.was_killed = False
        """Whether the machine killed the compiler at the last attempt too, so that `compiled` tells nothing."""
        self.was_starved = False
        """Whether the compiler had too little of a CPU, see `is_starved`, so that `compiled` tells nothing."""

    async def run_in(self, slot: int) -> None:
        """Compile in `slot`, statically linked if possible. Raises ExecutorLost.

        A program that does not compile is compiled a second time, because a compiler stage that the machine kills may
        end the driver in the same way as a mistake in the program. If the machine also killed the second attempt, as
        far as the compiler's processes and the kernel's count of such kills show, nothing is known about the program.
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
        job = frames.Job("\n".join(command), source, code, self._cpu_seconds, 0, _OUTPUT_BYTES, [], placed)
        work = Work(job, list_contents(request), [])
        try:
            runner, _ = self._zygote.spawn(slot, frames.KIND_COMPILE, [work.blob, work.indices])
        finally:
            work.close()
        reader = FrameReader(runner, MAX_TEXT)
        compiled: CompileResult | None = None
        executable: int | None = None
        queued: QueuedTime | None = None
        watch: asyncio.Task[None] | None = None
        wall_seconds = WALL_FACTOR * self._cpu_seconds
        try:
            while (frame := await reader.next(wall_seconds + 60)) is not None:
                kind, payload = frame
                if kind == frames.COMPILED:
                    compiled = parse_compiled(payload)
                elif kind == frames.COMPILING and len(payload) == frames.INDEX.size and watch is None:
                    queued = QueuedTime(self._run_queues, *frames.INDEX.unpack(payload))
                    watch = asyncio.create_task(_watch(queued))
                elif kind == frames.KILLED:
                    self.was_killed = True
                elif kind == frames.HELD_UP:
                    self.was_starved = queued is not None and is_starved(queued.seconds, self._cpu_seconds)
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
            if watch is not None:
                watch.cancel()
            reader.close()
        _close(executable)
        raise ExecutorLost("the compile stage ended without an answer")


def is_starved(queued_seconds: float, cpu_limit: int) -> bool:
    """Return whether a compiler that the wall clock stopped before it had used its CPU time lacked a CPU. Pure.

    The wall limit minus `queued_seconds` is then less than `cpu_limit`, so nothing is known about the program.
    No program brings this about: a compiler that sleeps is in no run queue, and stages that wait for each other use a
    CPU meanwhile, of which they had less than the limit.

    Args:
        queued_seconds: seconds in which the compiler was ready to run and had no CPU.
        cpu_limit: CPU seconds that it may use.
    """
    return queued_seconds > (WALL_FACTOR - 1) * cpu_limit


async def _watch(queued: QueuedTime) -> None:
    while True:
        queued.look()
        await asyncio.sleep(_LOOK_SECONDS)


def _close(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)


def _read_only(binary: int) -> int:
    """Reopen a memory file, because a file held open for writing cannot be executed. Raises ExecutorLost."""
    found = os.fstat(binary)
    if not stat.S_ISREG(found.st_mode) or found.st_size > BINARY_MIB << 20:
        raise ExecutorLost("the compile stage sent something else than a program")
    return os.open(f"/proc/self/fd/{binary}", os.O_RDONLY | os.O_CLOEXEC)
