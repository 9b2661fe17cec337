"""From a request's turn to the executor's answer, in the errors that this API knows."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from evalrun_sandbox.api import RunReply, RunRequest
from evalrun_sandbox.errors import Busy, ExecutorLost, RequestRefused
from evalrun_sandbox.fusion.refusals import BadRequest, TryAgain
from evalrun_sandbox.fusion.turns import Turns

logger = logging.getLogger(__name__)


class ProgramExecutor(Protocol):
    """What runs programs: `evalrun_sandbox.executor.Executor`, or a stand-in."""

    @property
    def slots(self) -> int:
        """Programs that run at the same time."""
        ...

    @property
    def languages(self) -> list[str]:
        """Languages that it can run."""
        ...

    async def run(self, request: RunRequest) -> RunReply:
        """Run one program. Raises RequestRefused, Busy or ExecutorLost."""
        ...


class Dispatcher:
    """Runs programs in turn. `Executor.run` refuses beyond its slots; clients of this API cannot go elsewhere."""

    def __init__(
        self,
        executor: ProgramExecutor,
        turns: Turns | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._executor = executor
        self._clock = clock
        self._sleep = sleep
        self.turns = turns or Turns(executor.slots)

    @property
    def languages(self) -> list[str]:
        """Languages that can be run."""
        return self._executor.languages

    async def run(self, request: RunRequest, weight: int, patience_seconds: float) -> RunReply:
        """Wait for a turn and run.

        Args:
            request: the executor's.
            weight: bytes that the caller holds meanwhile.
            patience_seconds: longest wait before it starts.

        Raises:
            BadRequest: the executor cannot serve this.
            TryAgain: no turn came in time, or the machinery died under the program.
        """
        deadline = self._clock() + patience_seconds
        async with self.turns.turn(weight, patience_seconds):
            while True:
                try:
                    return await self._executor.run(request)
                except Busy as busy:  # callers of the batch API hold every place
                    delay = busy.retry_after_ms / 1000
                    if self._clock() + delay > deadline:
                        raise TryAgain(f"no turn came within {patience_seconds:.0f} s: every slot is busy") from busy
                    await self._sleep(delay)
                except RequestRefused as error:
                    raise BadRequest(str(error)) from error
                except ExecutorLost as error:
                    logger.warning("a run was lost: %s", error)
                    raise TryAgain(f"the sandbox lost the program: {error}") from error
