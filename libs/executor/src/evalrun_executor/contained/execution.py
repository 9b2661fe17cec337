"""Makes a child become a compiled program, or the interpreter of a program's text."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # no stubs; `signal` itself makes enums of what it gives
import os
from _collections_abc import Callable

from evalrun_executor.contained.c_types import Int, Text
from evalrun_executor.contained.filters import EXECUTABLE_FD
from evalrun_executor.contained.kernel import syscall

_EXECVEAT = {"x86_64": 322, "aarch64": 281}
_AT_EMPTY_PATH = 0x1000


def prepare_execution(machine: str, arguments: list[bytes], environment: list[bytes]) -> Callable[[], object]:
    """Return the step that becomes the program on descriptor 3; the step never returns.

    Args:
        machine: the architecture.
        arguments: the program's arguments, its name first.
        environment: further variables as `NAME=VALUE`.
    """
    # Python ignores these two signals, and an executed program inherits that. Programs expect the defaults.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    call = _EXECVEAT[machine]
    # All arguments are made before the fork: making them in each child would cost it page faults.
    place, flags = Int(EXECUTABLE_FD), Int(_AT_EMPTY_PATH)
    pointers = (Text * (len(arguments) + 1))(*arguments, None)
    usual = [b"PATH=/usr/bin:/bin", b"LANG=C.UTF-8"]
    variables = (Text * (len(usual) + len(environment) + 1))(*usual, *environment, None)

    def execute() -> None:
        try:
            syscall(call, place, b"", pointers, variables, flags)
        except OSError as error:
            os.write(2, f"cannot start the program: {error}\n".encode())
        finally:
            os._exit(127)

    return execute
