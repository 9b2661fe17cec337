"""The exit codes of every command, and the error that a user can fix."""

from enum import IntEnum, StrEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """Exit codes of every command."""

    SUCCEEDED = 0
    FAILED = 1
    BAD_INPUT = 2
    DEGRADED = 3
    GATE_FAILED = 4
    DIFFERS = 4
    """`evalrun verify` found a difference from the statement."""
    GATE_INCONCLUSIVE = 5
    CANNOT_TELL = 5
    """`evalrun verify`: nothing differs, and something could not be checked."""
    STOPPED = 130


class EndCause(StrEnum):
    """Cause of a process's end that was no success, as its termination message has it."""

    BAD_INPUT = "BadInput"
    """Something that the user gave cannot be used."""
    AUDIT_FAILED = "AuditFailed"
    """The data did not pass its audit. The same data fails it each time: another start cannot help."""
    LEDGER_UNREACHABLE = "LedgerUnreachable"
    """The run's ledger did not reply, which is not the fault of the process that ended."""
    FAILED = "Failed"
    """The process failed for any other reason."""


class BadInputError(Exception):
    """Something that the user gave cannot be used.

    The message is one line that says what is wrong, where (file and line, or the field's path) and, where it is not
    plain, what to write instead. Commands print it and end with `ExitCode.BAD_INPUT`.
    """

    cause: ClassVar[EndCause] = EndCause.BAD_INPUT
    """Cause that a process tells when the error ends it; a subclass names its own where the operator acts on that."""
