"""The verdict cache: what a verdict depends on, what is stored, who shares a judging, how much memory it takes."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from builders.judge.gateway import NoAssertions, Time, make_judge, make_pool, stdio_request
from msgspec import structs

from evalrun_executor.api import CompileResult, ProgramRun, RunReply, RunRequest
from evalrun_judge.cache.verdict_cache import ENTRY_BYTES, Judged, MemoryStore, StoreError, VerdictCache, is_stable
from evalrun_judge.cache.verdict_key import JudgeIdentity, verdict_key
from evalrun_judge.extraction import SubmissionMode
from evalrun_judge.families.family import Runners
from evalrun_judge.families.registry import build_families
from evalrun_judge.metrics import CacheResult
from evalrun_judge.pool.info import PoolInfo
from evalrun_judge.pool.retries import RetryPolicy
from evalrun_judge.pool.slot_queue import NoSandboxError
from evalrun_judge.sandboxes import SandboxFailedError
from evalrun_judge.sandboxes.fake import FakeSandbox, echo, ended, reply
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import (
    AssertTests,
    CheckerProgram,
    CheckTest,
    JudgeRequest,
    StdioTest,
    StdioTests,
    Submission,
    extract_program,
)
from evalrun_judge.verdict import TestRecord
from evalrun_registry.comparators import Comparator
from evalrun_registry.limits import TestLimits

IDENTITY = JudgeIdentity("1.0", "sandbox@sha256:1")
INFO = PoolInfo("evalrun", "full", 4, ("python", "c", "cpp"), "3.11.0", "0.1.0")
STDIO = stdio_request(("1\n", "1\n"), text="print(input())")
CHECK = JudgeRequest(Submission("def f(): return 1"), CheckTest("", "def check(f): assert f() == 1", "f"))
ASSERTS = JudgeRequest(Submission("def f(): return 1"), AssertTests(["assert f() == 1"], "", "f"))


def key_of(request: JudgeRequest, identity: JudgeIdentity = IDENTITY, info: PoolInfo = INFO) -> bytes:
    extraction = extract_program(request.submission)
    family = build_families(Runners(make_pool([], Time()), NoAssertions())).find_family(request.tests)
    depends = family.key(family.plan(request, extraction), request)
    return verdict_key(depends, request, identity, info, must_compile=extraction.must_compile)


def cases_of(*cases: tuple[str, str]) -> StdioTests:
    return StdioTests([StdioTest(data, wanted) for data, wanted in cases])


OTHERS = {
    "another program": structs.replace(STDIO, submission=Submission("print(input() )")),
    "another language": structs.replace(STDIO, submission=Submission("print(input())", language="c")),
    "code that need not compile": structs.replace(
        STDIO, submission=Submission("print(input())", mode=SubmissionMode.STANDALONE)
    ),
    "another input": structs.replace(STDIO, tests=cases_of(("2\n", "1\n"))),
    "another expected output": structs.replace(STDIO, tests=cases_of(("1\n", "2\n"))),
    "input and output cut elsewhere": structs.replace(STDIO, tests=cases_of(("1", "\n1\n"))),
    "one more test": structs.replace(STDIO, tests=cases_of(("1\n", "1\n"), ("1\n", "1\n"))),
    "another time limit": structs.replace(STDIO, limits=TestLimits(time_seconds=9)),
    "another memory limit": structs.replace(STDIO, limits=TestLimits(memory_mib=9)),
    "another output limit": structs.replace(STDIO, limits=TestLimits(output_kib=9)),
    "stops earlier": structs.replace(STDIO, stop_after_timeouts=1),
    "stops at a failure": structs.replace(STDIO, stop_at_failure=True),
    "another comparator": structs.replace(STDIO, comparator=Comparator("exact")),
    "another tolerance": structs.replace(STDIO, comparator=Comparator(abs=0.1)),
    "a checker": structs.replace(STDIO, checker=CheckerProgram("kattis", "python", "exit(42)")),
    "another checker": structs.replace(STDIO, checker=CheckerProgram("kattis", "python", "exit(43)")),
    "check": CHECK,
    "asserts": ASSERTS,
    "other asserts": structs.replace(ASSERTS, tests=AssertTests(["assert f() == 2"], "", "f")),
    "another setup": structs.replace(ASSERTS, tests=AssertTests(["assert f() == 1"], "x = 1", "f")),
    "another check": structs.replace(CHECK, tests=CheckTest("", "def check(f): assert f() == 2", "f")),
}


def test_cache_key_depends_on_everything_that_decides_a_verdict() -> None:
    keys = {name: key_of(request) for name, request in OTHERS.items()}
    keys["itself"] = key_of(STDIO)
    for name, identity in (("judge", JudgeIdentity("1.1", IDENTITY.image)), ("image", JudgeIdentity("1.0", "other"))):
        keys[name] = key_of(STDIO, identity)
    for name, change in (
        ("backend", {"backend": "sandbox-fusion"}),
        ("level", {"level": "seccomp"}),
        ("interpreter", {"python_version": "3.12.0"}),
        ("sandbox", {"versions": "0.2.0"}),
    ):
        keys[name] = key_of(STDIO, info=replace(INFO, **change))  # type: ignore[arg-type]  # each of its own type
    assert [name for name, times in Counter(keys.values()).items() if times > 1] == []


def test_cache_key_ignores_run_id_slots_and_text_around_the_program() -> None:
    same = (
        structs.replace(STDIO, run="another", request_id="r9"),
        structs.replace(STDIO, tests=cases_of(("1\n", "1\n"))),
    )
    assert {key_of(request) for request in same} == {key_of(STDIO)}
    fenced, said = stdio_request(text="```python\nx\n```"), stdio_request(text="Sure:\n```python\nx\n```\nDone.")
    assert key_of(fenced) == key_of(said)
    assert key_of(STDIO, info=replace(INFO, slots=9)) == key_of(STDIO)


@pytest.mark.parametrize(
    ("status", "confirmed", "stable"),
    [
        (TestStatus.SUCCESS, True, True),
        (TestStatus.WRONG_ANSWER, False, False),
        (TestStatus.API_ERROR, True, False),
        (TestStatus.TIMEOUT, True, True),
        (TestStatus.TIMEOUT, False, False),
    ],
)
def test_only_a_stable_verdict_is_stored(status: TestStatus, confirmed: bool, stable: bool) -> None:
    records = [TestRecord(0, TestStatus.SUCCESS, ran=True), TestRecord(1, status, ran=True, confirmed=confirmed)]
    assert is_stable(records) is stable


async def test_memory_store_is_bounded_and_evicts_the_least_recently_used_first() -> None:
    store = MemoryStore(3 * (100 + ENTRY_BYTES))
    for name in (b"a", b"b", b"c"):
        store.put(name, bytes(100))
    assert await store.get(b"a") is not None
    store.put(b"d", bytes(100))
    assert [await store.get(name) is not None for name in (b"a", b"b", b"c", b"d")] == [True, False, True, True]
    store.put(b"a", bytes(100))
    assert store.size == 3 * (100 + ENTRY_BYTES)
    store.put(b"huge", bytes(10_000))  # larger than all: it is not kept, and evicts nothing
    assert await store.get(b"huge") is None
    assert store.size == 3 * (100 + ENTRY_BYTES)


GOOD = Judged((TestRecord(0, TestStatus.SUCCESS, ran=True, cpu_time=1.5),), "full")


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Judging:
    """Counts, and waits until it is let go."""

    def __init__(self, judged: Judged | Exception = GOOD) -> None:
        self.judged = judged
        self.times = 0
        self.go = asyncio.Event()

    async def __call__(self) -> Judged:
        self.times += 1
        await self.go.wait()
        if isinstance(self.judged, Exception):
            raise self.judged
        return self.judged


async def test_equal_concurrent_requests_are_judged_once() -> None:
    said: Counter[CacheResult] = Counter()
    cache = VerdictCache([MemoryStore(10_000)], lambda result: said.update([result]))
    judging = Judging()
    asked = [asyncio.create_task(cache.through(b"k", judging)) for _ in range(5)]
    await settle()
    judging.go.set()
    results = await asyncio.gather(*asked)
    assert [known for _, known in results] == [False, True, True, True, True]
    assert {judged for judged, _ in results} == {GOOD}
    assert (judging.times, said) == (1, {CacheResult.MISS: 1, CacheResult.HIT: 4})
    assert (await cache.through(b"k", judging))[1]
    assert judging.times == 1


@pytest.mark.parametrize("judged", [replace(GOOD, stable=False), NoSandboxError("down")])
async def test_unstable_verdict_or_error_is_judged_for_each_caller(judged: Judged | Exception) -> None:
    said: Counter[CacheResult] = Counter()
    cache = VerdictCache([MemoryStore(10_000)], lambda result: said.update([result]))
    judging = Judging(judged)
    asked = [asyncio.create_task(cache.through(b"k", judging)) for _ in range(4)]
    await settle()
    judging.go.set()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert (judging.times, said) == (4, {CacheResult.MISS: 4})
    assert all(result == judged or result == (judged, False) for result in results)


async def test_cancelled_first_request_is_judged_by_the_next() -> None:
    cache = VerdictCache([MemoryStore(10_000)])
    judging = Judging()
    asked = [asyncio.create_task(cache.through(b"k", judging)) for _ in range(3)]
    await settle()
    asked[0].cancel()
    await settle()
    judging.go.set()
    assert [known for _, known in await asyncio.gather(*asked[1:])] == [False, True]
    assert judging.times == 2


class Broken(MemoryStore):
    async def get(self, key: bytes) -> bytes | None:
        raise StoreError("down")


async def test_failed_or_corrupt_store_is_skipped_and_the_verdict_judged() -> None:
    said: list[CacheResult] = []
    spoilt = MemoryStore(10_000)
    spoilt.put(b"k", b"\x93nonsense")
    spoilt.put(b"l", msgspec.msgpack.encode({"records": [], "level": "most"}))
    cache = VerdictCache([Broken(0), spoilt], said.append)
    judging = Judging()
    judging.go.set()
    assert [await cache.through(key, judging) for key in (b"k", b"l")] == [(GOOD, False)] * 2
    assert said == [CacheResult.ERROR] * 2
    assert await cache.through(b"k", judging) == (GOOD, True)  # stored again, in the one that works


async def test_verdict_found_in_a_slower_store_is_copied_to_the_quicker_stores() -> None:
    quick, slow = MemoryStore(10_000), MemoryStore(10_000)
    slow.put(b"k", msgspec.msgpack.encode(GOOD))
    assert await VerdictCache([quick, slow]).through(b"k", Judging()) == (GOOD, True)
    assert await quick.get(b"k") is not None


async def judged_twice(
    request: JudgeRequest, second: JudgeRequest, sandbox: FakeSandbox, retries: RetryPolicy | None = None
) -> list[Any]:
    time = Time()
    pool = make_pool([sandbox], time, retries=retries)
    pool.start()
    await pool.changed.wait()
    judge = make_judge(pool, time, cache=VerdictCache([MemoryStore(1_000_000)]))[0]
    results: list[Any] = []
    for one in (request, second):
        try:
            results.append(await judge.judge(one))
        except NoSandboxError as error:
            results.append(error)
    await pool.close()
    return results


async def test_a_hit_is_the_same_verdict_marked_with_the_times_of_the_original() -> None:
    sandbox = FakeSandbox(lambda request: reply(ended(b"1\n", cpu_seconds=1.25, stderr=b"\xff")))
    first, second = await judged_twice(STDIO, structs.replace(STDIO, run="another"), sandbox)
    assert len(sandbox.requests) == 1
    assert first == structs.replace(second, cached=False)
    assert (first.cached, second.cached, second.tests[0].cpu_time) == (False, True, 1.25)


async def test_fresh_request_is_judged_again() -> None:
    sandbox = FakeSandbox(lambda request: reply(ended(b"1\n")))
    first, second = await judged_twice(STDIO, structs.replace(STDIO, fresh=True), sandbox)
    assert len(sandbox.requests) == 2
    assert (first.cached, second.cached) == (False, False)


async def test_cache_hit_reports_the_guardrails_of_its_own_answer() -> None:
    sandbox = FakeSandbox()
    whole = stdio_request(("1\n", "1\n"), text="```python\nprint(input())\n```")
    cut = structs.replace(whole, submission=structs.replace(whole.submission, truncated=True))
    first, second = await judged_twice(whole, cut, sandbox)
    assert len(sandbox.requests) == 1
    assert first.guardrails == ()
    assert [guardrail.name for guardrail in second.guardrails] == ["TRUNCATED_GENERATION"]


async def test_cached_prose_is_reported_as_empty_output_again() -> None:
    def uncompiled(request: RunRequest) -> RunReply:
        return reply(ProgramRun("not_run"), compiling=CompileResult("error"))

    prose = stdio_request(("1\n", "1\n"), text="I would use a dictionary")
    sandbox = FakeSandbox(uncompiled)
    first, second = await judged_twice(prose, prose, sandbox)
    assert len(sandbox.requests) == 1
    assert first.final_status == second.final_status == "empty_output"


async def test_infra_errors_and_unconfirmed_time_outs_are_judged_again() -> None:
    broken = FakeSandbox(faults=[SandboxFailedError("500")])
    failed, verdict = await judged_twice(STDIO, STDIO, broken, RetryPolicy(attempts=1))
    assert isinstance(failed, NoSandboxError)
    assert verdict.accepted
    assert not verdict.cached

    answers = [reply(ProgramRun("timeout", confirmed=False)), echo(RunRequest("python", "", [b"1\n"]))]
    hurried = FakeSandbox(lambda request: answers.pop(0))
    late, verdict = await judged_twice(STDIO, STDIO, hurried)
    assert (late.final_status, verdict.final_status) == ("api_error", "success")
