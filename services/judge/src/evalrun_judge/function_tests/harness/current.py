"""The execution that is under way, and the exception that ends it."""

from __future__ import annotations

from evalrun_executor.calls.originals import Value

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from evalrun_judge.function_tests.harness.run import Run


class Ended(BaseException):
    """The test's outcome is known, or more calls are needed. The test's own `except Exception` does not catch it."""


CURRENT: list[Run] = []
"""Executions that are under way, the innermost last. Every proxy and placeholder finds its run here."""


def ask_program(operation: str, *args: Value) -> Value:
    """Return the result of an operation of `call_harness.OPERATIONS` that the program performs."""
    return CURRENT[-1].call(f".{operation}", args, {})
