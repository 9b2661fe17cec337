"""A child process that is forked instead of executed: it starts with the modules that this process has imported."""

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MAX_NAME = 15
"""Bytes of a process's name that the kernel keeps."""


@dataclass(frozen=True)
class Fork:
    """A forked child that no event loop watches yet."""

    pid: int
    stdin: int
    """The writing end of its stdin."""
    stdout: int
    """The reading end of its stdout."""


def can_fork() -> bool:
    """Return whether a child may be forked and watched here.

    A process with a second thread may not fork, because a lock that this thread holds would stay locked in the child.
    Without /proc or pidfds a child cannot be watched.
    """
    try:
        os.close(os.pidfd_open(os.getpid()))
        return len([*Path("/proc/self/task").iterdir()]) == 1
    except (AttributeError, OSError):
        return False


def fork(name: str, main: Callable[[], int]) -> Fork:
    """Fork a child that calls `main` and ends with the code that `main` returns. Call `fork` outside an event loop.

    The child has a session of its own, a new stdin and stdout, this process's stderr, and no other descriptor.

    Args:
        name: name of the process, as `ps -o comm` shows it.
        main: runs in the child. It must not rely on threads, locks or open files of this process.
    """
    stdin, our_stdin = os.pipe()
    our_stdout, stdout = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        # Otherwise the child would print the buffered text again.
        stream.flush()
    pid = os.fork()
    if pid == 0:
        _run_child(name, main, stdin, stdout)
    os.close(stdin)
    os.close(stdout)
    return Fork(pid, our_stdin, our_stdout)


async def attach_child(forked: Fork) -> "ForkedProcess":
    """Return a forked child, watched by the running loop."""
    stdout = asyncio.StreamReader()
    pipe = os.fdopen(forked.stdout, "rb", 0)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), pipe)
    return ForkedProcess(forked.pid, StdinPipe(forked.stdin), stdout)


class StdinPipe:
    """The writing end of a child's stdin, for data that fits into a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def write(self, data: bytes) -> None:
        """Write; nothing happens if the child has ended."""
        try:
            while self._descriptor is not None and data:
                data = data[os.write(self._descriptor, data) :]
        except BrokenPipeError:
            return

    def close(self) -> None:
        """End the child's stdin."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class ForkedProcess:
    """A forked child, with the members of `asyncio.subprocess.Process` that a `ServiceProcess` uses."""

    def __init__(self, pid: int, stdin: StdinPipe, stdout: asyncio.StreamReader) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdin = stdin
        self.stdout = stdout
        self._pidfd = os.pidfd_open(pid)
        self._ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pidfd, self._reap, loop)

    def _reap(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        _, status = os.waitpid(self.pid, 0)
        self.stdin.close()
        self.returncode = os.waitstatus_to_exitcode(status)
        self._ended.set()

    async def wait(self) -> int:
        """Wait until the child ends and return its exit code, negative for a signal."""
        while self.returncode is None:
            await self._ended.wait()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send the child a signal, unless the child has ended."""
        if self.returncode is None:
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """Kill the child, unless it has ended."""
        self.send_signal(signal.SIGKILL)


def _run_child(name: str, main: Callable[[], int], stdin: int, stdout: int) -> None:
    """Run the child's whole life. Never returns, because the frames below are the parent's."""
    code = 1
    try:
        # Ctrl-C reaches only the parent, which then ends its children in order.
        os.setsid()
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 - a complete list: its own descriptor is closed below
            _close(int(entry))
        sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
        Path("/proc/self/comm").write_text(name[:MAX_NAME])
        code = main()
    except SystemExit as ending:
        code = _find_exit_code(ending)
    except BaseException:  # noqa: BLE001 - as the interpreter treats what nobody caught
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _close(descriptor: int) -> None:
    try:
        if descriptor > 2:
            os.close(descriptor)
    # This is the descriptor with which the directory was listed, and it is closed already.
    except OSError:
        return


def _find_exit_code(ending: SystemExit) -> int:
    if ending.code is None or isinstance(ending.code, int):
        return ending.code or 0
    sys.stderr.write(f"{ending.code}\n")
    return 1
