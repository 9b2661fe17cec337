"""Which programs go to a stock server in one call: those that wait anyway, for a call costs as much as some 20 tests.

Nobody waits for company: a program that finds a turn goes by itself. What a call's other programs did to it, by their
time or by its failure, a program is told as None: it then goes again, first and alone.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from evalrun_judge.sandboxes import RunRefusedError, SandboxFailedError
from evalrun_judge.sandboxes.fusion_answer import BatchAnswer, NotTheHarnessError
from evalrun_judge.sandboxes.fusion_batch import BUDGET_SECONDS, Part, kind
from evalrun_sandbox.contained.frames import KIND_EXECUTABLE
from evalrun_sandbox.slots import Slots

MOST_PROGRAMS = 4
"""Of one call. With 20 tests each they cost 63 % of what four calls do; eight save no more that could be measured."""

MOST_TESTS = 400
MOST_BYTES = 4 << 20
"""Of one call with several programs, of their texts and inputs."""

SHARED_SECONDS = 2.0
"""Wall seconds after which no test of such a call is begun: a slow program is not waited for by its neighbours."""

Ask = Callable[[Sequence[Part], float], Awaitable[Sequence[BatchAnswer | None]]]
"""Makes a call, with the seconds after which no test is begun; None for a program whose turn did not come."""


@dataclass(slots=True, eq=False)
class Rider:
    """A program that waits for a call."""

    part: Part
    alone: bool
    boarded: "asyncio.Future[tuple[_Call, int]]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass(slots=True, eq=False)
class _Call:
    task: "asyncio.Task[Sequence[BatchAnswer | None]]"
    riders: int
    """Who still want its answer."""
    programs: int


def company(waiting: Sequence[Rider], free: int, most: int) -> list[int]:
    """Say which of those that wait go together now, as places in `waiting`; the first does in any case. Pure.

    Args:
        waiting: in order, at least one.
        free: turns that others of them may take at once: no call is filled while one is idle.
        most: programs of a call.
    """
    first = waiting[0]
    chosen, tests, size = [0], len(first.part.indices), first.part.size
    of_kind = kind(first.part.request)
    fair = min(most, -(-len(waiting) // (free + 1)))
    if first.alone or of_kind == KIND_EXECUTABLE:  # a compiler takes longer than all else
        return chosen
    for place, rider in enumerate(waiting):
        if len(chosen) >= fair:
            break
        part = rider.part
        if place == 0 or rider.alone or kind(part.request) != of_kind:
            continue
        if tests + len(part.indices) <= MOST_TESTS and size + part.size <= MOST_BYTES:
            chosen.append(place)
            tests, size = tests + len(part.indices), size + part.size
    return chosen


class SharedCalls:
    """The calls of one server, a turn each."""

    def __init__(self, turns: Slots, most: int, ask: Ask, shared_seconds: float = SHARED_SECONDS) -> None:
        """Make it.

        Args:
            turns: calls at once.
            most: programs of a call.
            ask: makes one.
            shared_seconds: after which no test of a call with several programs is begun.
        """
        self._turns, self._most, self._ask, self._shared_seconds = turns, most, ask, shared_seconds
        self._waiting: deque[Rider] = deque()
        self._drivers: set[asyncio.Task[None]] = set()

    @property
    def seats(self) -> int:
        """How many programs it is worth giving it at once: so many that the next call is full when a turn is free."""
        return self._turns.count if self._most == 1 else self._most * (self._turns.count + 1)

    async def answer(self, part: Part, *, again: bool = False) -> BatchAnswer | None:
        """Have a program run. None: nothing is known of it, for reasons that may be its neighbours'.

        Args:
            part: the program's part of a call.
            again: it was in a call that did not serve it: it goes first, and alone.

        Raises:
            SandboxError, RunRefusedError, NotTheHarnessError: as `ask` does.
        """
        rider = Rider(part, again)
        (self._waiting.appendleft if again else self._waiting.append)(rider)
        driver = asyncio.create_task(self._drive())
        self._drivers.add(driver)
        driver.add_done_callback(self._drivers.discard)
        try:
            call, place = await rider.boarded
        except asyncio.CancelledError:
            if rider in self._waiting:
                self._waiting.remove(rider)
            elif rider.boarded.done() and not rider.boarded.cancelled():
                self._leave(rider.boarded.result()[0])
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
        """Break off what is under way."""
        for rider in self._waiting:
            rider.boarded.cancel()
        for driver in self._drivers:
            driver.cancel()
        await asyncio.gather(*self._drivers, return_exceptions=True)

    def _leave(self, call: _Call) -> None:
        """One fewer wants the answer; the last takes the call with it."""
        call.riders -= 1
        if call.riders == 0:
            call.task.cancel()

    async def _drive(self) -> None:
        """Take a turn and make a call with it, if anyone still waits: one that came later may have gone already."""
        turn = await self._turns.take(1)
        try:
            if not self._waiting:
                return
            places = set(company(self._waiting, self._turns.free, self._most))
            riders = [rider for place, rider in enumerate(self._waiting) if place in places]
            self._waiting = deque(rider for place, rider in enumerate(self._waiting) if place not in places)
            await self._make_call(riders)
        finally:
            self._turns.give_back(turn)

    async def _make_call(self, riders: list[Rider]) -> None:
        budget = BUDGET_SECONDS if len(riders) == 1 else self._shared_seconds
        call = _Call(
            asyncio.ensure_future(self._ask([rider.part for rider in riders], budget)), len(riders), len(riders)
        )
        for place, rider in enumerate(riders):
            if rider.boarded.cancelled():
                self._leave(call)
            else:
                rider.boarded.set_result((call, place))
        try:
            await asyncio.wait([call.task])
            if not call.task.cancelled():
                call.task.exception()  # nobody may be left to take it
        finally:
            call.task.cancel()  # where this was broken off
