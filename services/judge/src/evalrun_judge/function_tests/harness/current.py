"""The execution that is under way, and how it is left."""

from __future__ import annotations

from evalrun_executor.calls.originals import Value

TYPE_CHECKING = False  # as typing's, without its import
if TYPE_CHECKING:
    from evalrun_judge.function_tests.harness.run import Run


class Ended(BaseException):
    """The test's outcome is known, or more calls are needed; passes through the test's own `except Exception`."""


CURRENT: list[Run] = []
"""The execution that is under way, last."""


def ask_program(operation: str, *args: Value) -> Value:
    """Return the result of an operation of `call_harness.OPERATIONS` that the program performs."""
    return CURRENT[-1].call(f".{operation}", args, {})
