"""Function tests driven over scripted collaborators: what goes where, what is remembered, what is never a verdict."""

import json
from collections.abc import Callable

import pytest
from builders.judge.gateway import Time, make_judge, make_pool

from evalrun_executor.api import CompileResult, Level, Limits, ProgramRun, RunReply, RunRequest
from evalrun_judge.cache.verdict_cache import MemoryStore, VerdictCache
from evalrun_judge.extraction import SubmissionMode
from evalrun_judge.function_tests.session import OUTPUT_KIB
from evalrun_judge.pool.retries import RetryPolicy
from evalrun_judge.pool.slot_queue import NoSandboxError
from evalrun_judge.rpc.messages import fill_verdict
from evalrun_judge.sandboxes import SandboxFailedError
from evalrun_judge.sandboxes.fake import FakeSandbox, ended, reply
from evalrun_judge.status import TestStatus
from evalrun_judge.submission import AssertTests, CheckTest, JudgeRequest, Submission
from evalrun_judge.verdict import UNCONFIRMED, FinalStatus, Verdict
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_registry.limits import TestLimits

CHECK = CheckTest("def f(x):\n", "def check(candidate):\n    assert candidate(1) == 2\n", "f")
ASSERTS = AssertTests(["assert f(1) == 2", "assert f(2) == 3"], "", "f")


class ScriptedAssertions:
    """Answers records with one call a test, and replays as told."""

    def __init__(self, replayed: Callable[[dict[str, object]], ProgramRun], level: Level = "full") -> None:
        self.level: Level = level
        self.modes: list[str] = []
        self.limits: list[Limits] = []
        self._replayed = replayed

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def run(
        self, stdin: bytes, limits: Limits, on_slot: Callable[[], None], *, shareable: bool = False
    ) -> ProgramRun:
        on_slot()
        header = json.loads(stdin.splitlines()[0])
        self.modes.append(header["mode"])
        self.limits.append(limits)
        if header["mode"] == "replay":
            return self._replayed(header)
        head = {"names": [], "modules": [], "imports": ""}
        reports = [{"test": test, "calls": [["f", [1], {}]]} for test, *_ in header["tests"]]
        return ended(b"".join(json.dumps(line).encode() + b"\n" for line in [head, *reports]))


def all_pass(header: dict[str, object]) -> ProgramRun:
    tests = header["tests"]
    assert isinstance(tests, list)
    lines = [{"test": test, "status": "success", "reason": ""} for test, *_ in tests]
    return ended(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def values(request: RunRequest) -> RunReply:
    """Answer a batch as the call harness does: each call gives 2."""
    batch = json.loads(request.inputs[0])
    lines = [b"load V null"] + [
        b"%d %d V 2" % (test, number) for test, calls in batch["tests"] for number, _ in enumerate(calls)
    ]
    return reply(ended(b"\n".join(lines) + b"\n"))


def uncompiled(request: RunRequest) -> RunReply:
    del request
    return reply(ProgramRun("not_run"), compiling=CompileResult("error", 0.1, b"SyntaxError: bad"))


async def judge_twice(
    request: JudgeRequest,
    sandbox: FakeSandbox,
    assertions: ScriptedAssertions,
    retries: RetryPolicy | None = None,
    cache: VerdictCache | None = None,
) -> list[Verdict]:
    time = Time()
    pool = make_pool([sandbox], time, retries=retries)
    pool.start()
    await pool.changed.wait()
    judging, admission, _ = make_judge(pool, time, assertions=assertions, cache=cache)
    try:
        return [await judging.judge(request) for _ in range(2)]
    finally:
        assert admission.inside == 0
        await pool.close()


async def test_a_programs_calls_run_in_the_sandbox_and_its_assertions_do_not() -> None:
    sandbox, assertions = FakeSandbox(uncompiled), ScriptedAssertions(all_pass)
    request = JudgeRequest(Submission("    return x + 1\n", SubmissionMode.APPEND), CHECK, TestLimits(2.0, 64, 16))
    verdicts = await judge_twice(request, sandbox, assertions)
    assert [verdict.final_status for verdict in verdicts] == [FinalStatus.SYNTAX_ERROR] * 2
    assert assertions.modes == ["record"]  # once a problem, not once a program
    sent = sandbox.requests[0]
    assert (sent.mode, sent.code) == ("calls", "def f(x):\n    return x + 1\n")
    assert "assert" not in sent.code + sent.inputs[0].decode()
    assert (sent.limits.time_seconds, sent.limits.memory_mib, sent.limits.output_kib) == (2.0, 64, OUTPUT_KIB)
    assert assertions.limits[0].output_kib == OUTPUT_KIB


async def test_an_accepted_program_needs_the_record_once_and_a_replay_each() -> None:
    assertions = ScriptedAssertions(all_pass)
    verdicts = await judge_twice(
        JudgeRequest(Submission("def f(x): return 2"), ASSERTS), FakeSandbox(values), assertions
    )
    assert [(v.accepted, v.judged, len(v.tests), v.containment_level) for v in verdicts] == [
        (True, True, 2, "full")
    ] * 2
    assert assertions.modes == ["record", "replay", "replay"]


async def test_judge_reason_with_lone_surrogates_is_cached_and_sent() -> None:
    def raised(header: dict[str, object]) -> ProgramRun:
        report = {"test": 0, "status": "runtime_error", "reason": "ValueError: \ud800", "actual": "'\udfff'"}
        return ended(json.dumps(report).encode() + b"\n")

    request = JudgeRequest(Submission("def f(x): return 2"), AssertTests(["assert f(1) == 2"], "", "f"))
    cache = VerdictCache([MemoryStore(1 << 20)])
    first, second = await judge_twice(request, FakeSandbox(values), ScriptedAssertions(raised), cache=cache)
    assert (first.cached, second.cached) == (False, True)
    for verdict in (first, second):
        assert (verdict.final_status, verdict.tests[0].reason) == (FinalStatus.RUNTIME_ERROR, "ValueError: \ufffd")
        message = judge_pb2.Verdict()
        fill_verdict(message, verdict)
        assert message.tests[0].reason == "ValueError: \ufffd"


async def test_judge_text_that_does_not_compile_judges_its_definitions() -> None:
    def compiled_without_prose(request: RunRequest) -> RunReply:
        return uncompiled(request) if "doubles" in request.code else values(request)

    answer = "This doubles:\n\ndef f(x): return 2\n\nIt doubles x.\n"
    sandbox = FakeSandbox(compiled_without_prose)
    (verdict, _) = await judge_twice(JudgeRequest(Submission(answer), ASSERTS), sandbox, ScriptedAssertions(all_pass))
    assert [request.code for request in sandbox.requests[:2]] == [answer, "def f(x): return 2\n"]
    assert (verdict.accepted, verdict.code, verdict.guardrails) == (True, "def f(x): return 2\n", ())


async def test_prose_is_no_code_for_function_tests_either() -> None:
    request = JudgeRequest(Submission("Sorry, no."), ASSERTS)
    verdicts = await judge_twice(request, FakeSandbox(uncompiled), ScriptedAssertions(all_pass))
    assert verdicts[0].final_status is FinalStatus.EMPTY_OUTPUT
    assert [test.ran for test in verdicts[0].tests] == [False, False]


async def test_a_program_that_fails_to_compile_is_a_syntax_error_of_every_test() -> None:
    request = JudgeRequest(Submission("```python\ndef f(:\n```"), ASSERTS)
    verdict = (await judge_twice(request, FakeSandbox(uncompiled), ScriptedAssertions(all_pass)))[0]
    assert [test.status for test in verdict.tests] == [TestStatus.COMPILE_ERROR] * 2
    assert verdict.tests[0].compile_stderr.text == "SyntaxError: bad"
    assert verdict.tests[0].compile_duration == 0.1


async def test_tests_that_cannot_be_recorded_are_the_problems_fault() -> None:
    class Broken(ScriptedAssertions):
        async def run(
            self, stdin: bytes, limits: Limits, on_slot: Callable[[], None], *, shareable: bool = False
        ) -> ProgramRun:
            await super().run(stdin, limits, on_slot, shareable=shareable)
            return ended(b"", exit_code=1, stderr=b"SyntaxError: in the test")

    sandbox = FakeSandbox()
    verdict = (await judge_twice(JudgeRequest(Submission("def f(x): ..."), CHECK), sandbox, Broken(all_pass)))[0]
    assert (verdict.judged, verdict.pass_ratio, verdict.final_status) == (False, None, FinalStatus.API_ERROR)
    assert sandbox.requests == []


async def test_an_infra_failure_of_the_calls_is_no_verdict() -> None:
    sandbox = FakeSandbox(faults=[SandboxFailedError("500")] * 9)
    with pytest.raises(NoSandboxError):
        await judge_twice(
            JudgeRequest(Submission("def f(x): ..."), CHECK),
            sandbox,
            ScriptedAssertions(all_pass),
            RetryPolicy(attempts=2),
        )


@pytest.mark.parametrize(("confirmed", "reason"), [(True, ""), (False, UNCONFIRMED)])
async def test_run_past_its_limit_is_judged_and_cached_only_if_confirmed(confirmed: bool, reason: str) -> None:
    def late(request: RunRequest) -> RunReply:
        del request
        return reply(ProgramRun("timeout", None, b"load V null\n", cpu_seconds=12.0, confirmed=confirmed))

    def replayed(header: dict[str, object]) -> ProgramRun:
        status = "timeout" if confirmed else "api_error"
        cause = "" if confirmed else "unconfirmed"
        return ended(json.dumps({"test": 0, "status": status, "reason": reason, "cause": cause}).encode() + b"\n")

    sandbox = FakeSandbox(late)
    request = JudgeRequest(Submission("def f(x):\n    while True: pass"), CHECK)
    cache = VerdictCache([MemoryStore(1_000_000)])
    first, second = await judge_twice(request, sandbox, ScriptedAssertions(replayed), cache=cache)
    expected = FinalStatus.TIMEOUT if confirmed else FinalStatus.API_ERROR
    assert [verdict.final_status for verdict in (first, second)] == [expected] * 2
    assert (first.judged, first.permanent) == (confirmed, False)
    assert (second.cached, len(sandbox.requests)) == ((True, 1) if confirmed else (False, 2))
    assert first.tests[0].reason == reason


async def test_the_least_level_of_any_part_is_reported() -> None:
    assertions = ScriptedAssertions(all_pass, level="seccomp")
    verdict = (await judge_twice(JudgeRequest(Submission("def f(:"), CHECK), FakeSandbox(uncompiled), assertions))[0]
    assert verdict.final_status is FinalStatus.EMPTY_OUTPUT
    fenced = JudgeRequest(Submission("```\ndef f(:\n```"), CHECK)
    assert (await judge_twice(fenced, FakeSandbox(uncompiled), assertions))[0].containment_level == "seccomp"
