"""Where function tests' assertions are replayed: a contained child of the gateway, which never sees a candidate."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from evalrun_judge.pool import NoSandboxError
from evalrun_runtime.exits import BadInputError
from evalrun_sandbox.api import Level, Limits, ProgramRun, RunReply, RunRequest
from evalrun_sandbox.errors import ExecutorLost, Unusable
from evalrun_sandbox.executor import Executor, ExecutorPlan

HARNESS = Path(__file__).with_name("assertion_harness.py")

MODE = "assertions"

ATTEMPTS = 3


class AssertionRunner(Protocol):
    """Runs the assertion harness on one input."""

    @property
    def level(self) -> Level:
        """The containment of the child."""
        ...

    async def start(self) -> None:
        """Make the child ready. Raises BadInputError where it cannot be contained as required."""
        ...

    async def run(self, stdin: bytes, limits: Limits, on_slot: Callable[[], None]) -> ProgramRun:
        """Replay what `stdin` describes; waits for a slot, and calls `on_slot` then. Raises NoSandboxError."""
        ...

    async def close(self) -> None:
        """End the child."""
        ...


class ContainedAssertions:
    """Replays assertions in the sandbox's own executor, as a child of this process."""

    def __init__(self, slots: int, required_level: Level) -> None:
        """Plan it.

        Args:
            slots: replays at once.
            required_level: below it, `start` fails.
        """
        self._executor = Executor(
            ExecutorPlan(slots=slots, queue=slots, required=required_level, preload={MODE: HARNESS})
        )
        self._places = asyncio.Semaphore(2 * slots)  # what the executor admits

    @property
    def level(self) -> Level:
        """The containment of the child."""
        return self._executor.report.level

    async def start(self) -> None:
        """Start the child; see `AssertionRunner.start`."""
        try:
            await self._executor.start()
        except Unusable as error:
            raise BadInputError(f"the judge's assertions cannot be contained here: {error}") from error

    async def run(self, stdin: bytes, limits: Limits, on_slot: Callable[[], None]) -> ProgramRun:
        """Replay; see `AssertionRunner.run`."""
        request = RunRequest(language="python", code="", inputs=[stdin], limits=limits, mode=MODE)
        async with self._places:
            on_slot()
            reply = await self._run(request)
        return reply.runs[0]

    async def _run(self, request: RunRequest) -> RunReply:
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._executor.run(request)
            except ExecutorLost:
                continue
        try:
            return await self._executor.run(request)
        except ExecutorLost as error:
            raise NoSandboxError(f"the assertions' child died {ATTEMPTS} times: {error}") from error

    async def close(self) -> None:
        """End the child."""
        await self._executor.close()
