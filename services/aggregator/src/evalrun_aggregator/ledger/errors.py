"""Errors of the ledger, one class per reaction of the caller.

    LedgerError
     +- LedgerFullError     no room on the disk: nothing of the batch was stored, try again later
     +- LedgerBrokenError   the disk failed or the file is damaged: end the process, start again

A ledger that cannot be opened (newer schema, another run, a second process, a network file system) is the user's to
correct: `evalrun_runtime.exits.BadInputError`.
"""

import errno
import sqlite3
from pathlib import Path

FULL_NAMES = frozenset({"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"})
FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LedgerError(Exception):
    """A ledger operation failed."""


class LedgerFullError(LedgerError):
    """There is no room left; nothing of the batch was stored."""


class LedgerBrokenError(LedgerError):
    """The file or its disk failed. Acknowledged data is on disk; the ledger accepts nothing more."""


def ledger_error(error: sqlite3.Error | OSError, path: Path) -> LedgerError:
    """Return the error class that tells the caller how to react. The original error becomes its cause.

    Args:
        error: the original error.
        path: the ledger, for the message.
    """
    if isinstance(error, OSError):
        full, name = error.errno in FULL_ERRNOS, errno.errorcode.get(error.errno or 0, "OSError")
    else:
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        full = name in FULL_NAMES
    kind = LedgerFullError if full else LedgerBrokenError
    typed = kind(f"{path}: the disk is full ({name})" if full else f"{path}: the ledger failed ({name}): {error}")
    typed.__cause__ = error
    return typed
