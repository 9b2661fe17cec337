"""Replays that form batches: who shares one, and that nobody shares another's end."""

import asyncio
import contextvars
import json
from collections.abc import Callable

import pytest

from evalrun_executor.api import Limits, RunReply, RunRequest
from evalrun_executor.containment import ContainmentReport
from evalrun_executor.errors import ExecutorLost, RequestRefused, Unusable
from evalrun_judge.function_tests.assertions import ATTEMPTS, MAX_BATCH, ContainedAssertions
from evalrun_judge.function_tests.shared_assertions import MAX_SHARED_BYTES
from evalrun_judge.pool.slot_queue import NoSandboxError
from evalrun_judge.sandboxes import RunRefusedError
from evalrun_judge.sandboxes.fake import echo
from evalrun_runtime.exits import BadInputError


class ScriptedExecutor:
    """Echoes each input once the gate is open; dies of an input that says so."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.requests: list[RunRequest] = []
        self.max_at_once = 0
        self.unusable = ""
        self._at_once = 0

    @property
    def report(self) -> ContainmentReport:
        raise NotImplementedError

    async def start(self) -> None:
        if self.unusable:
            raise Unusable(self.unusable)

    async def run(self, request: RunRequest) -> RunReply:
        self.requests.append(request)
        self._at_once += 1
        self.max_at_once = max(self.max_at_once, self._at_once)
        await self.gate.wait()
        self._at_once -= 1
        if request.limits.memory_mib < 16:
            raise RequestRefused("limits.memory_mib: 16 or more")
        if b"odd" in request.inputs:
            raise LookupError("nobody thought of that")
        if b"kill" in request.inputs:
            raise ExecutorLost("the zygote died")
        if request.inputs[0].startswith(b'{"shared"'):
            return echo(RunRequest("python", "", [self._shared(request.inputs[0])]))
        return echo(request)

    @staticmethod
    def _shared(text: bytes) -> bytes:
        """Answers as the harness does; `alone` wants to be, and the process dies of `die`."""
        head, _, rest = text.partition(b"\n")
        said = b""
        for size in json.loads(head)["shared"]:
            one, rest = rest[:size], rest[size:]
            if one == b"die":
                break
            said += b"alone\n" if one == b"alone" else one + b"\nend\n"
        return said

    async def close(self) -> None:
        pass


def begin(
    assertions: ContainedAssertions,
    names: list[bytes],
    limits: Limits | None = None,
    on_slot: Callable[[], None] = lambda: None,
    *,
    shareable: bool = False,
) -> list[asyncio.Task[bytes]]:
    async def one(name: bytes) -> bytes:
        return (await assertions.run(name, limits or Limits(), on_slot, shareable=shareable)).stdout

    return [asyncio.create_task(one(name)) for name in names]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_waiting_replays_share_a_request_and_each_gets_its_own_answer() -> None:
    executor = ScriptedExecutor()
    assertions = ContainedAssertions(executor, slots=2)
    names = [b"%d" % number for number in range(50)]
    tasks = begin(assertions, names)
    await settle()
    executor.gate.set()
    assert await asyncio.gather(*tasks) == names
    assert executor.max_at_once == 2
    assert max(len(request.inputs) for request in executor.requests) <= MAX_BATCH
    assert len(executor.requests) < 50 / 4
    assert all(request.mode == "assertions" for request in executor.requests)


async def test_single_replay_is_sent_at_once() -> None:
    executor = ScriptedExecutor()
    executor.gate.set()
    assert await begin(ContainedAssertions(executor, slots=2), [b"1"])[0] == b"1"


async def test_replays_of_other_limits_form_another_batch() -> None:
    executor = ScriptedExecutor()
    assertions = ContainedAssertions(executor, slots=1)
    tasks = begin(assertions, [b"a", b"b"]) + begin(assertions, [b"c", b"d"], Limits(time_seconds=1.0))
    executor.gate.set()
    await asyncio.gather(*tasks)
    assert [request.limits.time_seconds for request in executor.requests] == [10.0, 1.0]


async def test_replay_that_kills_the_child_fails_without_the_others() -> None:
    executor = ScriptedExecutor()
    assertions = ContainedAssertions(executor, slots=1)
    tasks = begin(assertions, [b"1", b"kill", b"2"])
    executor.gate.set()
    first, killed, second = await asyncio.gather(*tasks, return_exceptions=True)
    assert (first, second) == (b"1", b"2")
    assert isinstance(killed, NoSandboxError)


async def test_only_shareable_replays_share_a_process() -> None:
    executor = ScriptedExecutor()
    assertions = ContainedAssertions(executor, slots=1)
    tasks = begin(assertions, [b"1", b"2"], shareable=True) + begin(assertions, [b"3"])
    executor.gate.set()
    assert await asyncio.gather(*tasks) == [b"1\n", b"2\n", b"3"]
    assert [request.inputs for request in executor.requests] == [[b'{"shared": [1, 1]}\n12'], [b"3"]]


async def test_replay_without_an_answer_from_a_shared_process_is_run_alone() -> None:
    executor = ScriptedExecutor()
    assertions = ContainedAssertions(executor, slots=1)
    tasks = begin(assertions, [b"1", b"alone", b"2", b"die", b"3"], shareable=True)
    executor.gate.set()
    assert await asyncio.gather(*tasks) == [b"1\n", b"alone", b"2\n", b"die", b"3"]
    assert executor.requests[1].inputs == [b"alone", b"die", b"3"]


async def test_large_replay_does_not_share_a_process() -> None:
    executor = ScriptedExecutor()
    large = b"x" * (MAX_SHARED_BYTES + 1)
    tasks = begin(ContainedAssertions(executor, slots=1), [large, large], shareable=True)
    executor.gate.set()
    assert await asyncio.gather(*tasks) == [large, large]


async def test_replays_are_collected_into_batches_while_programs_wait_for_a_sandbox() -> None:
    executor = ScriptedExecutor()
    executor.gate.set()
    crowd = [True]
    assertions = ContainedAssertions(executor, slots=2, crowded=lambda: bool(crowd))
    tasks = begin(assertions, [b"%d" % number for number in range(MAX_BATCH - 1)])
    await settle()
    assert executor.requests == []
    tasks += begin(assertions, [b"last"])
    await asyncio.gather(*tasks)
    assert [len(request.inputs) for request in executor.requests] == [MAX_BATCH]
    tasks = begin(assertions, [b"early"])
    await settle()
    crowd.clear()
    tasks += begin(assertions, [b"late"])
    await settle()
    assert all(task.done() for task in tasks)


async def test_single_replay_is_sent_after_a_while_despite_waiting_programs() -> None:
    executor = ScriptedExecutor()
    executor.gate.set()
    assertions = ContainedAssertions(executor, slots=2, crowded=lambda: True)
    assert await begin(assertions, [b"1"])[0] == b"1"


async def test_a_child_that_dies_once_is_asked_again() -> None:
    executor = ScriptedExecutor()
    executor.gate.set()
    with pytest.raises(NoSandboxError, match="the zygote died"):
        await begin(ContainedAssertions(executor, slots=1), [b"kill"])[0]
    assert len(executor.requests) == ATTEMPTS


async def test_cancelled_replay_is_not_run_and_does_not_delay_others() -> None:
    executor = ScriptedExecutor()
    assertions = ContainedAssertions(executor, slots=1)
    (running,) = begin(assertions, [b"running"])
    await settle()
    gone, last = begin(assertions, [b"gone", b"last"])
    await settle()
    gone.cancel()
    running.cancel()
    executor.gate.set()
    assert await last == b"last"
    assert [request.inputs for request in executor.requests] == [[b"running"], [b"last"]]


async def test_a_machine_that_cannot_contain_is_named_to_the_user() -> None:
    executor = ScriptedExecutor()
    executor.unusable = "Landlock is missing"
    with pytest.raises(BadInputError, match="Landlock is missing"):
        await ContainedAssertions(executor, slots=1).start()


async def test_close_cancels_running_replays() -> None:
    assertions = ContainedAssertions(ScriptedExecutor(), slots=1)
    tasks = begin(assertions, [b"1"])
    await settle()
    await assertions.close()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]


async def test_each_caller_is_notified_of_its_slot_in_its_own_context() -> None:
    """Where spans of the queue belong to the trace of the request that waited."""
    trace = contextvars.ContextVar("trace", default="")
    executor = ScriptedExecutor()
    assertions = ContainedAssertions(executor, 1)
    told: list[tuple[str, str]] = []

    async def one(name: str) -> None:
        trace.set(name)
        await assertions.run(name.encode(), Limits(), lambda: told.append((name, trace.get())))

    tasks = [asyncio.create_task(one(name)) for name in ("a", "b", "c")]
    await settle()
    executor.gate.set()
    await asyncio.gather(*tasks)
    assert told == [(name, name) for name in ("a", "b", "c")]


async def test_replay_added_as_the_last_worker_ends_is_run() -> None:
    executor = ScriptedExecutor()
    executor.gate.set()
    assertions = ContainedAssertions(executor, 1)

    async def one_after_the_other() -> list[bytes]:
        return [(await assertions.run(name, Limits(), lambda: None)).stdout for name in (b"a", b"b", b"c")]

    async with asyncio.timeout(5):
        assert await one_after_the_other() == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("name", "memory_mib", "error"),
    [(b"a", 8, RunRefusedError), (b"odd", 64, LookupError), (b"kill", 64, NoSandboxError)],
)
async def test_failed_replay_raises_and_the_next_one_is_run(
    name: bytes, memory_mib: int, error: type[Exception]
) -> None:
    executor = ScriptedExecutor()
    executor.gate.set()
    assertions = ContainedAssertions(executor, 1)
    async with asyncio.timeout(5):
        with pytest.raises(error):
            await assertions.run(name, Limits(memory_mib=memory_mib), lambda: None)
        assert (await assertions.run(b"b", Limits(), lambda: None)).stdout == b"b"
