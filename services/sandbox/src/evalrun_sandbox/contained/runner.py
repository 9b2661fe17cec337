"""A runner: one program's keeper. It compiles the program once, then forks one child a test and reports each.

It never runs the program itself. It stands under the slot's Landlock ruleset before it looks at the program's text.
Functions that fork give what the process does next: the child's stack unwinds to the top before the program starts, so
that a program finds (almost) all of its recursion limit.
"""

# ruff: noqa: PTH208, PTH123
# Why: pathlib and contextlib would make the zygote larger, and each fork dearer.
from __future__ import annotations

import gc
import os
import socket
import sys
import time
from collections.abc import Callable
from types import CodeType

from evalrun_sandbox.contained import compiler, folder, frames, landlock, program, python_source
from evalrun_sandbox.contained.execution import prepare_execution
from evalrun_sandbox.contained.kernel import close_from, die_with
from evalrun_sandbox.contained.limits import STOP_FACTOR, limit_program, refresh_cpu_limit, wall_limit
from evalrun_sandbox.contained.seccomp import EXECUTABLE_FD
from evalrun_sandbox.contained.site import Site
from evalrun_sandbox.contained.supervise import (
    Ended,
    FrontGoneError,
    Outcome,
    Pipes,
    Watch,
    expect_children,
    expect_none,
    open_pipes,
)

Next = Callable[[], "object"]
_FLUSH_BYTES = 1 << 16
_FLUSH_SECONDS = 0.05
_LARGEST_GROUP = 8
_QUICK_CPU_SECONDS = 0.01
_SHARE = 4
"""A group is at most this part of what is left."""
_KEPT: list[object] = []
FRONT_GONE, FAULTY = 3, 4
"""Exit statuses of a runner that could not finish."""


class Runner:
    """One job in one slot."""

    def __init__(self, site: Site, slot: int, kind: int, fds: list[int]) -> None:
        self._site = site
        self._slot = slot
        self._kind = kind
        self._front = socket.socket(fileno=fds[0])
        self._blob = fds[1]
        self._indices = fds[2]
        self._executable = fds[3] if len(fds) > 3 else -1
        self._pending = bytearray()
        self._group = 1
        self._left = 0
        self._flushed = time.monotonic()

    def run(self, zygote: int) -> Next | None:
        """Do the job; gives a child's next step, or None in the runner itself, which then ends by `_exit`."""
        status = 0
        try:
            die_with(zygote)
            os.setsid()
            step = self._work()
            if step is not None:
                return step
            self._send(frames.DONE, b"")
            self._flush()
        except (FrontGoneError, BrokenPipeError, ConnectionResetError):
            status = FRONT_GONE
        except Exception as error:  # noqa: BLE001 - its last words: the front takes them as an infra error
            status = self._fault(f"runner: {type(error).__name__}: {error}")
        os._exit(status)

    def _work(self) -> Next | None:
        work = self._site.work_folder(self._slot)
        job, offsets = frames.decode_job(lambda size, offset: _read_at(self._blob, size, offset))
        path = f"{self._site.source_folder(self._slot)}/{program.SCRIPT}"
        if self._kind == frames.KIND_PROGRAM:
            _write(path, job.code)
        purpose = {frames.KIND_COMPILE: "compile", frames.KIND_EXECUTABLE: "executable"}.get(self._kind, "python")
        ruleset = self._site.ruleset(self._slot, purpose)
        if ruleset is not None:
            landlock.restrict_self(ruleset)
        os.chdir(work)
        folder.empty(work)
        may_fork = self._kind == frames.KIND_COMPILE or self._site.program_filter is None
        watch = Watch(self._front.fileno(), work, job.output_bytes, self._site.cpus, may_fork=may_fork)
        if self._kind == frames.KIND_COMPILE:
            self._compile(job, watch)
            return None
        code: CodeType | None = None
        if self._kind == frames.KIND_PROGRAM or job.mode == "calls":
            checked = python_source.check(job.code)
            self._send(frames.COMPILED, frames.COMPILED_HEAD.pack(checked.status, checked.seconds) + checked.stderr)
            if checked.code is None:
                return None
            code = checked.code
            sys.path.insert(0, self._site.source_folder(self._slot))
            python_source.import_ahead(code)
        return self._tests(job, offsets, watch, code, path)

    def _tests(
        self, job: frames.Job, offsets: list[int], watch: Watch, code: CodeType | None, path: str
    ) -> Next | None:
        """Fork a child a test. What can be done before, is: each page that a child touches costs it 2 us."""
        compiled = self._kind == frames.KIND_EXECUTABLE
        confine = self._site.executable_filter if compiled else self._site.program_filter
        become = self._future(job, code, path)
        limit_program(job.time_seconds, job.memory_mib, max(job.sizes), compiled=compiled)
        work = self._site.work_folder(self._slot)
        runner = os.getpid()
        limits = (STOP_FACTOR * job.time_seconds, wall_limit(job.time_seconds))
        # A child leaves these frames behind: what they hold must not be freed there, which would cost it page faults,
        # and the socket's destructor would close whatever has its number by then.
        _KEPT.extend((self, job, offsets, watch, become))
        expect_children()
        gc.freeze()
        while group := self._next_group(job, offsets):
            ended: list[Ended | Outcome] = []
            for _, pipes in group:
                started = time.monotonic()
                pid = os.fork()
                if pid == 0:
                    die_with(runner)
                    expect_none()
                    _take_descriptors(pipes, self._executable)
                    if confine is not None:
                        confine.install()
                    else:
                        os.setpgid(0, 0)  # so that what it starts can be killed with it
                    return become
                ended.append(watch.quick(pid, started) or watch.child(pid, pipes, started, limits))
                if os.listdir(work):  # its mtime would not do: two tests may share a tick of the clock
                    folder.empty(work)
            self._report(watch, group, ended)
            refresh_cpu_limit(job.time_seconds)
        return None

    def _future(self, job: frames.Job, code: CodeType | None, path: str) -> Next:
        """Prepare what every test's child becomes, and give the step that becomes it."""
        if self._kind == frames.KIND_EXECUTABLE:
            return prepare_execution(self._site.machine)
        namespace = program.prepare_main(path)
        program.prepare_streams()
        if self._kind == frames.KIND_PROGRAM and code is not None:
            program.forget_ours()
            thorough = python_source.needs_teardown(code)
            return lambda: program.run_program(code, namespace, thorough=thorough)
        harness, text = self._site.harnesses[job.mode], job.code.decode()
        return lambda: program.run_harness(harness, text, namespace)

    def _next_group(self, job: frames.Job, offsets: list[int]) -> list[tuple[int, Pipes]]:
        """Take the next tests, with all that they need: what is done for several at once, without a fork in between,
        finds its pages its own again only once.

        Several only where tests are quick and many are left, so that runners end at about the same time.
        """
        data = os.read(self._indices, frames.INDEX.size * self._group)
        group = []
        for (index,) in frames.INDEX.iter_unpack(data):
            group.append((index, open_pipes(_memory_file(self._blob, offsets[index], job.sizes[index]))))
            self._left = len(offsets) - index - 1
        return group

    def _report(self, watch: Watch, group: list[tuple[int, Pipes]], ended: list[Ended | Outcome]) -> None:
        slow = False
        for (index, pipes), end in zip(group, ended):  # noqa: B905 - equal lengths; Python 3.9 has no strict
            outcome = end if isinstance(end, Outcome) else watch.outcome(end, pipes)
            slow = slow or outcome.cpu_seconds > _QUICK_CPU_SECONDS
            stdout, stderr = outcome.stdout, outcome.stderr
            head = frames.RUN_HEAD.pack(
                index, outcome.stopped, outcome.status, outcome.cpu_seconds, outcome.wall_seconds, outcome.peak_kib,
                len(stdout),
            )  # fmt: skip
            self._send(frames.RUN, head + stdout + stderr)
        self._group = 1 if slow else max(1, min(2 * self._group, _LARGEST_GROUP, self._left // _SHARE))
        if slow or len(self._pending) > _FLUSH_BYTES or time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self._flush()

    def _compile(self, job: frames.Job, watch: Watch) -> None:
        result = compiler.start(self._site, job).finish(watch)
        self._send(frames.COMPILED, frames.COMPILED_HEAD.pack(result.status, result.seconds) + result.stderr)
        self._flush()
        if result.binary is not None:
            message = frames.FRAME.pack(frames.BINARY, 0)
            socket.send_fds(self._front, [message], [result.binary])
            os.close(result.binary)  # a file that somebody may write cannot be executed
        folder.empty(self._site.work_folder(self._slot))

    def _send(self, frame: int, payload: bytes) -> None:
        self._pending += frames.FRAME.pack(frame, len(payload)) + payload

    def _flush(self) -> None:
        self._front.sendall(self._pending)
        self._pending.clear()
        self._flushed = time.monotonic()

    def _fault(self, text: str) -> int:
        self._send(frames.FAULT, text.encode(errors="replace")[:2000])
        try:
            self._flush()
        except OSError:
            return FRONT_GONE
        return FAULTY


def _take_descriptors(pipes: Pipes, executable: int) -> None:
    """Put a test's descriptors in their places and close all others."""
    os.dup2(pipes[0], 0)
    os.dup2(pipes[1], 1)
    os.dup2(pipes[2], 2)
    if executable >= 0:
        os.dup2(executable, EXECUTABLE_FD, inheritable=False)
        close_from(EXECUTABLE_FD + 1)
    else:
        close_from(3)


def _memory_file(blob: int, offset: int, size: int) -> int:
    """Give a memory file with a copy of a piece of `blob`, rewound: stdin, as if it were `< file`."""
    fd = os.memfd_create("stdin")
    while size > 0:
        moved = os.sendfile(fd, blob, offset, size)
        if moved == 0:
            raise OSError("the job is shorter than it says")
        offset += moved
        size -= moved
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _read_at(fd: int, size: int, offset: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = os.pread(fd, size - len(data), offset + len(data))
        if not piece:
            raise OSError("the job is shorter than it says")
        data += piece
    return bytes(data)


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
