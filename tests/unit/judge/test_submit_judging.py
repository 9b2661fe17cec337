"""Answers judged by a server's own tests: what is asked, what is refused, what becomes of the answer."""

from collections.abc import Sequence

import pytest
from builders.judge.gateway import Time, make_judge, make_pool, message_of, stdio_request

from evalrun_executor.api import CompileResult
from evalrun_judge.cache.verdict_cache import MemoryStore, VerdictCache
from evalrun_judge.extraction import ExtractionMethod, SubmissionMode
from evalrun_judge.families.submit import SubmitTests
from evalrun_judge.pool.slot_queue import NoSandboxError
from evalrun_judge.rpc.messages import describe_message, request_from
from evalrun_judge.sandboxes import RunRefusedError, SandboxFailedError, ServerTest, SubmitCall
from evalrun_judge.sandboxes.fake import FakeDatasetServer, FakeSandbox, ended
from evalrun_judge.submission import InvalidRequestError, JudgeRequest, Submission
from evalrun_judge.verdict import FinalStatus, Verdict
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_registry.comparators import Comparator
from evalrun_registry.limits import TestLimits

OK = CompileResult("ok")
PASSED = ServerTest(passed=True, compile=OK, run=ended(b"3\n"), case=(b"1 2\n", b"3\n"))
WRONG = ServerTest(passed=False, compile=OK, run=ended(b"4\n"), case=(b"1 2\n", b"3\n"))
BROKEN = ServerTest(passed=False, compile=CompileResult("error", stderr=b"SyntaxError"), run=ended(exit_code=1))


def asked(
    text: str = "```python\nprint(3)\n```", *, dataset: str = "mbpp", row: str = "11", stop_after: int = 3,
    mode: SubmissionMode = SubmissionMode.AUTO, comparator: Comparator | None = None,
) -> JudgeRequest:  # fmt: skip
    return JudgeRequest(
        Submission(text, mode), SubmitTests(dataset, row), TestLimits(time_seconds=7), comparator or Comparator(),
        stop_after_timeouts=stop_after,
    )  # fmt: skip


async def verdicts(
    requests: Sequence[JudgeRequest], sandbox: FakeSandbox, cache: VerdictCache | None = None
) -> list[Verdict]:
    time = Time()
    pool = make_pool([sandbox], time)
    pool.start()
    try:
        await pool.changed.wait()
        judge, _, _ = make_judge(pool, time, cache=cache)
        return [await judge.judge(request) for request in requests]
    finally:
        await pool.close()


async def test_the_server_gets_the_program_that_our_rule_finds_in_one_block() -> None:
    server = FakeDatasetServer([PASSED])
    text = "<think>\n```python\nprint(1)\n```\n</think>\n```python\nprint(2)\n```\nor better:\n```python\nprint(3)\n```"
    [verdict] = await verdicts([asked(text)], server)
    assert server.calls == [SubmitCall("mbpp", 11, "```python\nprint(3)\n```\n", "python", 7.0)]
    assert (verdict.final_status, verdict.accepted, verdict.pass_ratio) == (FinalStatus.SUCCESS, True, 1.0)
    assert (verdict.forgeable, verdict.containment_level, verdict.cached) == ("shared_process", "none", False)
    assert (verdict.code, verdict.extraction) == ("as the server found it", ExtractionMethod.TAGGED_BLOCK)
    assert message_of(verdict).forgeable


async def test_an_id_that_is_no_number_and_a_text_that_continues_the_prompt() -> None:
    server = FakeDatasetServer([PASSED])
    await verdicts([asked("    return 1\n", row="HumanEval/0", mode=SubmissionMode.APPEND, stop_after=0)], server)
    assert server.calls == [
        SubmitCall("mbpp", "HumanEval/0", "    return 1\n", "python", 7.0, free_form=False, after_timeouts=True)
    ]


async def test_a_server_that_stopped_at_a_failure_leaves_the_ratio_open() -> None:
    server = FakeDatasetServer([PASSED, WRONG], complete=False)
    [verdict] = await verdicts([asked()], server)
    assert (verdict.final_status, verdict.judged, verdict.accepted) == (FinalStatus.WRONG_ANSWER, True, False)
    assert verdict.pass_ratio is None
    [whole] = await verdicts([asked()], FakeDatasetServer([PASSED, WRONG]))
    assert whole.pass_ratio == 0.5


async def test_answer_without_a_program_is_empty_output_and_prose_is_no_program() -> None:
    server = FakeDatasetServer([BROKEN])
    texts = ["", "I cannot say.", "```java\nclass A {}\n"]
    found = await verdicts([asked(text) for text in texts], server)
    empty = (FinalStatus.EMPTY_OUTPUT, 0.0, "shared_process")
    assert [(v.final_status, v.pass_ratio, v.forgeable) for v in found] == [empty] * 3
    assert len(server.calls) == 1


async def test_no_verdict_of_a_servers_tests_is_cached() -> None:
    server = FakeDatasetServer([PASSED])
    cache = VerdictCache([MemoryStore(1 << 20)])
    found = await verdicts([asked(), asked()], server, cache)
    assert [verdict.cached for verdict in found] == [False, False]
    assert len(server.calls) == 2


async def test_infra_errors_are_tried_again_and_never_become_a_verdict() -> None:
    server = FakeDatasetServer([PASSED], faults=[SandboxFailedError("500"), SandboxFailedError("SandboxError")])
    [verdict] = await verdicts([asked()], server)
    assert verdict.accepted
    with pytest.raises(NoSandboxError, match="calls failed"):
        await verdicts([asked()], FakeDatasetServer([PASSED], faults=[SandboxFailedError("500")] * 9))
    with pytest.raises(InvalidRequestError, match="the sandbox refuses it: no such row"):
        await verdicts([asked()], FakeDatasetServer([PASSED], faults=[RunRefusedError("no such row")]))


REFUSED = {
    "a path": (asked(dataset="../mbpp"), "submit.dataset"),
    "dots": (asked(dataset="a..b"), "submit.dataset"),
    "no dataset": (asked(dataset=""), "submit.dataset"),
    "another directory": (asked(dataset="mbpp/x"), "submit.dataset"),
    "a row's path": (asked(row="../11"), "submit.id"),
    "SQL": (asked(row="x' OR id=12 --"), "submit.id"),
    "a backslash": (asked(row="11\\"), "submit.id"),
    "a control character": (asked(row="11\0"), "submit.id"),
    "no row": (asked(row=" "), "submit.id"),
    "a comparator": (asked(comparator=Comparator("exact")), "comparator: with submit the server compares"),
    "a fence after a tab": (asked('x = """\n\t```\n"""', mode=SubmissionMode.STANDALONE), "begins with ```"),
    "a fence": (asked('```python\n"""\n    ```\n"""\n```', mode=SubmissionMode.STANDALONE), "begins with ```"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_request_with_another_meaning_to_the_server_is_refused(name: str) -> None:
    request, complaint = REFUSED[name]
    server = FakeDatasetServer([PASSED])
    with pytest.raises(InvalidRequestError, match=complaint):
        await verdicts([request], server)
    assert server.calls == []


async def test_a_sandbox_of_ours_has_no_datasets() -> None:
    with pytest.raises(InvalidRequestError, match=r"this gateway's sandboxes \(evalrun\) have no datasets"):
        await verdicts([asked()], FakeSandbox())
    time = Time()
    pool = make_pool([FakeSandbox(address="ours")], time)
    pool.start()
    try:
        await pool.changed.wait()
        with pytest.raises(RunRefusedError, match="ours has no datasets"):
            await pool.submit(SubmitCall("mbpp", 11, "x", "python", 1.0))
        assert pool.in_flight == 0
    finally:
        await pool.close()


@pytest.mark.parametrize("server", [True, False])
async def test_gateway_reports_submits_only_if_all_sandboxes_have_datasets(server: bool) -> None:
    pool = make_pool([FakeDatasetServer([PASSED]), *([] if server else [FakeSandbox()])], Time())
    pool.start()
    try:
        while pool.slots < (2 if server else 4):
            pool.changed.clear()
            await pool.changed.wait()
        info = pool.describe()
        assert info is not None
        assert describe_message(info, "1", 0.0).submits is server
    finally:
        await pool.close()


async def test_programs_still_run_on_a_server_with_datasets() -> None:
    [verdict] = await verdicts([stdio_request(("1\n", "1"))], FakeDatasetServer([]))
    assert (verdict.accepted, verdict.forgeable) == (True, None)


def test_submit_message_becomes_submit_tests() -> None:
    message = judge_pb2.JudgeRequest(submit=judge_pb2.SubmitTests(dataset="mbpp", id="11"))
    assert request_from(message).tests == SubmitTests("mbpp", "11")
