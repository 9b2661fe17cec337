"""The service's handle of a zygote: starts and ends the zygote, requests runners, and learns how they ended."""

import asyncio
import marshal
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import MAGIC_NUMBER
from pathlib import Path

from evalrun_executor.byte_code import load_byte_code
from evalrun_executor.contained.frames import JOB, KIND_HARNESS_WORKER, KIND_PROGRAM_WORKER, STOP
from evalrun_executor.contained.zygote import ENDED, SPAWN
from evalrun_executor.errors import ExecutorLost, Unusable
from evalrun_executor.harness import Harness, Source, sources
from evalrun_executor.interpreter import Identity, Interpreter, as_user

MODULES = (
    "c_types", "kernel", "filters", "syscalls", "seccomp", "landlock", "frames", "limits", "directory",
    "supervision", "child_bootstrap", "program", "site", "python_source", "compiler", "exchange", "execution", "runner",
    "harness_worker", "program_worker", "session", "session_worker", "zygote",
)  # fmt: skip
"""The modules in the order in which the zygote loads them."""
_PACKAGE = Path(__file__).parents[1]
_START_SECONDS = 30.0
_BOOT = "import marshal,os,sys;boot,*rest=marshal.load(os.fdopen(int(sys.argv[1]),'rb'));exec(boot)"
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    # A malloc arena per thread would reserve 64 MiB of address space each, which the memory limit counts.
    "MALLOC_ARENA_MAX": "2",
    # Without this variable each child would resolve the functions that it calls for itself.
    "LD_BIND_NOW": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
"""The whole environment of candidates' programs."""


@dataclass(frozen=True)
class ZygotePlan:
    """Options of a zygote's start."""

    interpreter: Interpreter
    identity: Identity
    package_dirs: Sequence[str]
    contain: bool
    harnesses: Mapping[str, Harness]
    """Harnesses by mode; each is loaded at start."""
    interpreters: Sequence[str]
    """Paths of the programs that run other languages' texts."""
    work_dir: str | None
    """Directory of the private directories; None: the first temporary directory that the candidates' user can write to.
    """
    imports: Sequence[str] = ()
    """Modules of the standard library that the zygote imports before any fork."""


@dataclass(frozen=True, eq=False)
class WorkerHandle:
    """The service's handle of a slot's worker. Between two jobs the worker sends no frame."""

    socket: socket.socket
    ended: asyncio.Future[int]
    """Done with the wait status once the worker has ended with a status other than 0."""

    def ask(self, fds: Sequence[int]) -> None:
        """Send the worker a job: the memory file, the index pipe's read end, and the pipes that a program writes to.

        Raises:
            ExecutorLost: the worker is gone.
        """
        try:
            socket.send_fds(self.socket, [JOB], fds)
        except OSError as error:
            raise ExecutorLost(f"a worker is gone: {error}") from error

    def stop(self) -> None:
        """Stop the running program, which has printed too much."""
        try:
            self.socket.send(STOP)
        except OSError:
            # The worker is gone, and its program with it.
            return


class ZygoteProcess:
    """A running zygote. `lost` is done once the zygote has ended, for whatever reason."""

    def __init__(self, process: "subprocess.Popen[bytes]", control: socket.socket, place: str) -> None:
        self._process = process
        self._control = control
        self._place = place
        self._next_id = 0
        self._ends: dict[int, asyncio.Future[int]] = {}
        self._in_slot: dict[int, asyncio.Future[int]] = {}
        self._workers: dict[tuple[int, int], WorkerHandle] = {}
        """By slot and kind."""
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.hello: dict[str, str] = {}

    @classmethod
    async def start(cls, plan: ZygotePlan) -> "ZygoteProcess":
        """Start a zygote and wait for its hello. Raises Unusable."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        place = _choose_place(plan)
        boot = os.memfd_create("zygote")
        boot_source = (_PACKAGE / "contained" / "boot.py").read_text()
        with open(boot, "wb") as file:  # noqa: ASYNC230, PTH123 - a memory file
            settings: dict[str, object] = {
                "control": theirs.fileno(),
                "place": place,
                "package_dirs": list(plan.package_dirs),
                "contain": plan.contain,
                "interpreters": list(plan.interpreters),
                "harnesses": {mode: harness.main for mode, harness in plan.harnesses.items()},
                "imports": list(plan.imports),
            }
            modules, harnesses = _read_modules(), sources(plan.harnesses.values())
            # Byte code is valid for the same version of Python only; another version's interpreter compiles the texts
            # itself.
            if plan.interpreter.magic_number == MAGIC_NUMBER.hex():
                file.write(
                    marshal.dumps((boot_source, _compile_sources(modules), _compile_sources(harnesses), settings), 2)
                )
            else:
                file.write(marshal.dumps((boot_source, modules, harnesses, settings), 2))
            file.flush()
            os.lseek(boot, 0, os.SEEK_SET)
            try:
                # asyncio's subprocesses cannot be used: uvloop's take no user. The fork is made in this thread, because
                # the kernel takes the end of the forking thread for the death of the parent.
                process = subprocess.Popen(  # noqa: ASYNC220 - a vfork, as long as asyncio's own would take
                    [plan.interpreter.path, "-s", "-S", "-B", "-c", _BOOT, str(boot)],
                    cwd="/", env=_ENVIRONMENT, pass_fds=(boot, theirs.fileno()),
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **as_user(plan.identity),
                )  # fmt: skip
            except OSError as error:
                ours.close()
                raise Unusable(f"cannot start {plan.interpreter.path}: {error}") from error
            finally:
                theirs.close()
        zygote = cls(process, ours, place)
        await zygote._greet()
        return zygote

    async def _greet(self) -> None:
        self._control.setblocking(False)  # noqa: FBT003 - the standard library's signature
        try:
            async with asyncio.timeout(_START_SECONDS):
                hello = await self._loop.sock_recv(self._control, 4096)
        except (OSError, TimeoutError) as error:
            await self.close()
            raise Unusable(f"the zygote did not start: {error or 'no answer'}") from error
        if not hello:
            await self.close()
            raise Unusable("the zygote did not start; its error is on stderr")
        self.hello = dict(line.split("=", 1) for line in hello.decode().splitlines())
        self._loop.add_reader(self._control, self._read_ends)

    @property
    def place(self) -> str:
        """The directory that holds the private directories."""
        return self._place

    @property
    def is_filtered(self) -> bool:
        """Whether programs stand under a seccomp filter."""
        return self.hello["filter"] == "1"

    @property
    def user(self) -> int:
        """The id of the user that programs run as."""
        return int(self.hello["uid"])

    @property
    def pid(self) -> int:
        """The zygote's process id."""
        return self._process.pid

    def spawn(self, slot: int, kind: int, fds: Sequence[int]) -> tuple[socket.socket, asyncio.Future[int]]:
        """Ask for a runner in `slot`. Return our end of its socket, and a future of its wait status, if that is not 0.

        Args:
            slot: held by the caller until the runner has ended or sent DONE.
            kind: a `frames.KIND_*`.
            fds: the job's memory file, the index pipe's read end and, for a compiled program, the executable; empty for
                a worker, which gets them with each job.

        Raises:
            ExecutorLost: the zygote is gone.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            self._next_id = (self._next_id + 1) % 2**32
            try:
                socket.send_fds(self._control, [SPAWN.pack(self._next_id, slot, kind)], [theirs.fileno(), *fds])
            except OSError as error:
                ours.close()
                raise ExecutorLost(f"the zygote is gone: {error}") from error
        ours.setblocking(False)  # noqa: FBT003 - the standard library's signature
        ended: asyncio.Future[int] = self._loop.create_future()
        self._ends[self._next_id] = ended
        runner_id = self._next_id
        ended.add_done_callback(lambda _: self._ends.pop(runner_id, None))
        self._note_runner(slot, ended)
        return ours, ended

    def worker(self, slot: int, kind: int) -> WorkerHandle:
        """Return the slot's worker of a kind, and start it if there is none. Raises ExecutorLost."""
        found = self._workers.get((slot, kind))
        if found is None or found.ended.done():
            if found is not None:
                found.socket.close()
            found = WorkerHandle(*self.spawn(slot, kind, ()))
            self._workers[slot, kind] = found
        self._note_runner(slot, found.ended)
        return found

    def drop_worker(self, slot: int, kind: int) -> None:
        """Abandon a slot's worker during a job. The worker sees our end close, kills its child and ends."""
        self._workers.pop((slot, kind)).socket.close()

    def _note_runner(self, slot: int, ended: asyncio.Future[int]) -> None:
        previous = self._in_slot.get(slot)
        if previous is not None and previous is not ended and not self._is_worker(slot, previous):
            # The previous runner sent DONE, so nobody needs its wait status.
            previous.cancel()
        self._in_slot[slot] = ended

    def _is_worker(self, slot: int, ended: asyncio.Future[int]) -> bool:
        found = (self._workers.get((slot, kind)) for kind in (KIND_HARNESS_WORKER, KIND_PROGRAM_WORKER))
        return any(worker is not None and worker.ended is ended for worker in found)

    def find_runner(self, slot: int) -> asyncio.Future[int] | None:
        """Return the future of the wait status of the slot's last runner; None if the runner or the zygote has
        ended."""
        ended = self._in_slot.get(slot)
        return None if ended is None or ended.done() or self.lost.done() else ended

    def _read_ends(self) -> None:
        try:
            message = self._control.recv(ENDED.size)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self._loop.remove_reader(self._control)
            if not self.lost.done():
                self.lost.set_result(None)
            return
        runner_id, status = ENDED.unpack(message)
        ended = self._ends.get(runner_id)
        if ended is not None and not ended.done():
            ended.set_result(status)

    async def close(self) -> None:
        """End the zygote and everything that it started."""
        self._loop.remove_reader(self._control)
        self._control.close()
        for worker in self._workers.values():
            worker.socket.close()
        self._workers.clear()
        if not self.lost.done():
            self.lost.set_result(None)
        try:
            await asyncio.to_thread(self._process.wait, 5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        # The zygote removes its place itself, unless it was killed.
        await asyncio.to_thread(shutil.rmtree, self._place, ignore_errors=True)


def _choose_place(plan: ZygotePlan) -> str:
    """Return the path of a fresh directory, which the zygote makes itself, as its own user."""
    parent = plan.work_dir
    if parent is None:
        parents = [tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"]  # noqa: S108 - a fresh name of mode 0700 in it
        parent = next((path for path in parents if _is_open_to(path, plan.identity)), None)
    if parent is None:
        raise Unusable("no temporary directory is open to the candidates' user: name one with --work-dir")
    return f"{parent}/evalrun-sandbox-{os.getpid()}-{os.urandom(6).hex()}"


def _is_open_to(path: str, identity: Identity) -> bool:
    """Return whether the candidates' user can make a directory in `path`."""
    if identity.user is None:
        return os.access(path, os.W_OK | os.X_OK)
    try:
        if not Path(path).stat().st_mode & 0o002:
            return False
        return all(parent.stat().st_mode & 0o001 for parent in [Path(path), *Path(path).parents])
    except OSError:
        return False


def _read_modules() -> list[Source]:
    found: list[Source] = [("evalrun_executor", "", None), ("evalrun_executor.contained", "", None)]
    for name in MODULES:
        path = _PACKAGE / "contained" / f"{name}.py"
        found.append((f"evalrun_executor.contained.{name}", str(path), path.read_text()))
    return found


def _compile_sources(modules: Sequence[Source]) -> list[tuple[str, str, bytes | None]]:
    return [(name, path, None if text is None else load_byte_code(Path(path))) for name, path, text in modules]
