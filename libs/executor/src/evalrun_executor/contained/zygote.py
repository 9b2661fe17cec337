"""The zygote: a small single-threaded process that forks a runner for each program.

It starts as a bare interpreter (`-s -S`, an empty environment) and holds no secret, no expected output and no program's
text. It is never root: a service that is root starts it as another user. Its modules come from the service over a
descriptor, so they need not be readable by its user.

Preloaded harnesses: the service sends name, file name and code of their modules, which are executed in that order,
under their own names. A harness's main module has `main(code: str) -> None`, which reads stdin and writes stdout.

Control socket (SOCK_SEQPACKET). Service to zygote: `SPAWN` (id, slot, kind) with the descriptors of the runner: its
socket, the job's memory file, the index pipe and, for a compiled program, the executable. Zygote to service: a single
hello (lines of `name=value`), then an `ENDED` (id, wait status) for each runner that did not end by itself with status
0. At the service's end of file, all running processes are killed, the private directories are removed, and the zygote
ends.
"""

# ruff: noqa: PTH102, PTH106, PTH123
# Why: pathlib and contextlib would make the zygote larger, and each fork dearer.
from __future__ import annotations

import _thread
import atexit
import bisect  # noqa: F401 - what most programs import, ahead of every fork
import collections  # noqa: F401
import copy  # noqa: F401
import fcntl
import functools  # noqa: F401
import gc
import heapq  # noqa: F401
import itertools  # noqa: F401
import math  # noqa: F401
import os
import re  # noqa: F401
import select
import signal
import socket
import string  # noqa: F401
import struct
import sys
import typing  # noqa: F401 - 6 ms for each program that imports it
from collections.abc import Callable
from types import CodeType

from evalrun_executor.contained import directory, frames, landlock, seccomp
from evalrun_executor.contained.filters import ARCHITECTURES
from evalrun_executor.contained.harness_worker import HarnessWorker
from evalrun_executor.contained.kernel import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    prctl,
    trim_heap,
)
from evalrun_executor.contained.program_worker import ProgramWorker
from evalrun_executor.contained.runner import PURPOSES, Runner
from evalrun_executor.contained.session_worker import SessionWorker
from evalrun_executor.contained.site import Site

SPAWN = struct.Struct("<III")
ENDED = struct.Struct("<Ii")
_MAX_FDS = 8
_THREAD_STACK = 2 << 20
"""Bytes of each thread's stack, unless the program asks for another size: 200 stacks of 8 MiB would exceed its memory.
"""
_LOW_FDS = 128
"""A zygote of many slots holds hundreds of descriptors. What a runner gets must lie well below
`child_bootstrap.HIGHEST_FD`, up to which its children close what they inherit."""

_WORKERS = {frames.KIND_HARNESS_WORKER: HarnessWorker, frames.KIND_PROGRAM_WORKER: ProgramWorker}

Next = Callable[[], object]
_KEPT: list[object] = []


class Zygote:
    """Serves the control socket until the service leaves."""

    def __init__(self, control: socket.socket, site: Site) -> None:
        self._control = control
        self._site = site
        self._runners: dict[int, tuple[int, int]] = {}
        """By pidfd: the runner's id and its process id."""
        self._poller = select.poll()
        self._poller.register(control, select.POLLIN)

    def serve(self) -> Next | None:
        """Fork runners until the service leaves. Return the next step in a forked process, None in the zygote."""
        while True:
            for fd, _ in self._poller.poll():
                if fd != self._control.fileno():
                    self._reap(fd)
                    continue
                message, fds, _, _ = socket.recv_fds(self._control, SPAWN.size, _MAX_FDS)
                if not message:
                    self._end_all()
                    return None
                runner_id, slot, kind = SPAWN.unpack(message)
                step = self._spawn(runner_id, slot, kind, fds)
                if step is not None:
                    return step

    def _spawn(self, runner_id: int, slot: int, kind: int, fds: list[int]) -> Next | None:
        self._site.make_directories(slot)
        self._prepare_ruleset(slot, kind)
        zygote = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            sys.stderr.write(f"evalrun-sandbox zygote: cannot fork: {error}\n")
            self._control.send(ENDED.pack(runner_id, -1))
            pid = -1
        if pid == 0:
            self._control.close()
            for fd in self._runners:
                os.close(fd)
            if max(fds) >= _LOW_FDS:
                # A runner's children close descriptors up to `HIGHEST_FD` only, so its own must not lie above.
                if kind != frames.KIND_SESSION:
                    self._site.forget_rulesets(but=self._site.open_ruleset(slot, PURPOSES[kind]))
                fds = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 0) for fd in fds]
            if kind in _WORKERS:
                worker = _WORKERS[kind](self._site, slot, fds[0])
                return lambda: worker.begin(zygote)
            if kind == frames.KIND_SESSION:
                session = SessionWorker(self._site, slot, fds[0])
                return lambda: session.begin(zygote)
            runner = Runner(self._site, slot, kind, fds)
            return lambda: runner.run(zygote)
        for fd in fds:
            os.close(fd)
        if pid > 0:
            pidfd = os.pidfd_open(pid)
            self._runners[pidfd] = (runner_id, pid)
            self._poller.register(pidfd, select.POLLIN)
        return None

    def _prepare_ruleset(self, slot: int, kind: int) -> None:
        """Build the slot's ruleset in the zygote, so that each runner need not build it."""
        if kind == frames.KIND_SESSION:
            # A slot's session needs its ruleset only once.
            return
        self._site.open_ruleset(slot, PURPOSES[kind])

    def _reap(self, pidfd: int) -> None:
        runner_id, pid = self._runners.pop(pidfd)
        self._poller.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        if status != 0:
            self._end_orphans()
            self._control.send(ENDED.pack(runner_id, status))

    def _end_orphans(self) -> None:
        """Kill and reap the processes that a dead runner left behind. The zygote inherits them as their subreaper."""
        runners = {pid for _, pid in self._runners.values()}
        for orphan in _list_children():
            if orphan not in runners:
                os.kill(orphan, signal.SIGKILL)
                os.waitpid(orphan, 0)

    def _end_all(self) -> None:
        """Kill the runners and the processes that they left behind, and remove the private directories."""
        for _, pid in self._runners.values():
            os.kill(pid, signal.SIGKILL)
        try:
            while True:
                for orphan in _list_children():
                    os.kill(orphan, signal.SIGKILL)
                os.waitpid(-1, 0)
        except ChildProcessError:
            pass
        directory.empty(self._site.place)
        os.rmdir(self._site.place)


def _list_children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        # The kernel was built without CONFIG_PROC_CHILDREN.
        return []


def _prepare_filters(site: Site) -> None:
    """Build the filters for this machine, and ask the kernel for its Landlock version."""
    site.landlock_abi = landlock.abi()
    machine = site.machine
    if machine in ARCHITECTURES:
        site.program_filter = seccomp.build_program_filter(machine, executable=False)
        site.executable_filter = seccomp.build_program_filter(machine, executable=True)
        site.session_filter = seccomp.build_session_filter(machine)
        site.compiler_filter = seccomp.build_compiler_filter(machine)


def main(settings: dict[str, object], harnesses: list[tuple[str, str, CodeType | None]]) -> Next:
    """Set up. Return the next step, which serves.

    Args:
        settings: `control` (descriptor), `place` (directory for private directories, made here), `package_dirs`,
            `contain` (False: no Landlock and no filter), `interpreters` (paths), `harnesses` (mode to main module),
            `imports` (modules of the standard library to import ahead).
        harnesses: the harnesses' modules in order: name, file name, code; a package has no code.
    """
    control = socket.socket(fileno=int(str(settings["control"])))
    place = str(settings["place"])
    os.mkdir(place, 0o700)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    package_dirs = [str(path) for path in settings["package_dirs"]]  # type: ignore[attr-defined]  # list of str
    site = Site(place, package_dirs)
    site.interpreters = [str(path) for path in settings["interpreters"]]  # type: ignore[attr-defined]  # list of str
    if settings["contain"]:
        _prepare_filters(site)
    for name, path, code in harnesses:
        # A package above a harness's module may be a package of ours, which is already loaded.
        if name not in sys.modules:
            load_module(name, path, code)
    for mode, name in settings["harnesses"].items():  # type: ignore[attr-defined]  # dict of str
        site.harnesses[mode] = sys.modules[name].main
    for name in settings["imports"]:  # type: ignore[attr-defined]  # list of str
        __import__(name)
    _imitate_site(package_dirs)
    _thread.stack_size(_THREAD_STACK)
    # The first call creates the types of `ast`, which would cost each runner 1.5 ms.
    compile("", "", "exec")
    return lambda: _serve(control, site)


def _serve(control: socket.socket, site: Site) -> Next | None:
    """Give back what the start needed, and serve. Return the next step in a forked process, None at the zygote's end.

    This is a step of its own. Each forked process leaves this function by returning, and would then free, page by page,
    what callers still held. With the code of all modules a session's worker had 427 page faults before its own first
    line, and 188 without it (Python 3.11).
    """
    # Each page that the zygote holds makes each fork dearer. A child's garbage collector does not touch frozen objects,
    # which would copy their pages.
    gc.collect()
    trim_heap()
    gc.freeze()
    control.send(
        f"abi={site.landlock_abi}\nfilter={int(site.program_filter is not None)}\nuid={os.getuid()}\n"
        f"python={'.'.join(map(str, sys.version_info[:3]))}\n".encode()
    )
    zygote = Zygote(control, site)
    # A forked process that leaves `serve` would take the zygote apart too.
    _KEPT.append(zygote)
    return zygote.serve()


def load_module(name: str, path: str, code: CodeType | None) -> None:
    """Execute the module `name`, or register a package.

    An exception ends the zygote, and its traceback names the place.
    """
    module = type(sys)(name)
    module.__file__ = path
    sys.modules[name] = module
    if code is None:
        module.__path__ = []
    else:
        exec(code, module.__dict__)  # noqa: S102 - our own module, from the service


def _imitate_site(package_dirs: list[str]) -> None:
    """Install what `site` normally provides: exit, quit and help, and the import path of a script."""
    import site

    site.setquit()
    site.setcopyright()
    site.sethelper()
    sys.path[:] = [path for path in sys.path if path.startswith("/")] + package_dirs
    atexit._clear()
    os.environ.pop("LD_BIND_NOW", None)
