"""Runs a batch of tests on a machine that is not ours: one interpreter start, one fork a test, each confined by itself.

This is the far side of `fusion_batch`, sent with each request to a stock SandboxFusion server. Standard library and the
sandbox's own `contained` modules only, Python 3.9 or newer: the runner, its watch and its limits are the very ones of
`evalrun-sandbox`, so that both kinds of sandbox say the same of the same program.

Who is who:

    this process    reads the task, forks a runner, keeps what it says, and signs it with the request's nonce, which it
                    reads when no program is left: no memory that one can reach has ever held it
    the runner      no longer root where that can be left; under Landlock; forks one child a test
    the child       no descriptor but 0, 1, 2; the seccomp filter; becomes the program

The answer is a file, for a stock server cuts what is printed: the nonce, then frames as `contained.frames` has them,
and of our own a HELLO first and an ENDED for each runner.
"""

# ruff: noqa: PTH101, PTH102, PTH108, PTH123
# Why: pathlib and contextlib would make the process larger, and each fork dearer.
from __future__ import annotations

import ctypes
import gc
import marshal
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from types import CodeType

from evalrun_sandbox.contained import folder, frames, landlock, seccomp
from evalrun_sandbox.contained.kernel import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    prctl,
    syscall,
)
from evalrun_sandbox.contained.limits import STOP_FACTOR
from evalrun_sandbox.contained.runner import Runner
from evalrun_sandbox.contained.site import Site

HELLO, ENDED, CODE = 16, 17, 18
"""Frames of this process: lines of `name=value`; a runner's wait status; the bundle's modules, compiled."""
STATUS = struct.Struct("<i")
BUNDLE, TASK, NONCE, RESULT = "evalrun-bundle", "evalrun-task", "evalrun-nonce", "evalrun-result"
FIRST_USER, USERS = 64100, 1000
"""Whom programs run as where the server runs as root: other than `evalrun-sandbox`'s."""
_PR_SET_KEEPCAPS = 8
_CAP_SETUID = 7
_CAPSET, _SETFSUID = {"x86_64": (126, 122), "aarch64": (91, 151)}.get(os.uname().machine, (0, 0))
_CAPABILITY_VERSION = 0x20080522
_CHUNK = 1 << 18
_STATIC = "-static"

Next = Callable[[], object]


class Task:
    """What the gateway asks for; see `fusion_batch.task`."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        self.kind = int(str(fields["kind"]))
        self.mode = str(fields["mode"])
        self.job = _bytes(fields["job"])
        """A memory file's content: an encoded `frames.Job`, then the inputs."""
        self.count = int(str(fields["count"]))
        self.commands: list[str] = list(fields["commands"])  # type: ignore[call-overload]  # a list of str
        """Of the compiler, to try in order."""
        self.compile_job = _bytes(fields["compile_job"])
        self.time_seconds = float(str(fields["time_seconds"]))
        self.stop_after = int(str(fields["stop_after"]))
        """Time-outs after which no test is begun; 0: none."""
        self.budget_seconds = float(str(fields["budget_seconds"]))
        self.budget_bytes = int(str(fields["budget_bytes"]))
        """Past either no further test is begun: the gateway asks again for the rest."""
        self.filters: tuple[bytes, list[int], bytes, list[int]] | None = fields["filters"]  # type: ignore[assignment]
        """Of programs, then of compilers: assembled in the gateway, which takes 4 ms."""
        self.package_dirs: list[str] = list(fields["package_dirs"])  # type: ignore[call-overload]  # a list of str
        self.want_code = bool(fields["want_code"])


class Bench:
    """One request's state in the process that is never a program."""

    def __init__(self, bundle: list[tuple[str, str, CodeType, bool]]) -> None:
        self._bundle = bundle
        self._said: list[bytes] = []
        self._size = 0
        self._started = time.monotonic()
        self._user = FIRST_USER + os.getpid() % USERS
        self._nonce = os.open(NONCE, os.O_RDONLY | os.O_CLOEXEC)
        with open(TASK, "rb") as file:
            self.task = Task(marshal.load(file))  # noqa: S302 - the gateway's own
        for name in (NONCE, TASK, BUNDLE):
            os.unlink(name)
        self._place = os.path.join(os.getcwd(), "place")  # noqa: PTH109, PTH118 - see above
        self._site = self._make_site()

    def _make_site(self) -> Site:
        os.umask(0o022)
        os.chmod(".", 0o711)  # noqa: S103 - the programs' user has to get through; Landlock holds it to its own folder
        os.mkdir(self._place, 0o755)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        prctl(PR_SET_DUMPABLE, 0)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        site = Site(self._place, self.task.package_dirs, contain=False)
        site.landlock_abi = landlock.abi()
        if self.task.filters is not None:
            program, places, compiler, compiler_places = self.task.filters
            site.program_filter = site.executable_filter = seccomp.Filter(program, places)
            site.compiler_filter = seccomp.Filter(compiler, compiler_places)
        if self.task.mode != "stdio":
            for name, _, code, at_once in self._bundle:
                if not at_once:
                    module = type(sys)(name)
                    sys.modules[name] = module
                    exec(code, module.__dict__)  # noqa: S102 - the sandbox's own modules
            site.harnesses["calls"] = sys.modules["evalrun_harness_calls"].main
        return site

    def work(self) -> Next | None:
        """Do all of it; gives a forked process's next step, and None in the process itself."""
        task = self.task
        executable: list[int] = []
        if task.kind == frames.KIND_EXECUTABLE:
            for number, command in enumerate(task.commands):
                job = _memory_file(_with_command(task.compile_job, command))
                step = self._runner(2 * number, frames.KIND_COMPILE, [job, _indices(0)], executable)
                if step is not None:
                    return step
                os.close(job)
                if executable or _STATIC not in command or not self._static_is_missing():
                    break
            if executable:
                # one that somebody holds for writing cannot be executed
                executable = [os.open(f"/proc/self/fd/{executable[0]}", os.O_RDONLY | os.O_CLOEXEC)]
        if task.kind != frames.KIND_EXECUTABLE or executable:
            fds = [_memory_file(task.job), _indices(task.count), *executable]
            step = self._runner(1, task.kind, fds, [])
            if step is not None:
                return step
        self._remove_folders()
        self._answer()
        return None

    def _remove_folders(self) -> None:
        """Remove what the programs' user owns, as that user: a server without capabilities cannot."""
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                leave_root(self._user, keep_files=self.task.kind != frames.KIND_EXECUTABLE)
                for slot in os.listdir(self._place):  # noqa: PTH208 - see above
                    for name in ("work", "source"):
                        place = f"{self._place}/{slot}/{name}"
                        if os.path.isdir(place):  # noqa: PTH112 - see above
                            folder.empty(place)
                            os.rmdir(place)  # noqa: PTH106 - see above
                status = 0
            finally:
                os._exit(status)
        os.waitpid(pid, 0)

    def _runner(self, slot: int, kind: int, fds: list[int], received: list[int]) -> Next | None:
        """Fork a runner and keep what it says; gives its step in it."""
        os.makedirs(f"{self._place}/slot-{slot}", exist_ok=True)  # noqa: PTH103 - see above
        os.chmod(f"{self._place}/slot-{slot}", 0o777)  # noqa: S103 - inside a folder that lists nothing
        ours, theirs = socket.socketpair()
        gc.freeze()
        own = os.getpid()
        pid = os.fork()
        if pid == 0:
            ours.close()
            os.close(self._nonce)
            user = leave_root(self._user, keep_files=kind < frames.KIND_COMPILE)
            prctl(PR_SET_DUMPABLE, 0)
            theirs.sendall(_frame(HELLO, self._hello(user)))
            self._site.make_folders(slot)
            runner = Runner(self._site, slot, kind, [theirs.detach(), *fds])
            self._said.clear()
            return lambda: runner.run(own)
        theirs.close()
        self._listen(ours, kind, fds[1], received)
        _, status = os.waitpid(pid, 0)
        self._keep(_frame(ENDED, STATUS.pack(status)))
        return None

    def _hello(self, user: int) -> bytes:
        site = self._site
        return f"abi={site.landlock_abi}\nfilter={int(site.program_filter is not None)}\nroot={int(user == 0)}".encode()

    def _listen(self, runner: socket.socket, kind: int, indices: int, received: list[int]) -> None:
        """Keep frames until the runner is done."""
        waiting = bytearray()
        late = 0
        while True:
            data, fds, _, _ = socket.recv_fds(runner, _CHUNK, 1)
            received += fds
            if not data:
                break
            waiting += data
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
            if kind != frames.KIND_COMPILE and (
                self._size > self.task.budget_bytes
                or time.monotonic() - self._started > self.task.budget_seconds
                or 0 < self.task.stop_after <= late
            ):
                while os.read(indices, 1 << 16):
                    pass
        runner.close()

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
        """Write the result: signed, whole, and only now, when no program is left."""
        if self.task.want_code:
            self._keep(_frame(CODE, marshal.dumps(self._bundle)))
        self._keep(_frame(frames.DONE, b""))
        nonce = _read_all(self._nonce)
        fd = os.open(RESULT, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(fd, "wb") as file:
            file.writelines([nonce, *self._said])


def leave_root(user: int, *, keep_files: bool) -> int:
    """Become a user who owns nothing, where this process is root; give who it is then.

    An interpreter under /root is what stock images have: with `keep_files` the process goes on opening files as root,
    without any capability, and Landlock says which. Started programs (exec) lose that with the start. Where the user
    cannot be changed, all capabilities go.
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
            ctypes.CDLL(None).syscall(_SETFSUID, 0)
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


def _with_command(job: bytes, command: str) -> bytes:
    read, _, _ = frames.decode_job(lambda size, offset: job[offset : offset + size])
    read.mode = command
    return read.encode()


def _indices(count: int) -> int:
    """Give the read end of a pipe that holds the tests' numbers."""
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


def main(bundle: list[tuple[str, str, CodeType, bool]]) -> Next | None:
    """Serve the task in the current folder; gives the next step in a forked process, None at the end.

    Args:
        bundle: name, file and code of each module, and whether it has been loaded.
    """
    import site

    site.setquit()
    site.setcopyright()
    site.sethelper()
    own = os.getcwd()  # noqa: PTH109 - see above
    bench = Bench(bundle)
    sys.path[:] = [path for path in sys.path if path.startswith("/") and path != own]
    sys.path += bench.task.package_dirs
    return bench.work()
