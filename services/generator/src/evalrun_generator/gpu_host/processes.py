"""Finds and kills the processes below this one, and the shared memory that they leave. Linux's /proc and prctl."""

import ctypes
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36
PAUSE_SECONDS: Final = 0.05
TRACKER_SECONDS: Final = 3.0
"""Seconds for Python's resource trackers: they remove the semaphores of killed processes, and end by themselves."""
SHARED_MEMORY: Final = "/dev/shm/"  # noqa: S108 - where Linux has it; its files are not ours to place


def adopt_orphans() -> None:
    """Make this process the parent of every orphan below it, so that a tree stays whole when a part of it is killed."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def signal_when_parent_ends(number: signal.Signals) -> None:
    """Ask the kernel to signal this process when its parent ends, even by SIGKILL."""
    _prctl(PR_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


class StopRequests:
    """SIGTERM and SIGINT. The first asks for a graceful end; a second, or the parent's death, for an immediate end.

    Create it in the main thread.
    """

    def __init__(self) -> None:
        self._parent = os.getppid()
        self._count = 0
        self.wake, writer = os.pipe()
        for end in (self.wake, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._count_request)
        signal_when_parent_ends(signal.SIGTERM)

    def _count_request(self, number: int, frame: object) -> None:
        del number, frame
        self._count += 1

    @property
    def is_asked(self) -> bool:
        """Whether this process should end."""
        return self._count > 0 or self.is_urgent

    @property
    def is_urgent(self) -> bool:
        """Whether this process should end at once."""
        return self._count > 1 or os.getppid() != self._parent

    def wait(self, seconds: float) -> None:
        """Wait until a signal arrives or the time is over."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        poll.poll(1000 * seconds)
        self.clear_wake()

    def clear_wake(self) -> None:
        """Forget the signals' wake-ups; `is_asked` remembers the signals."""
        try:
            while os.read(self.wake, 512):
                pass
        except BlockingIOError:
            return


def wait_for(process: "subprocess.Popen[bytes]", stops: StopRequests, seconds: float | None = None) -> int | None:
    """Wait until a process ends, a signal arrives, or the time is over; return the process's exit code if it ended."""
    pidfd = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(stops.wake, select.POLLIN)
        poll.poll(None if seconds is None else 1000 * seconds)
        stops.clear_wake()
    finally:
        os.close(pidfd)
    return process.poll()


def end_process(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Tell a process to end, and kill it if it has not ended within `seconds`."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def parents() -> Mapping[int, int]:
    """Return the parent of every process."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The name in brackets may hold blanks and brackets itself.
                found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            # The process has ended.
            except OSError:
                continue
    return found


def find_descendants(pids: Iterable[int]) -> list[int]:
    """Return all processes below the given processes."""
    known = parents()
    found = list(pids)
    given = len(found)
    for ancestor in found:
        found += [child for child, parent in known.items() if parent == ancestor and child not in found]
    return found[given:]


def start_time(pid: int) -> int | None:
    """Return a process' start in the kernel's ticks since boot. Together with its id it identifies a process
    permanently."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None


def find_processes(directory: Path) -> list[int]:
    """Return the processes that name a directory: by their arguments or environment, or by where their output goes.

    Ray and engines overwrite their arguments and environment by a title; their output goes to files of Ray's session.
    """
    return [pid for pid in parents() if pid != os.getpid() and _names(pid, str(directory))]


def _names(pid: int, text: str) -> bool:
    place = Path(f"/proc/{pid}")
    for file in ("cmdline", "environ"):
        try:
            if text.encode() in (place / file).read_bytes():
                return True
        # The process has ended, or belongs to another user.
        except OSError:
            continue
    for link in ("fd/1", "fd/2", "cwd"):
        try:
            if text in str((place / link).readlink()):
                return True
        except OSError:
            continue
    return False


def find_shared_memory(pids: Iterable[int]) -> set[Path]:
    """Return the files of shared memory that processes have mapped and that still have a name.

    They are found by their inodes: a semaphore's mapping shows the temporary name under which the C library made it.
    """
    inodes = set()
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        except OSError:
            continue
        # The fields of a line are address, permissions, offset, device, inode and path.
        inodes |= {int(line.split()[4]) for line in lines if SHARED_MEMORY in line}
    return {path for path in Path(SHARED_MEMORY).iterdir() if _inode(path) in inodes} if inodes else set()


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


class Descendants:
    """The observed descendants of this process. A process killed by SIGKILL does not remove its shared memory."""

    def __init__(self) -> None:
        self._pids: set[int] = set()
        self._segments: set[Path] = set()

    def look(self) -> list[int]:
        """Return the descendants of this process, and remember them with the shared memory that they have mapped."""
        pids = find_descendants([os.getpid()])
        self._pids.update(pids)
        self._segments |= find_shared_memory(pids)
        return pids

    @property
    def segments(self) -> set[Path]:
        """Shared memory of the descendants."""
        return self._segments | find_shared_memory_by_name(self._pids)


def find_shared_memory_by_name(pids: Iterable[int]) -> set[Path]:
    """Return the files of shared memory whose names hold the id of a process: so loky names semaphores."""
    known = set(pids)
    return {
        path
        for path in Path(SHARED_MEMORY).iterdir()
        if any(part.isdecimal() and int(part) in known for part in re.split(r"[-_.]", path.name))
    }


def end_descendants(seconds: float, seen: Descendants) -> list[int]:
    """Kill all descendants, wait for their end, and remove their shared memory. Return those that are still alive.

    Args:
        seconds: maximum time to wait.
        seen: earlier observed processes, which may have ended.
    """
    deadline = time.monotonic() + seconds
    patience = time.monotonic() + TRACKER_SECONDS
    while pids := seen.look():
        for pid in pids:
            if time.monotonic() > patience or not _is_resource_tracker(pid):
                _kill(pid)
        _reap()
        if time.monotonic() > deadline:
            break
        time.sleep(PAUSE_SECONDS)
    remove_unused(seen.segments)
    return pids


def remove_unused(segments: Iterable[Path]) -> None:
    """Remove segments of shared memory that no process has mapped."""
    wanted = set(segments)
    used = find_shared_memory(parents()) if wanted else set()
    for segment in wanted - used:
        segment.unlink(missing_ok=True)


def _is_resource_tracker(pid: int) -> bool:
    """Return whether a process is multiprocessing's or loky's resource tracker, which its command line tells."""
    try:
        return b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _reap() -> None:
    """Collect the exit codes of ended children, which count as processes until then."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
