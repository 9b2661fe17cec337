"""What all programs together may call again: the policy by itself, then a pool in virtual time that needs it."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence

import pytest
from builders.judge.gateway import Time, make_pool
from builders.virtual_time import run_virtually

from evalrun_executor.api import RunReply, RunRequest
from evalrun_judge.pool.hedge_policy import HedgePolicy
from evalrun_judge.pool.pool import SandboxPool
from evalrun_judge.pool.retries import RetryBudget, RetryPolicy
from evalrun_judge.pool.slot_queue import NoSandboxError
from evalrun_judge.sandboxes import SandboxFailedError, SandboxUnreachableError
from evalrun_judge.sandboxes.fake import FakeSandbox, echo

REQUEST = RunRequest(language="python", code="print(input())", inputs=[b"1"])
POLICY = RetryPolicy(ratio=0.2, min_retries=10, window_seconds=10)
UNBOUNDED = RetryPolicy(ratio=1e9)


def granted(budget: RetryBudget, now: float, *, running: int = 0, max_slots: int = 0) -> int:
    count = 0
    while count < 1000 and budget.retry(now, running=running, max_slots=max_slots):
        count += 1
    return count


# first calls, calls running, slots of the largest sandbox -> retries in one window, and hedges
BOUNDS = [
    (0, 0, 0, 10, 10),  # the floor
    (100, 0, 0, 30, 30),  # and a fifth of the first calls
    (0, 100, 0, 30, 30),  # or of those that run, however long ago they began
    (100, 50, 0, 30, 30),  # not of both
    (100, 0, 64, 94, 30),  # one lost sandbox's programs, for retries only
    (4, 0, 0, 10, 10),  # whole calls only
]


@pytest.mark.parametrize(("first", "running", "max_slots", "retries", "hedges"), BOUNDS)
def test_retry_budget_bounds_retries_and_hedges(
    first: int, running: int, max_slots: int, retries: int, hedges: int
) -> None:
    budget, other = RetryBudget(POLICY), RetryBudget(POLICY)
    for _ in range(first):
        budget.began(5.0)
        other.began(5.0)
    assert granted(budget, 5.0, running=running, max_slots=max_slots) == retries
    assert sum(other.hedge(5.0, running=running) for _ in range(1000)) == hedges


def test_retries_and_hedges_share_the_budget() -> None:
    budget = RetryBudget(POLICY)
    assert sum(budget.hedge(1.0, running=0) for _ in range(6)) == 6
    assert granted(budget, 1.0) == 4
    assert not budget.hedge(1.0, running=0)
    assert budget.account(1.0) == "10 calls made again for 0 first ones in the last 10 s"


# (seconds, what happens); first: a program's first call, again: a retry that is asked for -> those granted
SLIDING = [
    ([(0, "again")] * 11, 10),
    ([(0, "again")] * 10 + [(9.9, "again")], 10),  # still within the window
    ([(0, "again")] * 10 + [(10.0, "again")], 11),  # it slid on
    ([(0, "again")] * 5 + [(5, "again")] * 6 + [(10, "again")] * 6, 15),  # by one bucket at a time
    ([(0, "first")] * 50 + [(9, "again")] * 30, 20),
    ([(0, "first")] * 50 + [(10, "again")] * 30, 10),  # first calls of before it no longer count
    ([(0, "again")] * 10 + [(1e6, "again")] * 11, 20),
]


@pytest.mark.parametrize(("script", "wanted"), SLIDING)
def test_retry_budget_counts_calls_of_the_sliding_window_only(script: list[tuple[float, str]], wanted: int) -> None:
    budget = RetryBudget(POLICY)
    count = 0
    for now, what in script:
        if what == "first":
            budget.began(now)
        else:
            count += budget.retry(now, running=0, max_slots=0)
    assert count == wanted


# seconds of the calls that failed, and of the last that was answered well -> retries at 100 s
OUTAGES = [
    ([], None, 18),
    ([41], None, 18),
    ([40], None, 1),
    ([10, 99], None, 1),
    ([10, 99], 50, 18),
    ([10], 9, 1),
]


@pytest.mark.parametrize(("failed", "answered", "wanted"), OUTAGES)
def test_retry_budget_has_no_floor_during_an_outage(failed: list[float], answered: float | None, wanted: int) -> None:
    budget = RetryBudget(POLICY)
    for now in sorted([*failed, *([] if answered is None else [answered])]):
        if now == answered:
            budget.record_success()
        else:
            budget.record_failure(now)
    assert granted(budget, 100, max_slots=8) == wanted


@pytest.mark.parametrize(("failures", "chance", "seconds"), [(1, 0.0, 0.05), (1, 0.999999, 0.075), (3, 0.0, 0.2)])
def test_retry_delay_doubles_with_jitter(failures: int, chance: float, seconds: float) -> None:
    assert RetryPolicy().delay(failures, chance) == pytest.approx(seconds, abs=1e-6)


class Fragile(FakeSandbox):
    """Takes a while for a program; once it is broken, every program in it fails, and each that comes then."""

    def __init__(self, slots: int, seconds: float = 1.0) -> None:
        super().__init__(self._work, slots=slots)
        self.seconds = seconds
        self._error: Exception | None = None
        self._breaking = asyncio.Event()

    async def _work(self, request: RunRequest) -> RunReply:
        if self._error is None:
            try:
                async with asyncio.timeout(self.seconds):
                    await self._breaking.wait()
            except TimeoutError:
                return echo(request)
        else:
            await asyncio.sleep(0.01)
        raise self._error or LookupError("it was broken without an error")

    def break_down(self, error: Exception, *, gone: bool = False) -> None:
        """Fail from now on; one that is `gone` does not say either what it is."""
        self._error = error
        self.down = error if gone else None
        self._breaking.set()

    def mend(self) -> None:
        self._error = self.down = None
        self._breaking.clear()


async def pool_over(*sandboxes: FakeSandbox, retries: RetryPolicy, hedging: HedgePolicy | None = None) -> SandboxPool:
    clock = asyncio.get_running_loop().time
    pool = make_pool(sandboxes, Time(), clock=clock, sleep=asyncio.sleep, retries=retries, hedging=hedging)
    pool.start()
    while pool.slots < sum(sandbox.info.slots for sandbox in sandboxes):  # noqa: ASYNC110 - virtual time: costs nothing
        await asyncio.sleep(0.001)
    return pool


def calls_of(sandboxes: Sequence[FakeSandbox]) -> int:
    return sum(len(sandbox.requests) for sandbox in sandboxes)


async def outage(retries: RetryPolicy) -> float:
    """Every sandbox says what it is and fails whatever it is given; gives calls for each program."""
    sandboxes = [Fragile(4) for _ in range(4)]
    pool = await pool_over(*sandboxes, retries=retries)
    for sandbox in sandboxes:
        sandbox.break_down(SandboxFailedError("status 500"))
    running = []
    for _ in range(500):
        running.append(asyncio.create_task(pool.run(REQUEST)))
        await asyncio.sleep(0.1)
    await asyncio.wait(running)
    assert {type(task.exception()) for task in running} == {NoSandboxError}
    reasons = Counter(str(task.exception()).partition(" (")[0] for task in running)
    assert retries is UNBOUNDED or reasons["the retry budget is spent"] > 0.8 * len(running)
    await pool.close()
    return calls_of(sandboxes) / len(running)


def test_a_total_outage_does_not_multiply_the_load() -> None:
    assert run_virtually(outage(RetryPolicy())) < 1.6  # a fifth, the first minute, and one each 10 s
    assert run_virtually(outage(UNBOUNDED)) > 4.5


async def brownout(retries: RetryPolicy) -> float:
    """Every sandbox fails every other program, which ejects none."""
    sandboxes = [FakeSandbox(slots=4) for _ in range(4)]
    for sandbox in sandboxes:
        turns = itertools.cycle([True, False])

        async def work(request: RunRequest, turns: "itertools.cycle[bool]" = turns) -> RunReply:
            await asyncio.sleep(0.1)
            if next(turns):
                raise SandboxFailedError("status 500")
            return echo(request)

        sandbox.behaviour = work
    pool = await pool_over(*sandboxes, retries=retries)
    running = []
    for _ in range(500):
        running.append(asyncio.create_task(pool.run(REQUEST)))
        await asyncio.sleep(0.02)
    ends = await asyncio.gather(*running, return_exceptions=True)
    assert {type(end) for end in ends} <= {RunReply, NoSandboxError}
    await pool.close()
    return calls_of(sandboxes) / len(running)


def test_where_much_fails_everywhere_the_ratio_holds() -> None:
    assert run_virtually(brownout(RetryPolicy())) < 1.25
    assert run_virtually(brownout(UNBOUNDED)) > 1.8


# sandboxes, slots, seconds a program; the bad one breaks with
SINGLE_FAILURES = [
    (2, 16, 5.0, SandboxUnreachableError("connection reset"), True),
    (2, 16, 5.0, SandboxFailedError("status 500"), False),
    (4, 2, 1.0, SandboxFailedError("status 500"), False),
    (2, 4, 30.0, SandboxFailedError("status 500"), False),  # it fails quicker than the other one answers
    (2, 1, 45.0, SandboxUnreachableError("connection reset"), False),
    (8, 16, 0.2, SandboxUnreachableError("connection reset"), False),
]


@pytest.mark.parametrize(("count", "slots", "seconds", "error", "gone"), SINGLE_FAILURES)
def test_all_work_of_a_single_failing_sandbox_is_repeated(
    count: int, slots: int, seconds: float, error: Exception, gone: bool
) -> None:
    async def scene() -> None:
        bad, *_ = sandboxes = [Fragile(slots, seconds) for _ in range(count)]
        pool = await pool_over(*sandboxes, retries=RetryPolicy(), hedging=HedgePolicy())
        running = [asyncio.create_task(pool.run(REQUEST)) for _ in range(8 * count * slots)]
        await asyncio.sleep(seconds / 2)
        bad.break_down(error, gone=gone)
        replies = await asyncio.gather(*running)
        assert all(reply.runs[0].stdout == b"1" for reply in replies)
        assert gone or len(bad.requests) > slots  # it was tried again, with one program at a time
        assert calls_of(sandboxes) <= 2 * len(running)  # none failed in it twice
        await pool.close()

    run_virtually(scene())


def test_programs_complete_when_the_only_sandbox_fails_and_returns() -> None:
    async def scene() -> None:
        sandbox = Fragile(16, 60.0)
        pool = await pool_over(sandbox, retries=RetryPolicy())
        running = [asyncio.create_task(pool.run(REQUEST)) for _ in range(40)]
        for _ in range(3):
            await asyncio.sleep(90)
            sandbox.break_down(SandboxUnreachableError("connection reset"), gone=True)
            await asyncio.sleep(10)
            sandbox.mend()
        assert len(await asyncio.gather(*running)) == 40
        await pool.close()

    run_virtually(scene())


def test_sandbox_that_always_fails_takes_no_slot_of_another() -> None:
    """Those that it failed wait for another one; who has not been there yet tries it."""

    async def scene() -> None:
        bad, good = Fragile(1, 1.0), Fragile(1, 200.0)
        pool = await pool_over(bad, good, retries=RetryPolicy())
        bad.break_down(SandboxFailedError("status 500"))
        running = [asyncio.create_task(pool.run(REQUEST)) for _ in range(4)]
        await asyncio.sleep(20)  # each but the one in the good sandbox has failed in the bad one by now
        bad.mend()
        newcomer = asyncio.create_task(pool.run(REQUEST))
        await asyncio.sleep(10)
        assert newcomer.done()
        assert (await newcomer).runs[0].stdout == b"1"
        await asyncio.gather(*running)
        assert asyncio.get_running_loop().time() < 250  # it answered well: those that it had failed go there too
        await pool.close()

    run_virtually(scene())


def test_no_hedge_is_made_on_a_spent_budget() -> None:
    async def scene(retries: RetryPolicy) -> int:
        sandboxes = [Fragile(4, 1.0) for _ in range(2)]
        pool = await pool_over(*sandboxes, retries=retries, hedging=HedgePolicy())
        await asyncio.gather(*(pool.run(REQUEST) for _ in range(40)))
        for sandbox in sandboxes:
            sandbox.seconds = 60
        await asyncio.gather(*(pool.run(REQUEST) for _ in range(4)))
        await pool.close()
        return calls_of(sandboxes) - 44

    assert run_virtually(scene(RetryPolicy())) > 0
    assert run_virtually(scene(RetryPolicy(ratio=0.0, min_retries=0))) == 0
