"""Failures of the sandbox itself, by what the caller should do. None of these is a verdict.

SandboxError
├── Unusable           the machine cannot contain as required: fix the machine, or require less
├── RequestRefused     this request can never be served: change it
├── Busy               every slot is taken: ask another sandbox, or come back
└── ExecutorLost       the machinery died under the request: send it again
"""


class SandboxError(Exception):
    """The sandbox could not run the program; nothing is known about the program."""


class Unusable(SandboxError):  # noqa: N818 - says what to do, like its sisters
    """The sandbox cannot start here; the message names what is missing."""


class RequestRefused(SandboxError):  # noqa: N818
    """The request cannot be served by this sandbox, now or later."""


class Busy(SandboxError):  # noqa: N818
    """Every slot and every place in the queue is taken."""

    def __init__(self, free: int, retry_after_ms: int) -> None:
        super().__init__(f"every slot is taken, try again in {retry_after_ms} ms")
        self.free = free
        self.retry_after_ms = retry_after_ms


class ExecutorLost(SandboxError):  # noqa: N818
    """The zygote or a runner died, or sent nonsense, before the reply was complete."""
