"""Which sandbox runs what, and what happens when one fails: all time and randomness scripted."""

import asyncio
import random
import traceback
from collections import Counter

import pytest
from builders.judge.gateway import Time, make_pool

from evalrun_executor.api import CompileResult, ProgramRun, RunReply, RunRequest
from evalrun_judge.pool.retries import RetryPolicy
from evalrun_judge.pool.sandbox_endpoint import SandboxEndpoint, pick
from evalrun_judge.pool.slot_queue import NoSandboxError
from evalrun_judge.sandboxes import (
    Backend,
    RunRefusedError,
    SandboxBusyError,
    SandboxFailedError,
    SandboxTimeoutError,
    SandboxUnreachableError,
)
from evalrun_judge.sandboxes.fake import FakeSandbox, echo, ended
from evalrun_registry.languages import LANGUAGES

REQUEST = RunRequest(language="python", code="print(input())", inputs=[b"1"])

INFRA_FAULTS = [
    SandboxUnreachableError("connection reset"),
    SandboxTimeoutError("no answer"),
    SandboxFailedError("status 500"),
    SandboxFailedError("truncated"),
    SandboxBusyError("full", 0.0),
]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("fault", INFRA_FAULTS, ids=lambda fault: type(fault).__name__)
async def test_an_infra_fault_is_tried_again_and_never_shows(fault: Exception) -> None:
    broken, good = FakeSandbox(faults=[fault]), FakeSandbox()
    retries: Counter[str] = Counter()
    time = Time()
    pool = make_pool([broken, good], time, on_retry=lambda reason: retries.update([reason]))
    pool.start()
    replies = [await pool.run(REQUEST) for _ in range(4)]
    assert all(reply.runs == [ended(b"1")] for reply in replies)
    assert retries.total() == 1
    await pool.close()


async def test_pool_run_reaches_sandbox_in_four_frames() -> None:
    def list_frames(request: RunRequest) -> RunReply:
        frames.extend(name for module, name in _stack() if module.startswith("evalrun_judge.pool."))
        return echo(request)

    frames: list[str] = []
    pool = make_pool([FakeSandbox(list_frames)], Time())
    pool.start()
    await pool.run(REQUEST)
    assert frames == ["run", "_serve", "answer", "call"]
    await pool.close()


def _stack() -> list[tuple[str, str]]:
    """Return the module and name of each function that runs now, outermost first."""
    frames = [frame for frame, _ in traceback.walk_stack(None)]
    return [(str(frame.f_globals["__name__"]), frame.f_code.co_name) for frame in reversed(frames)]


async def test_requests_in_flight_stay_within_the_slots_of_each_sandbox() -> None:
    sandboxes = [FakeSandbox(slots=3), FakeSandbox(slots=1)]
    pool = make_pool(sandboxes, Time())
    pool.start()
    await asyncio.gather(*(pool.run(REQUEST) for _ in range(50)))
    assert [sandbox.max_in_flight for sandbox in sandboxes] == [3, 1]
    assert pool.in_flight == 0
    await pool.close()


async def test_the_slowest_machine_beside_a_doubtful_run_is_kept() -> None:
    slowness = iter([0.0, 2.5, 1.5])

    def slowed(_: RunRequest) -> RunReply:
        return RunReply(CompileResult("ok"), [ProgramRun("exited", 0, slowness=next(slowness))], "full")

    pool = make_pool([FakeSandbox(slowed)], Time())
    pool.start()
    assert [(await pool.run(REQUEST), pool.slowness)[1] for _ in range(3)] == [0.0, 2.5, 2.5]
    await pool.close()


async def test_retry_is_sent_to_another_sandbox() -> None:
    broken = FakeSandbox(faults=[SandboxFailedError("500")] * 10)
    good = FakeSandbox()
    pool = make_pool([broken, good], Time())
    pool.start()
    for _ in range(10):
        await pool.run(REQUEST)
    assert len(broken.requests) <= 10
    assert len(good.requests) == 10  # each program was answered there once
    await pool.close()


async def test_failing_sandbox_is_left_out_and_serves_all_programs_after_its_return() -> None:
    time = Time()
    flaky = FakeSandbox(slots=4, faults=[SandboxFailedError("500")] * 3)
    pool = make_pool([flaky], time, retries=RetryPolicy(attempts=5))
    pool.start()
    await pool.run(REQUEST)
    flaky.max_in_flight = 0
    await asyncio.gather(*(pool.run(REQUEST) for _ in range(20)))
    assert len(flaky.requests) == 24
    assert flaky.max_in_flight <= 4
    await pool.close()


async def test_attempts_are_bounded_and_the_last_error_is_named() -> None:
    pool = make_pool(
        [FakeSandbox(faults=[SandboxFailedError("status 503")] * 9)], Time(), retries=RetryPolicy(attempts=3)
    )
    pool.start()
    with pytest.raises(NoSandboxError, match=r"3 calls failed.*status 503"):
        await pool.run(REQUEST)
    await pool.close()


async def test_a_full_sandbox_is_no_failure_however_often() -> None:
    busy = FakeSandbox(faults=[SandboxBusyError("full", 0.0)] * 50)
    pool = make_pool([busy], Time(), retries=RetryPolicy(attempts=2))
    pool.start()
    assert (await pool.run(REQUEST)).runs == [ended(b"1")]
    await pool.close()


async def test_a_refused_request_is_not_tried_again() -> None:
    sandbox = FakeSandbox(faults=[RunRefusedError("unknown mode")])
    pool = make_pool([sandbox], Time())
    pool.start()
    with pytest.raises(RunRefusedError):
        await pool.run(REQUEST)
    assert len(sandbox.requests) == 1
    assert pool.in_flight == 0
    await pool.close()


async def test_pool_without_an_answer_within_the_budget_raises_no_sandbox() -> None:
    down = SandboxUnreachableError("connection refused")
    time = Time()
    pool = make_pool([FakeSandbox(down=down)], time, retries=RetryPolicy(budget_seconds=30))
    assert pool.describe() is None
    pool.start()
    with pytest.raises(NoSandboxError, match="connection refused"):
        await pool.run(REQUEST)
    assert 30 <= time.now - 1000 < 60
    with pytest.raises(NoSandboxError):  # known by now: no need to wait again
        await pool.run(REQUEST)
    await pool.close()


async def test_a_sandbox_that_comes_back_is_used_again() -> None:
    sandbox = FakeSandbox(down=SandboxUnreachableError("connection refused"))
    pool = make_pool([sandbox], Time(), retries=RetryPolicy(budget_seconds=1e9))
    pool.start()
    waiting = asyncio.create_task(pool.run(REQUEST))
    await settle()
    assert not waiting.done()
    sandbox.down = None
    assert (await waiting).runs == [ended(b"1")]
    info = pool.describe()
    assert info is not None
    assert (info.slots, info.level, info.languages) == (2, "full", (*LANGUAGES,))
    await pool.close()


async def test_sandbox_that_refuses_to_describe_itself_is_asked_again() -> None:
    """As a stock server may, which is found out by programs."""

    class Refusing(FakeSandbox):
        refusals = 3

        async def describe(self) -> Backend:
            if self.refusals:
                self.refusals -= 1
                raise RunRefusedError("status 422")
            return await super().describe()

    pool = make_pool([sandbox := Refusing()], Time(), retries=RetryPolicy(budget_seconds=1e9))
    pool.start()
    assert (await pool.run(REQUEST)).runs == [ended(b"1")]
    assert sandbox.refusals == 0
    await pool.close()


async def test_a_sandbox_below_the_required_level_is_not_used() -> None:
    weak, strong = FakeSandbox(level="limits"), FakeSandbox(level="full")
    pool = make_pool([weak, strong], Time())
    pool.start()
    for _ in range(5):
        await pool.run(REQUEST)
    assert (len(weak.requests), len(strong.requests)) == (0, 5)
    await pool.close()


async def test_an_answer_from_below_the_required_level_does_not_count() -> None:
    sandbox = FakeSandbox(lambda request: echo(request, "none"))
    pool = make_pool([sandbox], Time(), retries=RetryPolicy(attempts=2))
    pool.start()
    with pytest.raises(NoSandboxError, match="'none', below 'full'"):
        await pool.run(REQUEST)
    await pool.close()


async def test_a_cancelled_caller_gives_its_place_back() -> None:
    release = asyncio.Event()
    cancelled = []

    async def slow(request: RunRequest) -> RunReply:
        try:
            await release.wait()
        except asyncio.CancelledError:
            cancelled.append(request)
            raise
        return echo(request)

    pool = make_pool([FakeSandbox(slow, slots=1)], Time())
    pool.start()
    running, waiting, third = (asyncio.create_task(pool.run(REQUEST)) for _ in range(3))
    await settle()
    running.cancel()  # in the sandbox
    waiting.cancel()  # in the queue
    release.set()
    assert (await third).runs == [ended(b"1")]
    assert len(cancelled) == 1
    assert pool.in_flight == 0
    await pool.close()


async def test_slot_given_to_a_caller_cancelled_in_the_same_turn_is_returned() -> None:
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[RunReply]] = []

    def on_call(_: float) -> None:
        """Comes before the slot is free: the second task is cancelled after it was given it, before it knows."""
        loop.call_soon(tasks[1].cancel)

    pool = make_pool([FakeSandbox(slots=1)], Time(), on_call=on_call)
    pool.start()
    tasks += [asyncio.create_task(pool.run(REQUEST)) for _ in range(3)]
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends] == [RunReply, asyncio.CancelledError, RunReply]
    assert pool.in_flight == 0
    await pool.close()


async def test_request_of_a_begun_submission_is_served_first() -> None:
    release = asyncio.Event()
    order: list[bytes] = []

    async def slow(request: RunRequest) -> RunReply:
        await release.wait()
        order.append(request.inputs[0])
        return echo(request)

    def request(name: bytes) -> RunRequest:
        return RunRequest(language="python", code="", inputs=[name])

    pool = make_pool([FakeSandbox(slow, slots=1)], Time())
    pool.start()
    tasks = [asyncio.create_task(pool.run(request(b"first")))]
    await settle()
    tasks.append(asyncio.create_task(pool.run(request(b"new"))))
    await settle()
    tasks.append(asyncio.create_task(pool.run(request(b"begun"), begun=True)))
    await settle()
    release.set()
    await asyncio.gather(*tasks)
    assert order == [b"first", b"begun", b"new"]
    await pool.close()


# free places of the endpoints, the one to avoid -> the one chosen
CHOICES: list[tuple[list[tuple[int, int]], int | None, int | None]] = [
    ([(0, 2), (1, 2)], None, 0),  # (in flight, allowed)
    ([(1, 2), (1, 8)], None, 1),  # by share, not by count
    ([(2, 2), (7, 8)], None, 1),
    ([(2, 2), (8, 8)], None, None),
    ([(0, 2), (1, 2)], 0, 1),
    ([(0, 2), (2, 2)], 0, 0),  # the only one with room
]


@pytest.mark.parametrize(("loads", "avoid", "chosen"), CHOICES)
def test_pick_takes_the_less_loaded_sandbox(
    loads: list[tuple[int, int]], avoid: int | None, chosen: int | None
) -> None:
    endpoints = [
        SandboxEndpoint(FakeSandbox(), usable=True, in_flight=in_flight, allowed=allowed)
        for in_flight, allowed in loads
    ]
    for seed in range(5):
        found = pick(endpoints, None if avoid is None else endpoints[avoid], random.Random(seed))
        assert found is (None if chosen is None else endpoints[chosen])


# relapses of the one that failed it, whether the other is usable -> the one chosen
AVOIDED = [(0, True, 0), (1, True, None), (1, False, 0)]


@pytest.mark.parametrize(("relapses", "other_usable", "chosen"), AVOIDED)
def test_failing_sandbox_is_not_picked_for_a_retry_while_another_is_usable(
    relapses: int, other_usable: bool, chosen: int | None
) -> None:
    failed = SandboxEndpoint(FakeSandbox(), usable=True, allowed=1, relapses=relapses)
    full = SandboxEndpoint(FakeSandbox(), usable=other_usable, allowed=1, in_flight=1)
    found = pick([failed, full], failed, random.Random(1))
    assert found is (None if chosen is None else failed)
    assert pick([failed, full], None, random.Random(1)) is failed  # who has not been there tries it


def test_pick_takes_the_less_loaded_of_two_random_sandboxes() -> None:
    endpoints = [SandboxEndpoint(FakeSandbox(), usable=True, in_flight=load, allowed=9) for load in (0, 1, 2, 8)]
    randomness = random.Random(1)
    picked = Counter(endpoints.index(pick(endpoints, None, randomness) or endpoints[3]) for _ in range(600))
    assert picked[3] == 0  # never the most loaded
    assert picked[0] == pytest.approx(300, abs=60)  # in half of the pairs
    assert picked[1] == pytest.approx(200, abs=60)


async def test_returning_sandbox_doubles_its_slots_after_each_success() -> None:
    sandbox = FakeSandbox(slots=8)
    endpoint = SandboxEndpoint(sandbox)
    endpoint.admit(await sandbox.describe())
    assert endpoint.free == 8  # all of them at the start
    endpoint.record_failure(SandboxUnreachableError("reset"))
    assert endpoint.free == 0
    endpoint.admit(await sandbox.describe())
    allowed = []
    for _ in range(5):
        allowed.append(endpoint.free)
        endpoint.record_success()
    assert allowed == [1, 2, 4, 8, 8]


async def test_the_first_program_after_its_return_is_a_trial() -> None:
    sandbox = FakeSandbox(slots=8)
    endpoint = SandboxEndpoint(sandbox)
    endpoint.admit(await sandbox.describe())
    usable = []
    for _ in range(3):  # three in a row at the start
        endpoint.record_failure(SandboxFailedError("500"))
        usable.append(endpoint.usable)
    endpoint.admit(await sandbox.describe())
    endpoint.record_failure(SandboxFailedError("500"))  # one is enough
    usable.append(endpoint.usable)
    endpoint.admit(await sandbox.describe())
    endpoint.record_success()
    endpoint.record_failure(SandboxFailedError("500"))
    usable.append(endpoint.usable)
    assert usable == [True, True, False, False, True]


async def test_sandbox_that_fails_after_each_admission_rests_longer_each_time() -> None:
    sandbox = FakeSandbox()
    endpoint = SandboxEndpoint(sandbox)
    endpoint.admit(await sandbox.describe())
    rests = []
    for _ in range(4):
        endpoint.record_failure(SandboxUnreachableError("reset"))
        rests.append(endpoint.rest_seconds)
        endpoint.admit(await sandbox.describe())
    assert rests == [0.0, 0.1, 0.2, 0.4]
    endpoint.record_success()
    endpoint.record_failure(SandboxUnreachableError("reset"))
    assert endpoint.rest_seconds == 0.0
