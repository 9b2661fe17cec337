"""Runs batches of tests on a foreign machine: one interpreter start, and one confined fork per test.

This is the remote side of `fusion_batch`, sent with each request to a stock SandboxFusion server. It needs only the
standard library and the sandbox's own `contained` modules, Python 3.9 or newer. The runner, its supervision and its
limits are those of `evalrun-sandbox`, so that both kinds of sandbox report the same about the same program.

The processes are:

    this process    opens the files of each program of the call and unlinks them; reads none of them
    a worker        forked from it for each program in turn or, for a single program, this process itself: reads its
                    task, forks a runner, stores its frames, and signs them with the program's own nonce, which it reads
                    when nothing of the program is left: no memory that a program can reach has ever held the nonce
    the runner      not root if it can leave root; under Landlock; forks a child per test. A program that has the call
                    and the server to itself has several runners, which take the tests in turn
    the child       no descriptor but 0, 1, 2; the seccomp filter; becomes the program

Programs that share a call see as little of each other as those of `evalrun-sandbox`, which forks all runners from a
zygote: no process that has read a program's data is forked for another program, and the data goes by descriptors that
the other programs' processes have closed. Each worker has its own user, directories and nonce and begins when nothing
of the worker before is left. None begins without the filter or Landlock, because something might then be left.

The reply is a file, because a stock server cuts printed output: the nonce, then frames in the format of
`contained.frames`, with a HELLO of our own first and an ENDED for each runner. It is empty if the program's turn did
not come.
"""

# ruff: noqa: PTH101, PTH102, PTH108, PTH123
# Why: pathlib and contextlib would make the process larger, and each fork more expensive.
from __future__ import annotations

import _socket
import _struct as struct
import gc
import marshal
import os
import select
import sys
import time
from _collections_abc import Callable, Mapping, Sequence

from evalrun_executor.contained import directory, frames, landlock
from evalrun_executor.contained.filters import Filter
from evalrun_executor.contained.kernel import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    die_with,
    prctl,
    syscall,
)
from evalrun_executor.contained.limits import STOP_FACTOR
from evalrun_executor.contained.runner import Runner
from evalrun_executor.contained.site import Site

HELLO, ENDED = 16, 17
"""Frames of a worker: lines of `name=value`; a runner's wait status."""
STATUS = struct.Struct("<i")
BUNDLE, CALLS, SETUP = "evalrun-bundle", "evalrun-calls", "evalrun-setup"
"""Names of files: the modules, those that only called programs need, and the settings shared by all programs."""
CODE, CALLS_CODE = "evalrun-code", "evalrun-calls-code"
"""The modules as this interpreter compiled them."""
TASK, NONCE, RESULT = "evalrun-task-", "evalrun-nonce-", "evalrun-result-"
"""Names of a program's files, followed by its position in the call."""
FIRST_USER, USERS = 64100, 1000
"""Users that programs run as if the server runs as root: different from those of `evalrun-sandbox`."""
_PR_SET_KEEPCAPS = 8
_CAP_SETUID = 7
_CAPSET, _SETFSUID = {"x86_64": (126, 122), "aarch64": (91, 151)}.get(os.uname().machine, (0, 0))
_CAPABILITY_VERSION = 0x20080522
_CHUNK = 1 << 18
_ONE_DESCRIPTOR = _socket.CMSG_LEN(struct.calcsize("i"))

Next = Callable[[], object]
Bundle = list[tuple[str, str, bytes]]


class Setup:
    """Settings that all programs of a call share and that reveal nothing about them; see `fusion_batch._setup`."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        self.filters: tuple[tuple[bytes, list[int], bytes], tuple[bytes, list[int]]] | None = fields["filters"]  # type: ignore[assignment]
        """Filters of programs, then of compilers: assembled in the gateway, which takes 4 ms."""
        self.package_dirs: list[str] = list(fields["package_dirs"])  # type: ignore[call-overload]  # a list of str
        self.calls = bool(fields["calls"])
        """Whether the harness of `calls` runs the programs."""
        self.programs = int(str(fields["programs"]))
        self.runners = int(str(fields["runners"]))
        """Number of runners of each program."""
        self.budget_seconds = float(str(fields["budget_seconds"]))
        self.budget_bytes = int(str(fields["budget_bytes"]))
        """Past either budget no further test is begun, and the gateway asks again for the rest. The budgets are seconds
        of the call and bytes of a program."""
        self.want_code = bool(fields["want_code"])


class Task:
    """A request of the gateway; see `fusion_batch._task`."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        self.kind = int(str(fields["kind"]))
        self.job = _bytes(fields["job"])
        """A memory file's content: an encoded `frames.Job`, then the inputs."""
        self.count = int(str(fields["count"]))
        self.commands: list[str] = list(fields["commands"])  # type: ignore[call-overload]  # a list of str
        """Command lines of the compiler, to try in order; empty: nothing is compiled to a file."""
        self.interpreter = str(fields["interpreter"])
        """Path of the program that runs the text, or its compiled form; empty in any other kind of task."""
        self.compile_job = _bytes(fields["compile_job"])
        self.time_seconds = float(str(fields["time_seconds"]))
        self.stop_after = int(str(fields["stop_after"]))
        """Number of timeouts after which no test is begun; 0: no limit."""


class ProgramFiles:
    """The open, unnamed files of a program."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.task, self.nonce = _open_unlinked(f"{TASK}{number}"), _open_unlinked(f"{NONCE}{number}")
        self.result = os.memfd_create("result")
        """A memory file, which nobody finds by a name."""

    def close(self) -> None:
        """Close the files.

        A worker keeps them open until then, so that no number below is an executable's; see `child_bootstrap`.
        """
        for fd in (self.task, self.nonce, self.result):
            os.close(fd)


class Worker:
    """The state of a program in a process that never becomes a program itself."""

    def __init__(self, setup: Setup, site: Site, files: ProgramFiles, started: float) -> None:
        self._setup, self._site, self._files, self._started = setup, site, files, started
        self._said: list[bytes] = []
        self._size = 0
        self._user = FIRST_USER + os.getpid() % USERS
        self.task = Task(marshal.loads(_read_all(files.task)))  # noqa: S302 - the gateway's own
        self._place = site.place = f"{site.place}{files.number}"
        os.mkdir(self._place, 0o755)
        prctl(PR_SET_CHILD_SUBREAPER, 1)

    def work(self) -> Next | None:
        """Compile the program if needed, and run its tests.

        Return the next step in a forked process, and None in the worker itself.
        """
        task = self.task
        executable: list[int] = []
        job = task.job
        if task.commands:
            for number, command in enumerate(task.commands):
                source = _memory_file(_set_command(task.compile_job, command))
                step = self._run([2 * number], frames.KIND_COMPILE, [source, _indices(0)], executable)
                if step is not None:
                    return step
                os.close(source)
                if executable or not self._static_is_missing():
                    break
            if executable:
                # A file that is held open for writing cannot be executed.
                executable = [os.open(f"/proc/self/fd/{executable[0]}", os.O_RDONLY | os.O_CLOEXEC)]
                if task.interpreter:
                    job = _insert_code(job, _read_all(executable[0]))
                    os.close(executable[0])
        if task.interpreter and (executable or not task.commands):
            self._site.interpreters = [task.interpreter]
            executable = [os.open(task.interpreter, os.O_RDONLY | os.O_CLOEXEC)]
        if executable or task.kind in (frames.KIND_PROGRAM, frames.KIND_HARNESS):
            fds = [_memory_file(job), _indices(task.count), *executable]
            apart = self._site.landlock_abi > 0 and self._site.program_filter is not None
            runners = self._setup.runners if apart else 1
            step = self._run(range(1, 2 * runners, 2), task.kind, fds, [])
            if step is not None:
                return step
        self._remove_directories()
        self._answer()
        return None

    def _remove_directories(self) -> None:
        """Remove the directories of the programs' user, as that user if this process lacks the capabilities."""
        # No process is left that could interfere.
        if self._site.program_filter is not None and self._site.landlock_abi > 0:
            try:
                self._empty_place()
            except PermissionError:
                pass
            else:
                return
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                leave_root(
                    self._user, keep_files=self.task.kind not in (frames.KIND_EXECUTABLE, frames.KIND_INTERPRETED)
                )
                self._empty_place()
                status = 0
            finally:
                os._exit(status)
        os.waitpid(pid, 0)

    def _empty_place(self) -> None:
        for slot in os.listdir(self._place):  # noqa: PTH208 - see above
            for name in ("work", "source", "script"):
                place = f"{self._place}/{slot}/{name}"
                if os.path.isdir(place):  # noqa: PTH112 - see above
                    directory.empty(place)
                    os.rmdir(place)  # noqa: PTH106 - see above

    def _run(self, slots: Sequence[int], kind: int, fds: list[int], received: list[int]) -> Next | None:
        """Fork a runner per slot and collect their frames. Return the next step in each forked process."""
        gc.freeze()
        own = os.getpid()
        runners: dict[int, _socket.socket] = {}
        for slot in slots:
            os.makedirs(f"{self._place}/slot-{slot}", exist_ok=True)  # noqa: PTH103 - see above
            os.chmod(f"{self._place}/slot-{slot}", 0o777)  # noqa: S103 - inside a directory that lists nothing
            ours, theirs = _socket.socketpair()
            pid = os.fork()
            if pid == 0:
                for end in (ours, *runners.values()):
                    end.close()
                self._files.close()
                user = leave_root(self._user, keep_files=kind < frames.KIND_COMPILE)
                prctl(PR_SET_DUMPABLE, 0)
                theirs.sendall(_frame(HELLO, self._hello(user)))
                self._site.make_directories(slot)
                runner = Runner(self._site, slot, kind, [theirs.detach(), *fds])
                self._said.clear()
                return lambda: runner.run(own)
            theirs.close()
            runners[pid] = ours
        self._listen([*runners.values()], kind, fds[1], received)
        for pid in runners:
            _, status = os.waitpid(pid, 0)
            self._keep(_frame(ENDED, STATUS.pack(status)))
        return None

    def _hello(self, user: int) -> bytes:
        site = self._site
        return f"abi={site.landlock_abi}\nfilter={int(site.program_filter is not None)}\nroot={int(user == 0)}".encode()

    def _listen(self, runners: list[_socket.socket], kind: int, indices: int, received: list[int]) -> None:
        """Store frames until all runners are done."""
        poller = select.poll()
        left = {}
        for runner in runners:
            poller.register(runner, select.POLLIN)
            left[runner.fileno()] = runner, bytearray()
        late = 0
        while left:
            for fd, _ in poller.poll():
                runner, waiting = left[fd]
                data, rights, _, _ = runner.recvmsg(_CHUNK, _ONE_DESCRIPTOR)
                for _, _, fds in rights:
                    received += struct.unpack("i", fds)
                if not data:
                    poller.unregister(runner)
                    runner.close()
                    del left[fd]
                waiting += data
                late += self._take_frames(waiting)
            if kind != frames.KIND_COMPILE and (
                self._size > self._setup.budget_bytes
                or time.monotonic() - self._started > self._setup.budget_seconds
                or 0 < self.task.stop_after <= late
            ):
                while os.read(indices, 1 << 16):
                    pass

    def _take_frames(self, waiting: bytearray) -> int:
        """Store the complete frames that have arrived. Return how many report a late run."""
        late = 0
        while len(waiting) >= frames.FRAME.size:
            name, length = frames.FRAME.unpack_from(waiting)
            end = frames.FRAME.size + length
            if len(waiting) < end:
                break
            frame = bytes(waiting[:end])
            del waiting[:end]
            if name == frames.RUN:
                late += self._was_late(frame)
            self._keep(frame)
        return late

    def _was_late(self, frame: bytes) -> bool:
        _, stopped, _, cpu_seconds, _, _, _ = frames.RUN_HEAD.unpack_from(frame, frames.FRAME.size)
        return bool(stopped == frames.STOPPED_TIME or cpu_seconds >= STOP_FACTOR * self.task.time_seconds)

    def _static_is_missing(self) -> bool:
        said = b"".join(self._said)
        return b"cannot find -l" in said or (b"static" in said and b"ld:" in said)

    def _keep(self, frame: bytes) -> None:
        self._said.append(frame)
        self._size += len(frame)

    def _answer(self) -> None:
        """Write the result: signed, complete, and only now, when nothing of the program is left."""
        self._keep(_frame(frames.DONE, b""))
        with open(self._files.result, "wb", closefd=False) as file:
            file.writelines([_read_all(self._files.nonce), *self._said])


def leave_root(user: int, *, keep_files: bool) -> int:
    """Switch to a user who owns nothing if this process is root. Return the resulting user.

    Stock images have an interpreter under /root: with `keep_files` the process continues to open files as root, without
    any capability, and Landlock limits which. Executed programs lose that right. If the user cannot be changed, all
    capabilities are dropped.
    """
    if os.geteuid() != 0:
        return os.geteuid()
    try:
        os.setgroups([])
        os.setresgid(user, user, user)
        if keep_files:
            prctl(_PR_SET_KEEPCAPS, 1)
        os.setresuid(user, user, user)
        if keep_files:
            _set_capabilities(1 << _CAP_SETUID)
            syscall(_SETFSUID, 0)
    except PermissionError:
        user = 0
    _set_capabilities(0)
    return user


def _set_capabilities(effective: int) -> None:
    header = struct.pack("<Ii", _CAPABILITY_VERSION, 0)
    syscall(_CAPSET, header, struct.pack("<6I", effective, effective, 0, 0, 0, 0))


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("the task holds no bytes where it should")
    return value


def _set_command(job: bytes, command: str) -> bytes:
    read, _, _ = frames.decode_job(lambda size, offset: job[offset : offset + size])
    read.mode = command
    return read.encode()


def _insert_code(job: bytes, code: bytes) -> bytes:
    """Return an encoded job without a text, completed with `code`, the compiler's output."""
    read, inputs, _ = frames.decode_job(lambda size, offset: job[offset : offset + size])
    read.code, read.code_size = code, len(code)
    return read.encode() + job[inputs:]


def _indices(count: int) -> int:
    """Return the read end of a pipe that holds the tests' numbers."""
    read_end, write_end = os.pipe()
    os.write(write_end, b"".join(frames.INDEX.pack(index) for index in range(count)))
    os.close(write_end)
    return read_end


def _memory_file(content: bytes) -> int:
    fd = os.memfd_create("job")
    with open(os.dup(fd), "wb") as file:
        file.write(content)
    return fd


def _frame(kind: int, payload: bytes) -> bytes:
    return frames.FRAME.pack(kind, len(payload)) + payload


def _read_all(fd: int) -> bytes:
    parts = []
    while part := os.read(fd, 1 << 16):
        parts.append(part)
    return b"".join(parts)


def _open_unlinked(name: str) -> int:
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    os.unlink(name)
    return fd


def make_site(setup: Setup, call_modules: Bundle) -> Site:
    """Prepare everything that all programs share, before any data of a program is read."""
    import site as ordinary

    ordinary.setquit()
    ordinary.setcopyright()
    ordinary.sethelper()
    os.umask(0o022)
    os.chmod(".", 0o711)  # noqa: S103 - the programs' user has to get through; Landlock holds it to its own directory
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_DUMPABLE, 0)
    own = os.getcwd()  # noqa: PTH109 - see above
    site = Site(f"{own}/place-", setup.package_dirs)
    site.landlock_abi = landlock.abi()
    if setup.filters is not None:
        program, compiler = setup.filters
        site.program_filter = site.executable_filter = Filter(*program)
        site.compiler_filter = Filter(*compiler)
    if setup.calls:
        for name, _, code in call_modules:
            if name not in sys.modules:
                module = type(sys)(name)
                # Some of the modules are packages.
                module.__path__ = []
                sys.modules[name] = module
                exec(marshal.loads(code), module.__dict__)  # noqa: S102, S302 - the sandbox's own modules
        site.harnesses["calls"] = sys.modules["evalrun_executor.calls.call_harness"].main
    sys.path[:] = [path for path in sys.path if path.startswith("/") and path != own]
    sys.path += setup.package_dirs
    return site


def _read_call_modules() -> Bundle:
    """Return the modules that call functions, compiled; none if the call has none."""
    try:
        fd = _open_unlinked(CALLS)
    except FileNotFoundError:
        return []
    magic, modules = marshal.loads(_read_all(fd))  # noqa: S302 - the gateway's own, or this interpreter's
    os.close(fd)
    if magic:
        return list(modules)
    return [
        (name, path, marshal.dumps(compile(source, path, "exec", dont_inherit=True, optimize=2)))
        for name, path, source in modules
    ]


def _publish(files: ProgramFiles) -> None:
    """Publish a result file under its final name, copied by descriptor: memory is kept for the programs that follow."""
    fd = os.open(f"{RESULT}{files.number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    frames.copy(fd, files.result, 0, os.fstat(files.result).st_size)
    os.close(fd)


def main(bundle: Bundle, magic: bytes) -> Next:
    """Serve the call in the current directory. Return the next step in a forked process; never returns otherwise.

    Args:
        bundle: module name, file and marshalled code of each module; emptied here.
        magic: magic number of the interpreter that compiled it, which is this one.

    Raises:
        PermissionError: the call has several programs, and nothing here separates them.
    """
    started = time.monotonic()
    with open(SETUP, "rb") as file:
        setup = Setup(marshal.load(file))  # noqa: S302 - the gateway's own
    call_modules = _read_call_modules()
    site = make_site(setup, call_modules)
    for name in (BUNDLE, SETUP):
        os.unlink(name)
    if setup.want_code:
        for name, modules in ((CODE, bundle), (CALLS_CODE, call_modules)):
            with open(name, "wb") as file:
                marshal.dump((magic, modules), file)
    bundle.clear()
    call_modules.clear()
    waiting = [ProgramFiles(number) for number in range(setup.programs)]
    step = (
        Worker(setup, site, waiting[0], started).work()
        if len(waiting) == 1
        else _take_turns(setup, site, waiting, started)
    )
    if step is not None:
        return step
    for files in waiting:
        _publish(files)
    # Python's own clean-up is skipped: it would take 2 ms, and nothing is left to clean up.
    os._exit(0)


def _take_turns(setup: Setup, site: Site, waiting: list[ProgramFiles], started: float) -> Next | None:
    """Fork a worker per program, in turn. In the child, return its next step. Raises PermissionError."""
    if site.landlock_abi == 0 or site.program_filter is None:
        raise PermissionError("several programs in one call, without Landlock or without a filter")
    gc.freeze()
    own = os.getpid()
    for files in waiting:
        if files.number > 0 and time.monotonic() - started > setup.budget_seconds:
            break
        pid = os.fork()
        if pid == 0:
            die_with(own)
            for others in waiting:
                if others is not files:
                    others.close()
            step = Worker(setup, site, files, started).work()
            if step is not None:
                return step
            os._exit(0)
        os.waitpid(pid, 0)
    return None
