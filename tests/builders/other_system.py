"""Runs commands of `evalrun` as on macOS: the system's name is Darwin, and what Python has on Linux alone is gone.

    python tests/builders/other_system.py 'COMMAND ARGUMENTS' ...

It prints each command with its exit code. What macOS has and Linux lacks cannot be pretended here.
"""

import os
import resource
import select
import shlex
import signal
import sys
from types import ModuleType

LINUX_ALONE: dict[ModuleType, tuple[str, ...]] = {
    os: (
        *("eventfd", "memfd_create", "pidfd_open", "pipe2", "posix_fadvise", "posix_fallocate", "sched_getaffinity"),
        *("sched_setaffinity", "setns", "setresgid", "setresuid", "splice", "unshare"),
    ),
    resource: ("prlimit",),
    select: ("epoll",),
    signal: ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo"),
}


def become_darwin() -> None:
    for module, names in LINUX_ALONE.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    darwin = os.uname_result(("Darwin", "host", "24.6.0", "Darwin Kernel Version 24.6.0", "arm64"))
    os.uname = lambda: darwin


def main() -> None:
    become_darwin()
    from evalrun_cli.__main__ import main as command

    for line in sys.argv[1:]:
        try:
            command(shlex.split(line))
        except SystemExit as ended:
            print(f"exit code {ended.code}: {line}", flush=True)


if __name__ == "__main__":
    main()
