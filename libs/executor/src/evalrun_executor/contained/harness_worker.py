"""A harness worker: a long-lived process per slot that forks a child for each input of a preloaded harness.

Unlike a runner the worker serves many programs, so it must not hold any of their data: a later program could find the
data in its own memory, which is a copy of the worker's. The worker reads limits and sizes only. The child reads the
program's text from the job's memory file, and compiles it once it holds no descriptor but its own. The child's output
goes to the service in memory files, or in pipes whose other ends the service has.
"""

# ruff: noqa: SIM105
# Why: pathlib and contextlib would make the zygote larger, and each fork dearer.
from __future__ import annotations

import gc
import os
import signal
import socket
import struct
import time
from collections.abc import Callable
from resource import setrlimit
from types import CodeType

from evalrun_executor.contained import directory, frames, landlock, program, python_source
from evalrun_executor.contained.child_bootstrap import Enter, prepare_bootstrap, prepare_confinement
from evalrun_executor.contained.kernel import die_with
from evalrun_executor.contained.limits import (
    STOP_FACTOR,
    CompileLimits,
    compute_job_limits,
    limit_harness_worker,
    wall_limit,
)
from evalrun_executor.contained.site import Site
from evalrun_executor.contained.supervision import (
    CHILD_ENDED,
    FAULTY,
    QUICK_SECONDS,
    SERVICE_GONE,
    ChildResult,
    ChildSupervisor,
    ServiceGoneError,
    expect_children,
    wait_for_signal,
)

Next = Callable[[], "object"]
_COMPILATION = struct.Struct("<?dd")
"""Report of a child: whether the program compiles, CPU seconds until then, seconds it took."""
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
_FDS = 4
"""Maximum descriptors that come with a job."""
_KEPT: list[object] = []


class HarnessWorker:
    """Runs harnesses in a slot."""

    PURPOSE = "harness"
    """Name of the Landlock ruleset that confines the worker."""
    CODE_NAME = "<program>"
    """Name of the program's file in tracebacks."""

    def __init__(self, site: Site, slot: int, service: int) -> None:
        self._site = site
        self._slot = slot
        self._service = socket.socket(fileno=service)
        self._work = site.work_directory(slot)
        self._supervisor = ChildSupervisor(service, self._work, 0, site.cpus, may_fork=site.program_filter is None)
        self._pending = bytearray()
        self._blob = self._indices = -1
        self._outputs: list[int] = []
        """The service's pipes that the next program writes to; without them it writes to memory files."""
        self._offsets: list[int] = []
        self._compiles = False
        self._compiled = False
        self._next = b""
        """The packed index of the next test; empty at the end."""
        self._index = 0
        self._complaint = 0
        self._files = (-1, -1, -1)
        self._compilation_in = self._compilation_out = -1
        self._compilation = b""
        self._main_path = "<harness>"

    def _open(self) -> None:
        """Open files that the Landlock ruleset will not grant."""

    def _prepare(self) -> None:
        """Prepare what all children share. This process is already confined."""

    def _take_program(self) -> bool:
        """Return whether the job's text is a program, which the child compiles first."""
        return self._job.mode == "calls"

    def _make_step(self, code: CodeType) -> Next:
        """Return the step that runs the compiled program; called in the child."""
        harness, namespace = self._site.harnesses[self._job.mode], self._namespace
        return lambda: program.run_harness(harness, code, namespace)

    def begin(self, zygote: int) -> Next | None:
        """Confine this process and everything that it forks. Return the next step; see `boot`."""
        try:
            die_with(zygote)
            os.setsid()
            self._open()
            ruleset = self._site.open_ruleset(self._slot, self.PURPOSE)
            if ruleset is not None:
                landlock.restrict_self(ruleset)
            self._site.forget_rulesets()
            os.chdir(self._work)
            directory.empty(self._work)
            self._namespace = program.prepare_main(self._main_path)
            program.prepare_streams()
            self._prepare()
            limit_harness_worker()
            expect_children()
            gc.freeze()
        except Exception as error:  # noqa: BLE001 - its last words: the service takes them as an infra error
            self._report_fault(f"worker: {type(error).__name__}: {error}")
            os._exit(FAULTY)
        return self.serve

    def serve(self) -> Next | None:
        """Do jobs until the service leaves. Return the next step, in a forked child.

        The fork is made here, right below `boot`, so that a child leaves a single frame behind.
        """
        enter, confine = (
            prepare_bootstrap(watched=self._site.landlock_abi > 0),
            prepare_confinement(self._site.program_filter),
        )
        fork, clock, wait, reap, listing = os.fork, time.monotonic, wait_for_signal, os.wait4, os.listdir
        work = self._work
        # A child never returns to this frame. Freeing what the frame holds would cost the child page faults, and the
        # socket's destructor would close whatever has its number by then.
        _KEPT.extend((enter, confine, self))
        status = 0
        try:
            while self._take_job():
                become, limits, has_code = (
                    self._make_harness_step(),
                    self._limits,
                    self._job.code_size > 0 or self._compiles,
                )
                while self._take_test():
                    stdin, stdout, stderr = self._files
                    started = clock()
                    pid = fork()
                    if pid == 0:
                        # From here on every page that the child touches is copied for it: see `child_bootstrap`.
                        if has_code:
                            become = self._make_code_step(enter)
                        else:
                            enter(stdin, stdout, stderr, -1)
                        for what, limit in limits:
                            setrlimit(what, limit)
                        confine()
                        return become
                    # Most children end within the first wait, which costs less than a supervisor's check.
                    if wait(CHILD_ENDED, QUICK_SECONDS) is None:
                        outcome = self._supervisor.watch_filed_child(
                            pid, (stdout, stderr), started, self._compute_stop_times
                        )
                    else:
                        _, ended, usage = reap(pid, 0)
                        outcome = ChildResult(
                            0, ended, usage.ru_utime + usage.ru_stime, clock() - started, usage.ru_maxrss
                        )
                    # The directory's mtime does not show every change: two tests may share a tick of the clock.
                    if listing(work):
                        directory.empty(work)
                    self._report(outcome)
                self._end_job()
        except (ServiceGoneError, BrokenPipeError, ConnectionResetError):
            status = SERVICE_GONE
        except Exception as error:  # noqa: BLE001 - its last words: the service takes them as an infra error
            self._report_fault(f"worker: {type(error).__name__}: {error}")
            status = FAULTY
        os._exit(status)

    def _take_job(self) -> bool:
        """Wait for a job. Return False at the service's end of file."""
        message, ancillary, _, _ = self._service.recvmsg(1, socket.CMSG_SPACE(4 * _FDS))
        # A STOP that arrives between two jobs was meant for a program that has ended meanwhile.
        while message == frames.STOP:
            message, ancillary, _, _ = self._service.recvmsg(1, socket.CMSG_SPACE(4 * _FDS))
        if not message:
            return False
        ((_, _, data),) = ancillary
        self._blob, self._indices, *self._outputs = struct.unpack(f"{len(data) // 4}i", data)
        self._job, self._code, self._offsets = frames.decode_job(self._read_at, with_code=False)
        self._supervisor.output_bytes = self._job.output_bytes
        file_bytes = 0 if self._outputs else self._job.output_bytes
        self._limits = compute_job_limits(self._job.time_seconds, self._job.memory_mib, file_bytes)
        self._compiles = self._take_program()
        self._compiled = False
        self._next = os.read(self._indices, frames.INDEX.size)
        if not self._next:
            # Other slots have taken all tests.
            self._queue_frame(frames.DONE, b"")
            self._send([])
        return True

    def _make_harness_step(self) -> Next | None:
        """Return the step of a child that runs a harness without a program, or None if the child compiles a program."""
        if self._compiles:
            return None
        harness, namespace = self._site.harnesses[self._job.mode], self._namespace
        return lambda: program.run_harness(harness, "", namespace)

    def _take_test(self) -> bool:
        """Prepare the next test. Return False after the last test."""
        if not self._next:
            return False
        (self._index,) = frames.INDEX.unpack(self._next)
        stdin = frames.make_memory_file(self._blob, self._offsets[self._index], self._job.sizes[self._index])
        stdout, stderr = self._outputs or (frames.make_plain_memory("stdout"), frames.make_plain_memory("stderr"))
        self._outputs = []
        self._files = (stdin, stdout, stderr)
        if self._compiles:
            self._compilation_in, self._compilation_out = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            self._compilation = b""
        return True

    def _make_code_step(self, enter: Enter) -> Next:
        """Bootstrap this child, read the text, compile it if it is a program, and return the step that runs it.

        A text that does not compile ends the child.
        """
        # The child reads the text itself, before it closes the job's memory file: the worker never holds the text.
        text = self._read_at(self._job.code_size, self._code)
        stdin, stdout, stderr = self._files
        enter(stdin, stdout, stderr, self._compilation_out if self._compiles else -1)
        if not self._compiles:
            harness, namespace = self._site.harnesses[self._job.mode], self._namespace
            return lambda: program.run_harness(harness, text.decode(), namespace)
        started = time.monotonic()
        checked = python_source.check(text, self.CODE_NAME)
        step = None if checked.code is None else self._make_step(checked.code)
        seconds = time.monotonic() - started
        os.write(3, _COMPILATION.pack(step is not None, time.process_time(), seconds))
        os.close(3)
        if step is None:
            os.write(2, checked.stderr)
            os._exit(0)
        return step

    def _compute_stop_times(self) -> tuple[float, float]:
        """Return the CPU and wall seconds at which a child is stopped, those of its compilation included."""
        seconds = self._job.time_seconds
        cpu: float = 0
        wall: float = 0
        if self._compiles:
            self._read_compilation()
            # The child compiles under `CompileLimits`. Once it has reported, the measured time replaces them.
            cpu, wall = CompileLimits.CPU_SECONDS, 2 * CompileLimits.CPU_SECONDS
            if self._compilation:
                _, cpu, wall = _COMPILATION.unpack(self._compilation)
        return STOP_FACTOR * seconds + cpu, wall_limit(seconds) + wall

    def _read_compilation(self) -> None:
        """Read the child's report on its compilation, if it has arrived."""
        if not self._compilation:
            try:
                self._compilation = os.read(self._compilation_in, _COMPILATION.size)
            except BlockingIOError:
                return

    def _report(self, outcome: ChildResult) -> None:
        """Report how a child ended and, after the last child, that the job is done."""
        stdin, stdout, stderr = self._files
        os.close(stdin)
        good = self._take_compilation(outcome) if self._compiles else True
        self._next = os.read(self._indices, frames.INDEX.size) if good else b""
        files = [stdout, stderr]
        if good:
            files = self._queue_end(outcome)
        elif self._complaint:
            self._queue_frame(frames.COMPLAINT, frames.INDEX.pack(self._complaint))
            files = [stderr]
        else:
            files = []
        if not self._next:
            self._queue_frame(frames.DONE, b"")
        self._send(files)
        os.close(stdout)
        os.close(stderr)

    def _queue_end(self, outcome: ChildResult) -> list[int]:
        """Queue the frame about a program's end. Return the descriptors of its outputs."""
        outputs = [(fd, os.fstat(fd).st_size) for fd in self._files[1:]]
        max_bytes = self._job.output_bytes
        if any(size > max_bytes for _, size in outputs):
            outcome.stopped = outcome.stopped or frames.STOPPED_OUTPUT
        head = frames.FILED_HEAD.pack(
            self._index, outcome.stopped, outcome.status, outcome.cpu_seconds, outcome.wall_seconds, outcome.peak_kib,
            *(min(size, max_bytes) for _, size in outputs),
        )  # fmt: skip
        self._queue_frame(frames.FILED, head)
        return [fd for fd, size in outputs if size > 0]

    def _take_compilation(self, outcome: ChildResult) -> bool:
        """Queue the result of the compilation, once per job. Return whether the program ran."""
        os.close(self._compilation_out)
        self._read_compilation()
        os.close(self._compilation_in)
        error = b""
        self._complaint = 0
        if self._compilation:
            good, cpu, seconds = _COMPILATION.unpack(self._compilation)
            outcome.cpu_seconds = max(0.0, outcome.cpu_seconds - cpu)
            outcome.wall_seconds = max(0.0, outcome.wall_seconds - seconds)
            status = 0 if good else 1
            if not good:
                self._complaint = os.fstat(self._files[2]).st_size
        else:
            good, seconds = False, outcome.wall_seconds
            ended_by = os.WTERMSIG(outcome.status) if os.WIFSIGNALED(outcome.status) else 0
            if ended_by == signal.SIGXCPU or outcome.cpu_seconds >= CompileLimits.CPU_SECONDS:
                status, error = 2, b"the interpreter took too long to compile the program\n"
            elif outcome.stopped == frames.STOPPED_TIME:
                # The compiler reads nothing and waits for nothing.
                raise OSError("the machine was too busy for the interpreter to compile the program")
            elif outcome.stopped != frames.NOT_STOPPED:
                # The supervisor stopped the child for what the text made the compiler do, e.g. fill the directory.
                status, error = 1, b"the interpreter was stopped while it compiled the program\n"
            elif ended_by in _CRASHES:
                status, error = 1, b"the program crashes the interpreter's compiler\n"
            else:
                raise OSError(f"a child ended with wait status {outcome.status} before it had compiled the program")
        if not self._compiled:
            self._compiled = True
            self._queue_frame(frames.COMPILED, frames.COMPILED_HEAD.pack(status, seconds) + error)
        return bool(good)

    def _end_job(self) -> None:
        for fd in (self._blob, self._indices, *self._outputs):
            os.close(fd)
        self._outputs = []

    def _queue_frame(self, frame: int, payload: bytes) -> None:
        self._pending += frames.FRAME.pack(frame, len(payload)) + payload

    def _send(self, fds: list[int]) -> None:
        """Send the pending frame with descriptors."""
        if fds:
            del self._pending[: frames.send_with_descriptors(self._service, self._pending, fds)]
        if self._pending:
            self._service.sendall(self._pending)
            self._pending.clear()

    def _report_fault(self, text: str) -> None:
        self._pending.clear()
        self._queue_frame(frames.FAULT, text.encode(errors="replace")[:2000])
        try:
            self._service.sendall(self._pending)
        except OSError:
            pass

    def _read_at(self, size: int, offset: int) -> bytes:
        return frames.read_at(self._blob, size, offset)
