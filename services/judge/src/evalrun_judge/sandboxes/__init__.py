"""Backends that run programs: one module each behind one Protocol, and errors that say what the caller should do.

    SandboxError              the sandbox could not say: try again, elsewhere first; never a verdict
      SandboxUnreachableError   no connection, or it broke: ask whether the sandbox is there before trying it again
      SandboxTimeoutError       no answer within the time that the work can take at most: likewise
      SandboxFailedError        it answered, with an error or with something that is no answer
        SandboxAbsentError        another kind of server answers at this address
      SandboxVersionError       it speaks no version that this gateway speaks: ask another until it is replaced
      SandboxBusyError          every slot is taken: no failure at all, come back after a while
    RunRefusedError           the request itself cannot be served: never try again

No verdict and no comparison lives here.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from evalrun_executor.api import CompileResult, Level, ProgramRun, RunReply, RunRequest, SandboxInfo


class SandboxError(Exception):
    """The sandbox could not run the program."""

    reason = "error"
    """Label of `evalrun_judge_retries_total`."""


class SandboxUnreachableError(SandboxError):
    """No connection, or it broke before the whole answer had come."""

    reason = "connection"


class SandboxTimeoutError(SandboxError):
    """No answer in the time that the work can take at most."""

    reason = "timeout"


class SandboxFailedError(SandboxError):
    """It answered with an error, or with something that is no answer."""

    reason = "bad_answer"


class SandboxAbsentError(SandboxFailedError):
    """Another kind of server answers at this address."""


class SandboxVersionError(SandboxError):
    """The sandbox speaks no wire version that this gateway speaks; the message names both and the remedy."""

    reason = "version"


class SandboxBusyError(SandboxError):
    """Every slot is taken."""

    reason = "busy"

    def __init__(self, message: str, retry_after_seconds: float, free: int = 0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.free = free
        """Slots that it named as free: room for a request, if not for this one."""


class RunRefusedError(Exception):
    """The sandbox will never serve this request."""


REASONS = tuple(
    kind.reason
    for kind in (
        SandboxUnreachableError,
        SandboxTimeoutError,
        SandboxFailedError,
        SandboxVersionError,
        SandboxBusyError,
    )
)


@dataclass(frozen=True, slots=True)
class Backend:
    """Facts about a sandbox that the gateway needs."""

    name: str
    """`evalrun` or `sandbox-fusion`."""
    info: SandboxInfo
    submits: bool = False
    """It has datasets of its own and judges answers to them: see `DatasetServer`."""


@dataclass(frozen=True, slots=True)
class SubmitCall:
    """An answer to a row of a dataset of the server's."""

    dataset: str
    row: int | str
    completion: str
    language: str
    time_seconds: float
    """A test; the server counts them as it does."""
    free_form: bool = True
    """The completion is a whole program; False: what continues the row's prompt."""
    after_timeouts: bool = False
    """Run the other tests after a timeout too."""


@dataclass(frozen=True, slots=True)
class ServerTest:
    """A test of the server with its result."""

    passed: bool
    compile: CompileResult
    run: ProgramRun | None
    """None: nothing ran."""
    case: tuple[bytes, bytes] | None = None
    """Input and expected output; None: assertions within the program, whose exit status is the verdict."""


@dataclass(frozen=True, slots=True)
class SubmitReply:
    """Reply of a server that judges answers itself; accepted if every test passed."""

    code: str
    """The program that it found in the completion."""
    tests: tuple[ServerTest, ...]
    complete: bool
    """False: it stopped at the first test that failed, and there may be more."""
    level: Level

    @property
    def accepted(self) -> bool:
        """Every test passed."""
        return all(test.passed for test in self.tests)


@runtime_checkable
class DatasetServer(Protocol):
    """A sandbox that judges by tests of its own."""

    async def submit(self, call: SubmitCall) -> SubmitReply:
        """Judge an answer.

        Raises:
            SandboxError: nothing is known about the program.
            RunRefusedError: the server has no such row, or takes no such call.
        """
        ...


class Sandbox(Protocol):
    """Interface to a sandbox."""

    address: str
    """For logs."""

    async def run(self, request: RunRequest) -> RunReply:
        """Run a program on its inputs. Cancelling the caller (its deadline, its client) stops the program.

        Raises:
            SandboxError: nothing is known about the program.
            RunRefusedError: the request can never be served.
        """
        ...

    async def describe(self) -> Backend:
        """Return the capabilities of the sandbox. Raises SandboxError."""
        ...

    async def close(self) -> None:
        """Free the connections."""
        ...
