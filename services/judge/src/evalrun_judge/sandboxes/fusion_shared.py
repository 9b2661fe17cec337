"""Batches waiting programs into a call of a stock server, because a call costs as much as about 20 tests.

A program never waits for a batch: if a slot is free, it is sent alone. If a call's other programs used its time or made
it fail, the program's result is None; the program is then sent again, first and alone.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from evalrun_executor.slots import Slots
from evalrun_judge.sandboxes import RunRefusedError, SandboxFailedError
from evalrun_judge.sandboxes.fusion_answer import BatchAnswer, NotTheHarnessError
from evalrun_judge.sandboxes.fusion_batch import BUDGET_SECONDS, Part, kind
from evalrun_registry.languages import LANGUAGES

MAX_PROGRAMS = 4
"""Maximum programs per call. With 20 tests each, one call costs 63 % of four; eight programs showed no further saving.
"""

MAX_RUNNERS, RUNNER_TESTS = 2, 4
"""Maximum runners of a program that has its call to itself, and minimum tests for which it gets several. On 2 cores."""

MAX_TESTS = 400
MAX_BYTES = 4 << 20
"""Limits of a call with several programs: tests, and bytes of programs and inputs."""

SHARED_SECONDS = 2.0
"""Wall seconds after which such a call starts no more tests, so that a slow program does not delay the others."""

Ask = Callable[[Sequence[Part], float, int], Awaitable[Sequence[BatchAnswer | None]]]
"""Sends a call with the seconds after which no test is started and the number of runners of each program; returns None
for a program that was not reached."""


@dataclass(slots=True, eq=False)
class PendingProgram:
    """A program waiting to be sent."""

    part: Part
    alone: bool
    assigned: "asyncio.Future[tuple[_Call, int]]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass(slots=True, eq=False)
class _Call:
    task: "asyncio.Task[Sequence[BatchAnswer | None]]"
    waiters: int
    """Number of callers that still wait for the program's result."""
    programs: int


def select_batch(waiting: Sequence[PendingProgram], free: int, max_programs: int) -> list[int]:
    """Return the indices of the waiting programs to send in the next call, always including the first. Pure.

    Args:
        waiting: the waiting programs in order, at least one.
        free: further free slots; the programs are spread over them before a call is filled.
        max_programs: maximum number of programs per call.
    """
    first = waiting[0]
    chosen, tests, size = [0], len(first.part.indices), first.part.size
    of_kind = kind(first.part.request)
    fair = min(max_programs, -(-len(waiting) // (free + 1)))
    # Compiling takes longer than everything else, so a program that is compiled is sent alone.
    if first.alone or LANGUAGES[first.part.request.language].is_compiled:
        return chosen
    for place, program in enumerate(waiting):
        if len(chosen) >= fair:
            break
        part = program.part
        if place == 0 or program.alone or kind(part.request) != of_kind:
            continue
        if tests + len(part.indices) <= MAX_TESTS and size + part.size <= MAX_BYTES:
            chosen.append(place)
            tests, size = tests + len(part.indices), size + part.size
    return chosen


def count_runners(parts: Sequence[Part], free: int, max_programs: int) -> int:
    """Return the number of runners per program of a call: several if the server is idle. Pure.

    Args:
        parts: the programs of the call.
        free: slots that nobody uses.
        max_programs: see `select_batch`; where programs cannot share a call, runners cannot share a program.
    """
    several = len(parts) == 1 and max_programs > 1 and len(parts[0].indices) >= RUNNER_TESTS
    return min(MAX_RUNNERS, 1 + free) if several else 1


class SharedCalls:
    """The calls of a server. Each call takes a slot."""

    def __init__(self, turns: Slots, max_programs: int, ask: Ask, shared_seconds: float = SHARED_SECONDS) -> None:
        """Store the arguments.

        Args:
            turns: slots for simultaneous calls.
            max_programs: maximum number of programs per call.
            ask: makes a call.
            shared_seconds: time after which a call with several programs starts no more tests.
        """
        self._turns, self._max_programs, self._ask, self._shared_seconds = turns, max_programs, ask, shared_seconds
        self._waiting: deque[PendingProgram] = deque()
        self._drivers: set[asyncio.Task[None]] = set()

    @property
    def capacity(self) -> int:
        """Number of programs to send at once, so that the next call is full when a slot becomes free."""
        return self._turns.count if self._max_programs == 1 else self._max_programs * (self._turns.count + 1)

    async def answer(self, part: Part, *, again: bool = False) -> BatchAnswer | None:
        """Run a program. Return None if it has no result, possibly because of other programs in its call.

        Args:
            part: the program's part of a call.
            again: whether an earlier call did not serve the program, which is then sent first and alone.

        Raises:
            SandboxError, RunRefusedError, NotTheHarnessError: as `ask` does.
        """
        program = PendingProgram(part, again)
        (self._waiting.appendleft if again else self._waiting.append)(program)
        driver = asyncio.create_task(self._drive())
        self._drivers.add(driver)
        driver.add_done_callback(self._drivers.discard)
        try:
            call, place = await program.assigned
        except asyncio.CancelledError:
            if program in self._waiting:
                self._waiting.remove(program)
            elif program.assigned.done() and not program.assigned.cancelled():
                self._leave(program.assigned.result()[0])
            raise
        try:
            return (await asyncio.shield(call.task))[place]
        except (NotTheHarnessError, SandboxFailedError, RunRefusedError):
            if call.programs == 1:
                raise
            return None
        except asyncio.CancelledError:
            self._leave(call)
            raise

    async def close(self) -> None:
        """Cancel calls in progress."""
        for program in self._waiting:
            program.assigned.cancel()
        for driver in self._drivers:
            driver.cancel()
        await asyncio.gather(*self._drivers, return_exceptions=True)

    def _leave(self, call: _Call) -> None:
        """Remove a waiter, and cancel the call after the last waiter."""
        call.waiters -= 1
        if call.waiters == 0:
            call.task.cancel()

    async def _drive(self) -> None:
        """Take a slot and make a call, unless an earlier call has taken all waiting programs."""
        turn = await self._turns.take(1)
        try:
            if not self._waiting:
                return
            places = set(select_batch(self._waiting, self._turns.free, self._max_programs))
            programs = [program for place, program in enumerate(self._waiting) if place in places]
            self._waiting = deque(program for place, program in enumerate(self._waiting) if place not in places)
            await self._make_call(programs)
        finally:
            self._turns.give_back(turn)

    async def _make_call(self, programs: list[PendingProgram]) -> None:
        budget = BUDGET_SECONDS if len(programs) == 1 else self._shared_seconds
        parts = [program.part for program in programs]
        runners = count_runners(parts, self._turns.free, self._max_programs)
        call = _Call(
            asyncio.ensure_future(self._ask(parts, budget, runners)),
            len(programs),
            len(programs),
        )
        for place, program in enumerate(programs):
            if program.assigned.cancelled():
                self._leave(call)
            else:
                program.assigned.set_result((call, place))
        try:
            await asyncio.wait([call.task])
            if not call.task.cancelled():
                # Nobody may be left to retrieve the exception.
                call.task.exception()
        finally:
            # If this task was cancelled, the call has to end too.
            call.task.cancel()
