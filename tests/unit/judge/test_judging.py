"""One request to its verdict, over scripted sandboxes."""

import asyncio

import pytest
from builders.judge.gateway import Time, make_judge, make_pool, stdio_request
from prometheus_client import CollectorRegistry

from evalrun_executor.api import CompileResult, ProgramRun, RunReply, RunRequest
from evalrun_judge.extraction import ExtractionMethod, Guardrail, SubmissionMode
from evalrun_judge.pool.retries import RetryPolicy
from evalrun_judge.pool.slot_queue import NoSandboxError
from evalrun_judge.sandboxes import RunRefusedError, SandboxFailedError, SandboxUnreachableError
from evalrun_judge.sandboxes.fake import FakeSandbox, echo, ended, reply
from evalrun_judge.short_runs import short_seconds
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import (
    AssertTests,
    CheckTest,
    InvalidRequestError,
    JudgeRequest,
    StdioTests,
    Submission,
)
from evalrun_judge.verdict import FinalStatus, Verdict
from evalrun_registry.comparators import Comparator
from evalrun_registry.limits import TestLimits
from evalrun_runtime.admission import QueueFullError
from evalrun_runtime.deadlines import DeadlineError


async def judge(request: JudgeRequest, sandbox: FakeSandbox) -> Verdict:
    time = Time()
    pool = make_pool([sandbox], time)
    pool.start()
    try:
        return await make_judge(pool, time)[0].judge(request)
    finally:
        await pool.close()


async def test_accepted_program_has_a_complete_verdict() -> None:
    sandbox = FakeSandbox()
    verdict = await judge(stdio_request(("1\n", "1"), ("2\n", "2")), sandbox)
    assert (verdict.final_status, verdict.judged, verdict.accepted, verdict.pass_ratio) == (
        FinalStatus.SUCCESS, True, True, 1.0,
    )  # fmt: skip
    assert (verdict.code, verdict.extraction) == ("print(input())\n", ExtractionMethod.TAGGED_BLOCK)
    assert verdict.containment_level == "full"
    assert verdict.disagreeing == ("exact",)
    assert [test.input.text for test in verdict.tests] == ["1\n", "2\n"]
    assert len(sandbox.requests) == 1  # all tests in one call


async def test_the_limits_reach_the_sandbox() -> None:
    sandbox = FakeSandbox()
    request = JudgeRequest(
        Submission("x", SubmissionMode.STANDALONE, "cpp"), stdio_request().tests, TestLimits(2.5, 64, 16),
        stop_after_timeouts=3,
    )  # fmt: skip
    await judge(request, sandbox)
    sent = sandbox.requests[0]
    assert (sent.language, sent.code, sent.stop_after_timeouts) == ("cpp", "x", 3)
    assert (sent.limits.time_seconds, sent.limits.memory_mib, sent.limits.output_kib) == (2.5, 64, 16)


async def test_program_that_does_not_compile_fails_every_test_with_compile_error() -> None:
    def uncompiled(request: RunRequest) -> RunReply:
        runs = [ProgramRun("not_run") for _ in request.inputs]
        return reply(*runs, compiling=CompileResult("error", 0.2, b"SyntaxError: invalid syntax"))

    verdict = await judge(stdio_request(("1", "1"), ("2", "2")), FakeSandbox(uncompiled))
    assert (verdict.final_status, verdict.pass_ratio) == (FinalStatus.SYNTAX_ERROR, 0.0)
    assert [(test.status, test.ran) for test in verdict.tests] == [(TestStatus.COMPILE_ERROR, False)] * 2
    assert verdict.tests[0].compile_stderr.text == "SyntaxError: invalid syntax"
    assert verdict.tests[0].reason == ""


async def test_prose_is_no_code_and_no_syntax_error() -> None:
    def uncompiled(request: RunRequest) -> RunReply:
        return reply(ProgramRun("not_run"), compiling=CompileResult("error"))

    verdict = await judge(stdio_request(text="I cannot help with that."), FakeSandbox(uncompiled))
    assert (verdict.final_status, verdict.pass_ratio, verdict.judged) == (FinalStatus.EMPTY_OUTPUT, 0.0, True)
    assert verdict.guardrails == (Guardrail.NO_CODE_FOUND,)
    assert (verdict.code, verdict.extraction) == ("", ExtractionMethod.NONE)


async def test_empty_answer_is_judged_without_a_sandbox() -> None:
    sandbox = FakeSandbox()
    verdict = await judge(stdio_request(("1", "1"), ("2", "2"), text=" "), sandbox)
    assert (verdict.final_status, verdict.pass_ratio, len(verdict.tests)) == (FinalStatus.EMPTY_OUTPUT, 0.0, 2)
    assert verdict.guardrails == (Guardrail.NOTHING_TO_RUN,)
    assert sandbox.requests == []


def slow_on(late: set[bytes], seconds: float) -> FakeSandbox:
    """A program that takes `seconds` for these inputs and no time for others; it prints its input."""

    def run(request: RunRequest) -> RunReply:
        runs: list[ProgramRun] = []
        for data in request.inputs:
            stop = request.stop_after_timeouts
            if stop and sum(run.end == "timeout" for run in runs) >= stop:
                runs.append(ProgramRun("not_run"))
            elif data in late and seconds > request.limits.time_seconds:
                runs.append(ProgramRun("timeout", cpu_seconds=1.2 * request.limits.time_seconds, wall_seconds=2.0))
            else:
                runs.append(ended(data))
        return reply(*runs)

    return FakeSandbox(run)


def eight_tests(stop_after_timeouts: int) -> JudgeRequest:
    tests = stdio_request(*((f"{number}", f"{number}") for number in range(8))).tests
    submission = Submission("print(input())", SubmissionMode.STANDALONE)
    return JudgeRequest(submission, tests, TestLimits(30.0), stop_after_timeouts=stop_after_timeouts)


@pytest.mark.parametrize("stop", [0, 3])
async def test_a_program_that_is_slow_on_3_of_8_tests_passes_the_other_5(stop: int) -> None:
    """verl's formula: 0.625. Tests that never ran were counted as failed: 0.0."""
    sandbox = slow_on({b"0", b"1", b"2"}, 60.0)
    verdict = await judge(eight_tests(stop), sandbox)
    assert (verdict.pass_ratio, verdict.pass_ratio_high, verdict.assumed_timeouts) == (0.625, 0.625, 0)
    assert (verdict.final_status, verdict.accepted) == (FinalStatus.TIMEOUT, False)
    assert [test.status for test in verdict.tests] == [TestStatus.TIMEOUT] * 3 + [TestStatus.SUCCESS] * 5
    assert [(len(sent.inputs), sent.limits.time_seconds) for sent in sandbox.requests] == (
        [(8, 30.0)] if stop == 0 else [(8, 30.0), (5, 1.0)]
    )


async def test_test_beyond_the_short_limit_is_an_assumed_timeout() -> None:
    """Of the five that are left, two take 5 s: they would pass within 30 s, and nobody knows."""
    sandbox = slow_on({b"0", b"1", b"2"}, 60.0)
    slow_too = slow_on({b"0", b"1", b"2", b"4", b"6"}, 5.0)
    sandbox.behaviour = lambda request: (slow_too if request.limits.time_seconds == 1.0 else first).behaviour(request)
    first = slow_on({b"0", b"1", b"2"}, 60.0)
    verdict = await judge(eight_tests(3), sandbox)
    assert (verdict.pass_ratio, verdict.pass_ratio_high, verdict.assumed_timeouts) == (0.375, 0.625, 2)
    assumed = [test for test in verdict.tests if test.status is TestStatus.ASSUMED_TIMEOUT]
    assert [(test.case_index, test.ran, test.cpu_time) for test in assumed] == [(4, True, 1.2), (6, True, 1.2)]
    assert "did not end within the short limit" in assumed[0].reason
    assert verdict.final_status is FinalStatus.TIMEOUT


@pytest.mark.parametrize(("limit", "short"), [(30.0, 1.0), (10.0, 1.0), (2.5, 0.25), (0.5, 0.05)])
def test_the_short_limit_is_a_second_or_a_tenth(limit: float, short: float) -> None:
    assert short_seconds(limit) == pytest.approx(short)


async def test_stdout_that_is_no_utf8_is_judged_as_bytes_and_shown_readably() -> None:
    sandbox = FakeSandbox(lambda request: reply(ended(b"\xff\n")))
    verdict = await judge(stdio_request(("", "\ufffd\n")), sandbox)
    assert verdict.final_status is FinalStatus.WRONG_ANSWER
    assert verdict.tests[0].stdout.text == "\ufffd\n"


async def test_large_outputs_are_judged_like_small_ones() -> None:
    big = "1234 " * 200_000
    verdict = await judge(stdio_request((big, big + "\n")), FakeSandbox())
    assert verdict.accepted
    assert verdict.tests[0].stdout.full_length == len(big)
    assert len(verdict.tests[0].stdout.text) < 10_000


async def test_infra_failure_is_an_error_and_never_a_verdict() -> None:
    with pytest.raises(NoSandboxError):
        await judge(stdio_request(), FakeSandbox(faults=[SandboxFailedError("500")] * 99))


async def test_request_that_the_sandbox_refuses_is_invalid() -> None:
    with pytest.raises(InvalidRequestError, match="too large"):
        await judge(stdio_request(), FakeSandbox(faults=[RunRefusedError("inputs: too large")]))


TESTS = stdio_request().tests
INVALID: list[tuple[JudgeRequest, str]] = [
    (JudgeRequest(Submission("x"), StdioTests([])), "stdio.tests"),
    (JudgeRequest(Submission("x"), AssertTests([], "", "f")), "asserts.asserts"),
    (JudgeRequest(Submission("x"), CheckTest("", " ", "f")), "check.test"),
    (JudgeRequest(Submission("x"), CheckTest("", "def check(f): ...", "f(); import os")), "entry_point"),
    (JudgeRequest(Submission("x", language="cobol"), TESTS), "submission.language: 'cobol' is not one of python"),
    (JudgeRequest(Submission("x", language="c"), AssertTests(["assert f()"], "", "f")), "submission.language"),
    (JudgeRequest(Submission("x", SubmissionMode.APPEND), TESTS), "submission.mode"),
    (JudgeRequest(Submission("x"), TESTS, TestLimits(time_seconds=-1)), "limits.time_seconds"),
    (JudgeRequest(Submission("x"), TESTS, TestLimits(time_seconds=float("nan"))), "limits.time_seconds"),
    (JudgeRequest(Submission("x"), TESTS, comparator=Comparator(abs=-1.0)), "comparator.abs"),
    (JudgeRequest(Submission("x"), TESTS, comparator=Comparator(rel=float("inf"))), "comparator.rel"),
    (JudgeRequest(Submission("x"), TESTS, comparator=Comparator("checker")), "comparator.checker"),
]


@pytest.mark.parametrize(("request_", "field"), INVALID, ids=[field for _, field in INVALID])
async def test_request_that_can_never_be_judged_is_refused_by_field(request_: JudgeRequest, field: str) -> None:
    sandbox = FakeSandbox()
    with pytest.raises(InvalidRequestError, match=field.replace("(", r"\(")):
        await judge(request_, sandbox)
    assert sandbox.requests == []


async def test_full_queue_refuses_new_requests_and_completes_accepted_ones() -> None:
    release = asyncio.Event()

    async def slow(request: RunRequest) -> RunReply:
        await release.wait()
        return echo(request)

    time = Time()
    pool = make_pool([FakeSandbox(slow, slots=1)], time)
    pool.start()
    judging, admission, _ = make_judge(pool, time, capacity=3)
    tasks = [asyncio.create_task(judging.judge(stdio_request())) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(QueueFullError):
        await judging.judge(stdio_request())
    release.set()
    assert all(verdict.accepted for verdict in await asyncio.gather(*tasks))
    assert admission.inside == 0
    await pool.close()


async def test_metrics_start_at_zero_and_count_each_outcome() -> None:
    registry = CollectorRegistry()
    time = Time()
    pool = make_pool([FakeSandbox(faults=[SandboxUnreachableError("reset")])], time)
    judging, admission, metrics = make_judge(pool, time, registry=registry)
    metrics.watch_sandboxes(lambda: pool.slots, lambda: pool.in_flight)
    metrics.watch_queue(lambda: admission.waiting, lambda: admission.oldest_seconds, lambda: admission.inside)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("evalrun_judge_tests_total", status="api_error") == 0
    assert value("evalrun_judge_retries_total", reason="connection") == 0
    assert value("evalrun_judge_request_seconds_count", outcome="accepted") == 0
    pool.start()
    await judging.judge(stdio_request(("1", "1"), ("2", "3")))
    with pytest.raises(InvalidRequestError):
        await judging.judge(JudgeRequest(Submission("x"), StdioTests([])))
    assert value("evalrun_judge_tests_total", status="success") == 1
    assert value("evalrun_judge_tests_total", status="wrong_answer") == 1
    assert value("evalrun_judge_request_seconds_count", outcome="rejected") == 1
    assert value("evalrun_judge_request_seconds_count", outcome="invalid") == 1
    assert value("evalrun_judge_queue_seconds_count") == 1
    assert value("evalrun_judge_inflight") == 0
    assert (value("evalrun_judge_sandbox_slots"), value("evalrun_judge_sandbox_inflight")) == (2, 0)
    await pool.close()


async def test_queue_seconds_counts_only_waits_that_ended() -> None:
    registry = CollectorRegistry()
    time = Time()
    pool = make_pool(
        [FakeSandbox(faults=[SandboxFailedError("500")])], time, retries=RetryPolicy(attempts=1, budget_seconds=1e9)
    )
    judging, *_ = make_judge(pool, time, registry=registry)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    with pytest.raises(DeadlineError):  # no sandbox is in use yet: no work begins
        await judging.judge(stdio_request(), asyncio.get_running_loop().time() + 0.01)
    assert value("evalrun_judge_request_seconds_count", outcome="expired") == 1
    assert value("evalrun_judge_queue_seconds_count") == 0
    pool.start()
    with pytest.raises(NoSandboxError):
        await judging.judge(stdio_request(), asyncio.get_running_loop().time() + 60)
    assert value("evalrun_judge_request_seconds_count", outcome="unavailable") == 1
    assert value("evalrun_judge_queue_seconds_count") == 1
    await pool.close()


async def test_spent_retry_budget_raises_no_sandbox_with_the_reason() -> None:
    registry = CollectorRegistry()
    time = Time()
    sandbox = FakeSandbox(slots=2, faults=[SandboxFailedError("status 500")] * 3)
    pool = make_pool([sandbox], time, retries=RetryPolicy(attempts=9, ratio=0.0, min_retries=0))
    pool.start()
    judging, *_ = make_judge(pool, time, registry=registry)
    with pytest.raises(
        NoSandboxError, match=r"the retry budget is spent \(2 calls made again for 1 first .*status 500"
    ):
        await judging.judge(stdio_request())
    assert registry.get_sample_value("evalrun_judge_request_seconds_count", {"outcome": "unavailable"}) == 1
    for status in TestStatus:
        assert registry.get_sample_value("evalrun_judge_tests_total", {"status": status.value}) == 0
    assert (await judging.judge(stdio_request())).accepted  # first calls are made all the same
    await pool.close()


async def test_every_call_of_a_sandbox_is_timed_also_those_that_fail() -> None:
    time = Time()
    seconds: list[float] = []
    pool = make_pool([FakeSandbox(faults=[SandboxUnreachableError("reset")])], time, on_call=seconds.append)
    pool.start()
    await make_judge(pool, time)[0].judge(stdio_request(("1", "1")))
    assert len(seconds) == 2
    await pool.close()


async def test_the_same_verdicts_one_by_one_and_all_at_once() -> None:
    requests = [stdio_request((str(i), str(i if i % 3 else i + 1))) for i in range(100)]
    time = Time()
    faults = [SandboxFailedError("500"), SandboxUnreachableError("reset")] * 5
    calm, stormy = make_pool([FakeSandbox()], time), make_pool(
        [FakeSandbox(slots=4, faults=faults), FakeSandbox(slots=2)], time, retries=RetryPolicy(attempts=20)
    )  # fmt: skip
    calm.start()
    stormy.start()
    one_by_one = [await make_judge(calm, time)[0].judge(request) for request in requests]
    judging = make_judge(stormy, time)[0]
    at_once = await asyncio.gather(*(judging.judge(request) for request in requests))
    assert [v.final_status for v in one_by_one] == [v.final_status for v in at_once]
    await calm.close()
    await stormy.close()
