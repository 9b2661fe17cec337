"""A runner: the process of a program. It compiles the program once, then forks a child per test and reports each.

The runner never runs the program itself, and restricts itself by the slot's Landlock ruleset before it looks at the
program's text. Functions that fork return the process's next step: the child's stack unwinds to the top before the
program starts, so that a program finds (almost) all of its recursion limit.
"""

# ruff: noqa: PTH123, SIM105
# Why: pathlib and contextlib would make the zygote larger, and each fork dearer.
from __future__ import annotations

import _socket  # `socket` itself makes enums of a thousand numbers: 8 ms of each call to a stock SandboxFusion server
import gc
import os
import sys
import time

# `collections.abc` imports `collections` too, which takes 4 ms of each such call.
from _collections_abc import Callable

from evalrun_executor.contained import compiler, directory, frames, landlock, program, python_source
from evalrun_executor.contained.child_bootstrap import prepare_bootstrap, prepare_confinement
from evalrun_executor.contained.exchange import Exchange
from evalrun_executor.contained.execution import prepare_execution
from evalrun_executor.contained.kernel import die_with
from evalrun_executor.contained.limits import (
    INTERPRETER_MIB,
    STOP_FACTOR,
    limit_program,
    refresh_cpu_limit,
    wall_limit,
)
from evalrun_executor.contained.site import Site
from evalrun_executor.contained.supervision import (
    CHILD_ENDED,
    FAULTY,
    SERVICE_GONE,
    ChildResult,
    ChildSupervisor,
    Ended,
    Pipes,
    ServiceGoneError,
    expect_children,
    open_pipes,
    wait_for_signal,
)

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

Next = Callable[[], "object"]
_FLUSH_BYTES = 1 << 16
_FLUSH_SECONDS = 0.05
_MAX_GROUP = 8
_QUICK_CPU_SECONDS = 0.01
_SHARE = 4
"""A group is at most this part of what is left."""
_KEPT: list[object] = []
PURPOSES = {
    frames.KIND_PROGRAM: "python",
    frames.KIND_HARNESS: "python",
    frames.KIND_HARNESS_WORKER: "harness",
    frames.KIND_PROGRAM_WORKER: "python",
    frames.KIND_COMPILE: "compile",
    frames.KIND_EXECUTABLE: "executable",
    frames.KIND_INTERPRETED: "interpreted",
    frames.KIND_SESSION: "harness",
}
"""Landlock ruleset of each kind of child."""


class Runner:
    """Runs the job of a slot."""

    def __init__(self, site: Site, slot: int, kind: int, fds: list[int]) -> None:
        self._site = site
        self._slot = slot
        self._kind = kind
        self._service = _socket.socket(fileno=fds[0])
        self._blob = fds[1]
        self._indices = fds[2]
        self._executable = fds[3] if len(fds) > 3 else -1
        self._pending = bytearray()
        self._group = 1
        self._left = 0
        self._flushed = time.monotonic()
        self._become: Next | None = None
        self._exchange: Exchange | None = None

    def run(self, zygote: int) -> Next | None:
        """Prepare the tests in the runner itself. Return the next step; see `boot`."""
        status = 0
        try:
            die_with(zygote)
            os.setsid()
            self._prepare()
            if self._become is not None:
                return self.serve
            self._finish()
        except (ServiceGoneError, BrokenPipeError, ConnectionResetError):
            status = SERVICE_GONE
        except Exception as error:  # noqa: BLE001 - its last words: the service takes them as an infra error
            status = self._report_fault(f"runner: {type(error).__name__}: {error}")
        os._exit(status)

    def _prepare(self) -> None:
        work = self._site.work_directory(self._slot)
        job, code_at, self._offsets = frames.decode_job(lambda size, offset: frames.read_at(self._blob, size, offset))
        self._job = job
        if job.placed or job.wanted:
            files_at = code_at + job.code_size + sum(job.sizes)
            self._exchange = Exchange(work, job, self._blob, files_at)
        path = f"{self._site.source_directory(self._slot)}/{program.SCRIPT}"
        if self._kind == frames.KIND_PROGRAM and self._exchange is None:
            _write(path, job.code)
        text, _, _, own_mib, reserved_mib = job.execution or ("", [], [], INTERPRETER_MIB, 0)
        if text and self._exchange is None:
            place = self._site.script_directory(self._slot)
            directory.empty(place)
            path = f"{place}/{text}"
            _write(path, job.code)
        ruleset = self._site.open_ruleset(self._slot, PURPOSES[self._kind])
        if ruleset is not None:
            landlock.restrict_self(ruleset)
        os.chdir(work)
        directory.empty(work)
        may_fork = self._kind == frames.KIND_COMPILE or self._site.program_filter is None
        supervisor = ChildSupervisor(self._service.fileno(), work, job.output_bytes, self._site.cpus, may_fork=may_fork)
        if self._kind == frames.KIND_COMPILE:
            self._compile(job, supervisor)
            return
        script = program.SCRIPT
        if self._kind == frames.KIND_PROGRAM and self._exchange is not None:
            script = self._exchange.add(script, job.code)
            path = f"{work}/{script}"
        if text and self._exchange is not None:
            path = f"{work}/{self._exchange.add(text, job.code)}"
        code: CodeType | None = None
        if self._kind == frames.KIND_PROGRAM or job.mode == "calls":
            stdio = self._kind == frames.KIND_PROGRAM
            checked = python_source.check(job.code, script if stdio else "<program>")
            self._queue_frame(
                frames.COMPILED, frames.COMPILED_HEAD.pack(checked.status, checked.seconds) + checked.stderr
            )
            if checked.code is None:
                return
            code = checked.code
            if self._exchange is None:
                sys.path.insert(0, self._site.source_directory(self._slot))
                python_source.import_ahead(code)
        self._supervisor = supervisor
        self._become = self._make_child_step(code, path)
        largest = max(job.sizes) if self._exchange is None else max(*job.sizes, self._exchange.largest)
        limit_program(
            job.time_seconds, job.memory_mib + own_mib, largest,
            executed=job.execution is not None, reserved_mib=reserved_mib,
        )  # fmt: skip

    def serve(self) -> Next | None:
        """Fork a child per test. Return the next step, in a forked child.

        Everything possible is done before the fork: each page that a child touches costs it 2 us.
        """
        job, supervisor, become, more = self._job, self._supervisor, self._become, self._executable
        filters = self._site.executable_filter, self._site.program_filter
        enter, confine = (
            prepare_bootstrap(watched=self._site.landlock_abi > 0),
            prepare_confinement(filters[job.execution is None]),
        )
        fork, clock, wait, reap, listing = os.fork, time.monotonic, wait_for_signal, os.wait4, os.listdir
        work, exchange = self._site.work_directory(self._slot), self._exchange
        limits = (STOP_FACTOR * job.time_seconds, wall_limit(job.time_seconds))
        # A child never returns to this frame. Freeing what the frame holds would cost the child page faults, and the
        # socket's destructor would close whatever has its number by then.
        _KEPT.extend((self, enter, confine, limits, work))
        status = 0
        try:
            expect_children()
            gc.freeze()
            while group := self._take_group():
                _KEPT.append(group)
                ended: list[Ended | ChildResult] = []
                for _, pipes in group:
                    if exchange is not None:
                        exchange.place_files()
                    started = clock()
                    pid = fork()
                    if pid == 0:
                        # From here on every page that the child touches is copied for it: see `child_bootstrap`.
                        enter(pipes[0], pipes[1], pipes[2], more)
                        confine()
                        return become
                    # Most children end within the first wait, which costs less than a supervisor's check.
                    if wait(CHILD_ENDED, supervisor.quick_seconds) is None:
                        ended.append(supervisor.watch_child(pid, pipes, started, limits))
                    else:
                        _, code, usage = reap(pid, 0)
                        ended.append((code, usage, clock() - started))
                    # The directory's mtime does not show every change: two tests may share a tick of the clock.
                    if listing(work):
                        self._send_files(exchange)
                        directory.empty(work)
                _KEPT.pop()
                self._report(supervisor, group, ended)
                refresh_cpu_limit(job.time_seconds)
            self._finish()
        except (ServiceGoneError, BrokenPipeError, ConnectionResetError):
            status = SERVICE_GONE
        except Exception as error:  # noqa: BLE001 - as in `run`
            status = self._report_fault(f"runner: {type(error).__name__}: {error}")
        os._exit(status)

    def _finish(self) -> None:
        self._queue_frame(frames.DONE, b"")
        self._flush()

    def _make_child_step(self, code: CodeType | None, path: str) -> Next:
        """Prepare what the children of all tests share. Return the step that runs the program in a child."""
        if self._job.execution is not None:
            _, arguments, environment, _, _ = self._job.execution
            filled = [word.replace(b"{source}", os.fsencode(path)) for word in arguments]
            return prepare_execution(self._site.machine, filled, environment)
        namespace = program.prepare_main(path)
        program.prepare_streams()
        if self._kind == frames.KIND_HARNESS or code is None:
            harness, text = self._site.harnesses[self._job.mode], code or self._job.code.decode()
            return lambda: program.run_harness(harness, text, namespace)
        program.forget_own_modules()
        if self._exchange is not None:
            place, names = self._site.work_directory(self._slot), self._exchange.names
            return lambda: program.run_beside_files(code, namespace, place, names)
        thorough = python_source.needs_teardown(code)
        return lambda: program.run_program(code, namespace, thorough=thorough)

    def _take_group(self) -> list[tuple[int, Pipes]]:
        """Take the next tests from the index pipe, and open what they need.

        After a fork the first touch of each page copies it for this process too. Tests are therefore prepared in
        groups, without a fork in between, if they are quick and many are left: runners then still end at about the same
        time.
        """
        data = os.read(self._indices, frames.INDEX.size * self._group)
        group = []
        for (index,) in frames.INDEX.iter_unpack(data):
            stdin = frames.make_memory_file(self._blob, self._offsets[index], self._job.sizes[index])
            group.append((index, open_pipes(stdin)))
            self._left = len(self._offsets) - index - 1
        return group

    def _report(
        self, supervisor: ChildSupervisor, group: list[tuple[int, Pipes]], ended: list[Ended | ChildResult]
    ) -> None:
        slow = False
        for (index, pipes), end in zip(group, ended):  # noqa: B905 - equal lengths; Python 3.9 has no strict
            outcome = end if isinstance(end, ChildResult) else supervisor.read_outcome(end, pipes)
            slow = slow or outcome.cpu_seconds > _QUICK_CPU_SECONDS
            stdout, stderr = outcome.stdout, outcome.stderr
            head = frames.RUN_HEAD.pack(
                index, outcome.stopped, outcome.status, outcome.cpu_seconds, outcome.wall_seconds, outcome.peak_kib,
                len(stdout),
            )  # fmt: skip
            self._queue_frame(frames.RUN, head + stdout + stderr)
        self._group = 1 if slow else max(1, min(2 * self._group, _MAX_GROUP, self._left // _SHARE))
        if slow or len(self._pending) > _FLUSH_BYTES or time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self._flush()

    def _send_files(self, exchange: Exchange | None) -> None:
        """Send the files that the job wants back; they come before their test's RUN."""
        found = exchange.gather_files() if exchange is not None else None
        if found is None:
            return
        together, payload = found
        self._flush()
        frames.send_with_descriptors(self._service, frames.FRAME.pack(frames.FILES, len(payload)), [together])
        os.close(together)
        self._service.sendall(payload)

    def _compile(self, job: frames.Job, supervisor: ChildSupervisor) -> None:
        source = job.source
        if self._exchange is not None:
            source = self._exchange.find_free_name(source)
            self._exchange.place_files()
        stage = compiler.start_compiler(self._site, job, source)
        self._queue_frame(frames.COMPILING, frames.INDEX.pack(stage.pid))
        try:
            self._flush()
        except OSError:
            # The service is gone. `finish` sees that too, and ends the compiler.
            pass
        result = stage.finish(supervisor)
        self._queue_frame(frames.COMPILED, frames.COMPILED_HEAD.pack(result.status, result.seconds) + result.stderr)
        if result.killed:
            self._queue_frame(frames.KILLED, b"")
        if result.held_up:
            self._queue_frame(frames.HELD_UP, b"")
        self._flush()
        if result.binary is not None:
            message = frames.FRAME.pack(frames.BINARY, 0)
            frames.send_with_descriptors(self._service, message, [result.binary])
            # A file that a process holds open for writing cannot be executed.
            os.close(result.binary)
        directory.empty(self._site.work_directory(self._slot))

    def _queue_frame(self, frame: int, payload: bytes) -> None:
        self._pending += frames.FRAME.pack(frame, len(payload)) + payload

    def _flush(self) -> None:
        self._service.sendall(self._pending)
        self._pending.clear()
        self._flushed = time.monotonic()

    def _report_fault(self, text: str) -> int:
        self._queue_frame(frames.FAULT, text.encode(errors="replace")[:2000])
        try:
            self._flush()
        except OSError:
            return SERVICE_GONE
        return FAULTY


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
