"""The exit codes of every command, and the error that a user can fix."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command."""

    SUCCEEDED = 0
    FAILED = 1
    BAD_INPUT = 2
    DEGRADED = 3
    GATE_FAILED = 4
    GATE_INCONCLUSIVE = 5
    STOPPED = 130


class BadInputError(Exception):
    """Something that the user gave cannot be used.

    The message is one line that says what is wrong, where (file and line, or the field's path) and, where it is not
    plain, what to write instead. Commands print it and end with `ExitCode.BAD_INPUT`.
    """
