"""Backends that run programs: one module each behind one Protocol, and errors that tell the caller what to do.

    SandboxError              the sandbox could not decide: try again, elsewhere first; never a verdict
      SandboxUnreachableError   no connection, or it broke: probe the sandbox before trying it again
      SandboxTimeoutError       no reply within the maximum time of the work: likewise
      SandboxFailedError        the sandbox replied with an error, or with nonsense
        SandboxAbsentError        another kind of server replies at this address
      SandboxVersionError       the sandbox speaks no version of this gateway: ask another until it is replaced
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
    """No connection, or it broke before the whole reply had arrived."""

    reason = "connection"


class SandboxTimeoutError(SandboxError):
    """No reply within the maximum time of the work."""

    reason = "timeout"


class SandboxFailedError(SandboxError):
    """The sandbox replied with an error, or with nonsense."""

    reason = "bad_answer"


class SandboxAbsentError(SandboxFailedError):
    """Another kind of server replies at this address."""


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
        """Number of free slots that the reply names: room for another request, if not for this one."""


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
    """Whether the server has datasets of its own and judges completions of them; see `DatasetServer`."""


@dataclass(frozen=True, slots=True)
class SubmitCall:
    """A completion for a row of a server's dataset."""

    dataset: str
    row: int | str
    completion: str
    language: str
    time_seconds: float
    """Time limit of a test, as the server counts it."""
    free_form: bool = True
    """Whether the completion is a whole program; False: it continues the row's prompt."""
    after_timeouts: bool = False
    """Whether the other tests run after a timeout too."""


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
    """Reply of a server that judges completions itself; accepted if every test passed."""

    code: str
    """The program that the server found in the completion."""
    tests: tuple[ServerTest, ...]
    complete: bool
    """False: the server stopped at the first failed test, and there may be further tests."""
    level: Level

    @property
    def accepted(self) -> bool:
        """Whether every test passed."""
        return all(test.passed for test in self.tests)


@runtime_checkable
class DatasetServer(Protocol):
    """A sandbox that judges by tests of its own."""

    async def submit(self, call: SubmitCall) -> SubmitReply:
        """Judge a completion.

        Raises:
            SandboxError: nothing is known about the program.
            RunRefusedError: the server has no such row, or accepts no such call.
        """
        ...


class Sandbox(Protocol):
    """Interface to a sandbox."""

    address: str
    """Address for logs."""

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
        """Close the connections."""
        ...
