"""Compiles hostile text with Python's own compiler, and imports what all tests of a program share."""

from __future__ import annotations

import time

# `warnings` adopts this list when it is imported.
from _warnings import filters as _warning_filters
from opcode import opmap

from evalrun_executor.contained.limits import CompileLimits
from evalrun_executor.contained.program import SCRIPT

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

_IMPORT_NAME, _EXTENDED_ARG = opmap["IMPORT_NAME"], opmap["EXTENDED_ARG"]
MAX_COMPLAINT = 64 * 1024

_AHEAD = """
abc array base64 bisect calendar cmath collections contextlib copy dataclasses datetime decimal enum fractions functools
hashlib heapq inspect io itertools json math numbers numpy operator queue random re statistics string struct textwrap
threading time types typing
"""
AHEAD = frozenset(_AHEAD.split())
"""Modules that the runner imports if the program names them: once per program, not once per test. None of them runs a
thread, opens a file or leaves a state that a fork would not copy."""

# Hostile source can trigger a million SyntaxWarnings, which would go to our own stderr.
_warning_filters.insert(0, ("ignore", None, SyntaxWarning, None, 0))


class Checked:
    """Result of compiling a text."""

    def __init__(self, code: CodeType | None, stderr: bytes, seconds: float) -> None:
        self.code = code
        self.stderr = stderr
        self.seconds = seconds
        self.status = 0 if code is not None else 1


def check(source: bytes, name: str = SCRIPT) -> Checked:
    """Compile the program as `python3 main.py` would read it (coding line included), under `CompileLimits`.

    A text that crashes the compiler, or takes it too long, kills the runner before the runner has reported a
    compilation; the service infers that from how the runner died. Complaints name `main.py`, whatever name tracebacks
    will show.
    """
    started = time.monotonic()
    code: CodeType | None = None
    stderr = b""
    with CompileLimits():
        try:
            code = compile(source, name, "exec", dont_inherit=True)
        except (MemoryError, RecursionError) as error:
            stderr = f"{type(error).__name__}: the program is too deeply nested to compile: {error}\n".encode()
        except Exception as error:  # noqa: BLE001 - whatever it is, the text made the compiler raise it
            if isinstance(error, SyntaxError):
                error.filename = SCRIPT
            stderr = _describe_error(error)
    return Checked(code, stderr[:MAX_COMPLAINT], time.monotonic() - started)


_LASTING = """
open fdopen FileIO IOBase RawIOBase BufferedIOBase TextIOBase BufferedWriter BufferedRandom BufferedRWPair TextIOWrapper
__del__ finalize exec eval compile __import__ import_module getattr __builtins__ __dict__ globals vars dup dup2
"""
_SEEN_AT_THE_END = frozenset(_LASTING.split())


def needs_teardown(code: CodeType) -> bool:
    """Return whether the destruction of the program's objects may be observable: through files, destructors, or code
    that could hide them.

    Modules of `AHEAD`, sys and os make no such object by themselves; any other import may.
    """
    waiting = [code]
    while waiting:
        part = waiting.pop()
        if not _SEEN_AT_THE_END.isdisjoint(part.co_names) or _may_be_suspended(part):
            return True
        for constant in part.co_consts:
            if isinstance(constant, _CODE):
                waiting.append(constant)
            elif "__del__" in repr(constant):
                return True
        if any(name not in AHEAD and name not in ("sys", "os") for name in _list_imports(part)):
            return True
    return False


_CODE = type(needs_teardown.__code__)
_GENERATORS = 0x20 | 0x80 | 0x200
"""CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR."""


def _may_be_suspended(code: CodeType) -> bool:
    """Return whether the code is a generator, or the like, with a `finally` or a `with` that its destruction runs.

    Python 3.9 and 3.10 do not show that; from 3.12 on every generator looks as if it had such a block.
    """
    return (
        bool(code.co_flags & _GENERATORS)
        and code.co_name != "<genexpr>"
        and getattr(code, "co_exceptiontable", b"?") != b""
    )


def _list_imports(code: CodeType) -> list[str]:
    """Return the top-level packages that IMPORT_NAME instructions of the code object name."""
    operations = code.co_code[::2]
    arguments = code.co_code[1::2]
    names = []
    extended = 0
    for operation, argument in zip(operations, arguments):  # noqa: B905 - equal lengths; Python 3.9 has no strict
        if operation == _EXTENDED_ARG:
            extended = (extended | argument) << 8
            continue
        if operation == _IMPORT_NAME:
            names.append(code.co_names[extended | argument].partition(".")[0])
        extended = 0
    return names


def _describe_error(error: Exception) -> bytes:
    # Importing traceback costs 10 ms, so it is done only for a program that needs it.
    import traceback

    try:
        lines = traceback.format_exception_only(type(error), error)
    except Exception:  # noqa: BLE001 - a place in the text that it cannot show
        lines = [f"{type(error).__name__}\n"]
    return "".join(lines).encode(errors="backslashreplace")


def import_ahead(code: CodeType) -> None:
    """Import the modules that the program's top level names. A module that fails here fails again in the program."""
    for name in AHEAD.intersection(code.co_names):
        try:
            __import__(name)
        except Exception:  # noqa: BLE001, S112 - whatever an import may raise, the program meets it too
            continue
