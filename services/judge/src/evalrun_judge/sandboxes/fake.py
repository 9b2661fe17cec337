"""A sandbox of scripted replies and faults, for tests and for load without programs."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from evalrun_executor.api import CompileResult, Level, ProgramRun, RunReply, RunRequest, SandboxInfo
from evalrun_judge.sandboxes import Backend, ServerTest, SubmitCall, SubmitReply
from evalrun_registry.languages import LANGUAGES

Behaviour = Callable[[RunRequest], RunReply | Awaitable[RunReply]]
"""Replies to a request, now or later."""


class FakeSandbox:
    """Fails with the given faults first, one per call, and then follows `behaviour`.

    Attributes:
        requests: every request, including failed ones.
        max_in_flight: highest number of simultaneous requests.
    """

    def __init__(
        self,
        behaviour: Behaviour | None = None,
        *,
        address: str = "fake",
        slots: int = 2,
        level: Level = "full",
        languages: Iterable[str] = tuple(LANGUAGES),
        faults: Iterable[Exception] = (),
        down: Exception | None = None,
    ) -> None:
        """Create a sandbox.

        Args:
            behaviour: how to answer; by default every run exits with 0 and prints its input.
            address: for messages.
            slots: reported to the pool.
            level: reported, and set on replies of the default behaviour.
            languages: reported.
            faults: raised by the next calls of `run`, one each.
            down: raised by every call while it is set.
        """
        self.address = address
        self.behaviour = behaviour or (lambda request: echo(request, level))
        self.info = SandboxInfo("fake", level, slots, list(languages), "3.11.0")
        self.faults = deque(faults)
        self.down = down
        self.requests: list[RunRequest] = []
        self.max_in_flight = 0
        self._in_flight = 0

    async def run(self, request: RunRequest) -> RunReply:
        """Raise the next fault, or answer as `behaviour` does."""
        self.requests.append(request)
        self._in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self._in_flight)
        try:
            # Every real call lets other tasks run.
            await asyncio.sleep(0)
            if self.down is not None:
                raise self.down
            if self.faults:
                raise self.faults.popleft()
            answer = self.behaviour(request)
            return await answer if isinstance(answer, Awaitable) else answer
        finally:
            self._in_flight -= 1

    async def describe(self) -> Backend:
        """Return the configured capabilities."""
        if self.down is not None:
            raise self.down
        return Backend("evalrun", self.info)

    async def close(self) -> None:
        """Do nothing: the fake holds no connection."""


class FakeDatasetServer(FakeSandbox):
    """A SandboxFusion server that gives every completion the same verdict. `calls` records the requests."""

    def __init__(self, tests: Iterable[ServerTest], *, complete: bool = True, faults: Iterable[Exception] = ()) -> None:
        """Create a server.

        Args:
            tests: tests of its reply.
            complete: `complete` of its reply.
            faults: raised by the next calls, one each.
        """
        super().__init__(faults=faults)
        self._answer = SubmitReply("as the server found it", tuple(tests), complete, "none")
        self.calls: list[SubmitCall] = []

    async def submit(self, call: SubmitCall) -> SubmitReply:
        """Raise the next fault, or give the answer."""
        self.calls.append(call)
        await asyncio.sleep(0)
        if self.faults:
            raise self.faults.popleft()
        return self._answer

    async def describe(self) -> Backend:
        """Return the configured capabilities of a server with datasets."""
        return Backend("sandbox-fusion", (await super().describe()).info, submits=True)


def ended(
    stdout: bytes = b"", *, exit_code: int | None = 0, stderr: bytes = b"", cpu_seconds: float = 0.01
) -> ProgramRun:
    """Return a run that ended by itself."""
    return ProgramRun(
        "exited", exit_code, stdout, stderr, cpu_seconds=cpu_seconds, wall_seconds=cpu_seconds, peak_memory_mib=8
    )


def reply(*runs: ProgramRun, level: Level = "full", compiling: CompileResult | None = None) -> RunReply:
    """Return a reply with these runs."""
    return RunReply(compiling or CompileResult("ok"), list(runs), level)


def echo(request: RunRequest, level: Level = "full") -> RunReply:
    """Reply as a program that prints its input."""
    return reply(*(ended(data) for data in request.inputs), level=level)
