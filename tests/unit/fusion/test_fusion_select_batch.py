"""Which programs share a call of a stock server, and what becomes of each when the call fares ill."""

import asyncio
from collections.abc import Sequence

import pytest

from evalrun_executor.api import RunRequest
from evalrun_executor.slots import Slots
from evalrun_judge.sandboxes import RunRefusedError, SandboxBusyError, SandboxFailedError, SandboxUnreachableError
from evalrun_judge.sandboxes.fusion_answer import BatchAnswer, NotTheHarnessError
from evalrun_judge.sandboxes.fusion_batch import BUDGET_SECONDS, Part
from evalrun_judge.sandboxes.fusion_shared import (
    MAX_BYTES,
    MAX_TESTS,
    PendingProgram,
    SharedCalls,
    count_runners,
    select_batch,
)


def part(
    name: str = "", *, tests: int = 1, language: str = "python", mode: str = "stdio", input_bytes: int = 0
) -> Part:
    request = RunRequest(language, name, [b"x" * input_bytes] * tests, mode=mode)
    return Part(request, range(tests), b"n")


async def programs(*parts: Part, alone: Sequence[int] = ()) -> list[PendingProgram]:
    return [PendingProgram(one, place in alone) for place, one in enumerate(parts)]


SMALL = part()
LARGE = part(input_bytes=MAX_BYTES + 1)


@pytest.mark.parametrize(
    ("waiting", "free", "chosen"),
    [
        ([SMALL], 0, [0]),
        ([SMALL] * 4, 0, [0, 1, 2, 3]),
        ([SMALL] * 9, 0, [0, 1, 2, 3]),
        ([SMALL] * 4, 1, [0, 1]),
        ([SMALL] * 5, 1, [0, 1, 2]),
        ([SMALL] * 4, 9, [0]),
        ([SMALL, part(language="cpp"), SMALL], 0, [0, 2]),
        ([part(language="cpp"), part(language="cpp")], 0, [0]),
        ([part(mode="calls"), SMALL, part(mode="calls")], 0, [0, 2]),
        ([SMALL, LARGE, SMALL], 0, [0, 2]),
        ([LARGE, SMALL], 0, [0]),
        ([part(tests=MAX_TESTS - 1), SMALL, SMALL], 0, [0, 1]),
        ([part(tests=2 * MAX_TESTS), SMALL], 0, [0]),
    ],
)
async def test_select_batch_groups_compatible_programs_within_the_limits(
    waiting: list[Part], free: int, chosen: list[int]
) -> None:
    assert select_batch(await programs(*waiting), free, 4) == chosen


async def test_select_batch_leaves_programs_marked_alone_by_themselves() -> None:
    assert select_batch(await programs(SMALL, SMALL, alone=[0]), 0, 4) == [0]
    assert select_batch(await programs(SMALL, SMALL, SMALL, alone=[1]), 0, 4) == [0, 2]
    assert select_batch(await programs(SMALL, SMALL), 0, 1) == [0]


@pytest.mark.parametrize(
    ("parts", "free", "max_programs", "runners"),
    [
        ([part(tests=20)], 1, 4, 2),
        ([part(tests=20)], 31, 4, 2),
        ([part(tests=20)], 0, 4, 1),
        ([part(tests=3)], 1, 4, 1),
        ([part(tests=20), part(tests=20)], 1, 4, 1),
        ([part(tests=20)], 1, 1, 1),
    ],
)
def test_a_program_that_finds_the_server_idle_has_two_runners(
    parts: list[Part], free: int, max_programs: int, runners: int
) -> None:
    assert count_runners(parts, free, max_programs) == runners


class Server:
    """Answers each call when it is told to; what it says of a program is named by the program's text."""

    def __init__(self, turns: int = 1, max_programs: int = 4) -> None:
        self.calls: list[tuple[list[str], float]] = []
        self.outcomes: dict[str, BatchAnswer | Exception | None] = {}
        self.gate = asyncio.Event()
        self.broken_off = 0
        self.turns = Slots(turns)
        self.shared = SharedCalls(self.turns, max_programs, self.ask, shared_seconds=2.0)

    async def ask(self, parts: Sequence[Part], budget: float, runners: int) -> list[BatchAnswer | None]:
        names = [one.request.code for one in parts]
        self.calls.append((names, budget))
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.broken_off += 1
            raise
        found = [self.outcomes.get(name, answer(name)) for name in names]
        for outcome in found:
            if isinstance(outcome, Exception):
                raise outcome
        return [outcome for outcome in found if not isinstance(outcome, Exception)]

    async def start(self, *names: str) -> list["asyncio.Task[BatchAnswer | None]"]:
        tasks = [asyncio.create_task(self.shared.answer(part(name))) for name in names]
        await settled()
        return tasks


async def settled() -> None:
    for _ in range(9):
        await asyncio.sleep(0)


def answer(name: str) -> BatchAnswer:
    return BatchAnswer({"of": name})


def named(said: BatchAnswer | None) -> str | None:
    return None if said is None else said.hello["of"]


async def test_waiting_programs_share_one_call_and_each_gets_its_own_answer() -> None:
    server = Server()
    tasks = await server.start("a") + await server.start("b", "c", "d")
    server.gate.set()
    assert [named(said) for said in await asyncio.gather(*tasks)] == ["a", "b", "c", "d"]
    assert server.calls == [(["a"], BUDGET_SECONDS), (["b", "c", "d"], 2.0)]
    await settled()
    assert server.turns.free == 1


async def test_program_with_a_free_turn_is_sent_at_once() -> None:
    server = Server(turns=2)
    await server.start("a")
    assert server.calls == [(["a"], BUDGET_SECONDS)]
    tasks = await server.start("b")
    assert server.calls[1:] == [(["b"], BUDGET_SECONDS)]
    server.gate.set()
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("trouble", [SandboxFailedError("500"), RunRefusedError("422"), NotTheHarnessError("killed")])
async def test_failed_call_gives_no_result_for_shared_programs_and_raises_for_a_single_one(trouble: Exception) -> None:
    server = Server()
    server.outcomes["bad"] = trouble
    tasks = await server.start("a") + await server.start("b", "bad")
    server.gate.set()
    assert [named(said) for said in await asyncio.gather(*tasks)] == ["a", None, None]
    with pytest.raises(type(trouble)):
        await server.shared.answer(part("bad"), again=True)
    assert named(await server.shared.answer(part("b"), again=True)) == "b"


@pytest.mark.parametrize("trouble", [SandboxBusyError("full", 1.0), SandboxUnreachableError("reset")])
async def test_full_or_unreachable_server_raises_for_each_program(trouble: Exception) -> None:
    server = Server()
    server.outcomes["bad"] = trouble
    tasks = await server.start("a") + await server.start("b", "bad")
    server.gate.set()
    assert [type(said) for said in await asyncio.gather(*tasks, return_exceptions=True)] == [
        BatchAnswer, type(trouble), type(trouble)
    ]  # fmt: skip


async def test_program_without_a_result_is_repeated_first_and_alone() -> None:
    server = Server()
    server.outcomes["late"] = None
    tasks = await server.start("a") + await server.start("b", "late")
    server.gate.set()
    assert await tasks[-1] is None
    server.gate.clear()
    del server.outcomes["late"]
    await server.start("c")
    tasks = await server.start("d", "e")
    again = asyncio.create_task(server.shared.answer(part("late"), again=True))
    await asyncio.sleep(0)
    server.gate.set()
    await asyncio.gather(again, *tasks)
    assert [names for names, _ in server.calls[2:]] == [["c"], ["late"], ["d", "e"]]


async def test_shared_call_continues_after_a_cancellation_and_ends_with_its_last_caller() -> None:
    server = Server()
    first, *others = await server.start("a") + await server.start("b", "c", "d")
    others.pop().cancel()
    server.gate.set()
    await first
    server.gate.clear()
    await settled()
    assert server.calls[1] == (["b", "c"], 2.0)
    others[0].cancel()
    await asyncio.sleep(0)
    assert server.broken_off == 0
    others[1].cancel()
    await asyncio.wait(others)
    await settled()
    assert (server.broken_off, server.turns.free) == (1, 1)


async def test_close_cancels_every_waiting_caller() -> None:
    server = Server()
    tasks = await server.start("a", "b") + await server.start("c")
    await server.shared.close()
    await asyncio.wait_for(asyncio.wait(tasks), 5)
    assert all(task.cancelled() for task in tasks)
    assert server.turns.free == 1


def test_capacity_fills_the_running_calls_and_the_next_one() -> None:
    async def ask(parts: Sequence[Part], budget: float, runners: int) -> list[BatchAnswer | None]:
        return []

    assert SharedCalls(Slots(3), 1, ask).capacity == 3
    assert SharedCalls(Slots(3), 4, ask).capacity == 16
