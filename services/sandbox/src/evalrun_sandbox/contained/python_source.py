"""Python's own compiler on hostile text, and the imports that all tests of a program share."""

from __future__ import annotations

import time
from types import CodeType

from evalrun_sandbox.contained.limits import CompileLimits
from evalrun_sandbox.contained.program import SCRIPT

_AHEAD = """
abc array base64 bisect calendar cmath collections contextlib copy dataclasses datetime decimal enum fractions functools
hashlib heapq inspect io itertools json math numbers numpy operator queue random re statistics string struct textwrap
threading time types typing
"""
AHEAD = frozenset(_AHEAD.split())
"""Imported by the runner where the program names them: once a program, not once a test. Nothing that runs a thread,
opens a file or leaves a state that a fork would not copy."""


class Checked:
    """The compiler's answer."""

    def __init__(self, code: CodeType | None, stderr: bytes, seconds: float) -> None:
        self.code = code
        self.stderr = stderr
        self.seconds = seconds
        self.status = 0 if code is not None else 1


def check(source: bytes) -> Checked:
    """Compile the program as `python3 main.py` would read it (coding line included), under `CompileLimits`.

    A text that crashes the compiler, or takes it too long, kills the runner before it has reported a compilation; the
    front reads that from how it died.
    """
    started = time.monotonic()
    code: CodeType | None = None
    stderr = b""
    with CompileLimits():
        try:
            code = compile(source, SCRIPT, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, OverflowError) as error:
            stderr = _describe(error)
        except (MemoryError, RecursionError) as error:
            stderr = f"{type(error).__name__}: the program is too deeply nested to compile: {error}\n".encode()
    return Checked(code, stderr, time.monotonic() - started)


def _describe(error: Exception) -> bytes:
    import traceback  # costs 10 ms, so only where a program needs it

    return "".join(traceback.format_exception_only(type(error), error)).encode(errors="backslashreplace")


def import_ahead(code: CodeType) -> None:
    """Import what the program's top level names; what fails, the program will see for itself."""
    for name in AHEAD.intersection(code.co_names):
        try:
            __import__(name)
        except Exception:  # noqa: BLE001, S112 - whatever an import may raise, the program meets it too
            continue
