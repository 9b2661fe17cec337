"""Errors that end a generation early, one class per reaction of the caller.

BadInputError (evalrun_runtime)      the user must change the input; exit code 2
└── LedgerNeverAnsweredError         the address is wrong, or the ledger is not up: exit code 2
GenerationStoppedError               an outage must end first; run again to resume; exit code 1
├── LedgerLostError                  the ledger no longer replies
├── OtherWeightsError                the replicas serve other weights than before
└── SupersededError                  another generator has taken over; no action is needed
"""

from typing import ClassVar

from evalrun_runtime.exits import BadInputError, EndCause


class LedgerNeverAnsweredError(BadInputError):
    """The ledger has not replied since this generator started."""

    cause: ClassVar[EndCause] = EndCause.LEDGER_UNREACHABLE


class GenerationStoppedError(Exception):
    """The run cannot continue by itself. All completions are stored; running again resumes it."""

    cause: ClassVar[EndCause] = EndCause.FAILED


class LedgerLostError(GenerationStoppedError):
    """The ledger has been unreachable for too long."""

    cause: ClassVar[EndCause] = EndCause.LEDGER_UNREACHABLE


class OtherWeightsError(GenerationStoppedError):
    """The ledger refuses completions of other weights than its own; none of them is stored."""


class SupersededError(GenerationStoppedError):
    """A later generator of the same run has taken over."""
