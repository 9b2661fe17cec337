"""The four calls before a scripted judge: what a trainer gets, and what it gets when it asks again."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from builders.judge.sandbox import until
from builders.reward.service import TESTS, Served, post, served

from evalrun_client.fake_judge import FakeJudge
from evalrun_data.records import AssertTests, Problem, StdioTests
from evalrun_proto.judge.v1 import judge_pb2

START = {"instance_hash": "i", "ground_truth": TESTS}
PUBLIC = Problem(
    "d", "p", "Echo.", StdioTests(("1\n", "2\n"), ("1\n", "2\n"), ("public", "private")),
)  # fmt: skip


def script(request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict:
    """Print "hello" as an action; as an answer be right if it says so."""
    text = request.submission.text
    if not text.strip():
        return judge_pb2.Verdict(judged=True, final_status=judge_pb2.FINAL_STATUS_EMPTY_OUTPUT, pass_ratio=0.0)
    ratio = 1.0 if "right" in text else 0.5
    tests = [
        judge_pb2.TestResult(
            case_index=number, ran=True, stdout=judge_pb2.CutText(text="hello", full_length=5),
            status=judge_pb2.TEST_STATUS_SUCCESS if number < len(request.stdio.tests) * ratio
            else judge_pb2.TEST_STATUS_WRONG_ANSWER,
        )
        for number in range(len(request.stdio.tests))
    ]  # fmt: skip
    status = judge_pb2.FINAL_STATUS_SUCCESS if ratio == 1 else judge_pb2.FINAL_STATUS_WRONG_ANSWER
    return judge_pb2.Verdict(
        judged=True, accepted=ratio == 1, pass_ratio=ratio, final_status=status, tests=tests, code=text
    )


async def call(it: Served | str, name: str, body: object) -> tuple[int, Any]:
    status, answer, _ = await post(it if isinstance(it, str) else it.address, f"/{name}", body)
    return status, answer


async def started(it: Served, **more: object) -> str:
    status, answer = await call(it, "start_instance", START | more)
    assert status == 200, answer
    sid = answer["sid"]
    assert isinstance(sid, str)
    assert 0 <= int(sid) < 1 << 53
    return sid


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "sessions.sqlite3")


async def test_session_actions_show_output_and_the_session_gets_a_reward(store: str) -> None:
    async with served(FakeJudge(script), session_store=store) as it:
        sid = await started(it)
        assert await call(it, "process_action", {"sid": sid, "content": "wrong"}) == (
            200,
            {"content": "stdout:\nhello"},
        )
        assert await call(it, "process_action", {"sid": sid, "content": "right"}) == (
            200,
            {"content": "stdout:\nhello"},
        )
        assert await call(it, "postprocess", {"sid": sid}) == (200, {})
        reward = {
            "reward": 1.0, "f2p_count": 2, "f2p_total": 2, "p2p_count": 0, "p2p_total": 0, "accepted": True,
            "final_status": "success", "turns": 2,
        }  # fmt: skip
        assert await call(it, "compute_reward", {"sid": sid}) == (200, reward)
        asked = it.judge.requests
        assert await call(it, "compute_reward", {"sid": sid}) == (200, reward)
        assert it.judge.requests == asked
        assert it.value("evalrun_reward_sessions_total", step="started") == 1
        assert it.value("evalrun_reward_sessions_total", step="rewarded") == 1


async def test_a_session_outlives_the_service_and_the_files_that_it_was_started_from(store: str) -> None:
    async with served(FakeJudge(script), [PUBLIC], session_store=store) as it:
        status, answer = await call(it, "start_instance", {"instance_hash": "p"})
        assert status == 200
        await call(it, "process_action", {"sid": answer["sid"], "content": "right"})
    async with served(FakeJudge(script), session_store=store) as it:  # without the problem's file
        status, body = await call(it, "compute_reward", {"sid": answer["sid"]})
        assert (status, body["reward"], body["f2p_total"]) == (200, 1.0, 2)


async def test_actions_run_on_public_tests_alone(store: str) -> None:
    seen: list[judge_pb2.JudgeRequest] = []

    def watching(request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict:
        seen.append(request)
        return script(request)

    async with served(FakeJudge(watching), [PUBLIC], session_store=store) as it:
        _, answer = await call(it, "start_instance", {"instance_hash": "p", "run": "grpo"})
        status, body = await call(it, "process_action", {"sid": answer["sid"], "content": "right"})
    assert status == 200
    assert body["content"] == "Test 1: passed\ninput:\n1\nexpected:\n1\nprinted:\nhello"
    (request,) = seen
    assert [test.input for test in request.stdio.tests] == ["1\n"]
    assert (request.run, request.submission.language) == ("grpo", "python")


FUNCTION = Problem("d", "f", "Write f.", AssertTests(("assert f(1) == 1", "assert f(2) == 2"), "", "f"))


@pytest.mark.parametrize(
    ("problem", "start", "line"),
    [
        (FUNCTION, {}, "\n[submitted: 1 of 2 tests passed]"),
        (FUNCTION, {"action": "run"}, ""),
        (PUBLIC, {}, ""),
        (PUBLIC, {"action": "submit"}, "\n[submitted: 1 of 2 tests passed]"),
    ],
)
async def test_process_action_runs_or_submits_by_the_task(
    problem: Problem, start: dict[str, str], line: str, store: str
) -> None:
    def judge(request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict:
        verdict = script(request)
        if request.WhichOneof("tests") == "asserts" or len(request.stdio.tests) == 2:
            passed, failed = judge_pb2.TEST_STATUS_SUCCESS, judge_pb2.TEST_STATUS_WRONG_ANSWER
            del verdict.tests[:]
            verdict.tests.extend(judge_pb2.TestResult(status=status, ran=True) for status in (passed, failed))
        return verdict

    async with served(FakeJudge(judge), [problem], session_store=store) as it:
        _, answer = await call(it, "start_instance", {"instance_hash": problem.problem_id, **start})
        status, body = await call(it, "process_action", {"sid": answer["sid"], "content": "def f(x): return 1"})
        assert status == 200
        assert body["content"].endswith(f"hello{line}")
        status, body = await call(it, "process_action", {"sid": answer["sid"], "content": " "})
        assert (status, "submitted" in body["content"]) == (200, False)


async def test_an_action_that_cannot_be_submitted_takes_no_turn(store: str) -> None:
    def judge(request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict:
        if request.WhichOneof("tests") == "asserts":
            return judge_pb2.Verdict(judged=False, permanent=True)
        return script(request)

    async with served(FakeJudge(judge), [FUNCTION], session_store=store) as it:
        _, answer = await call(it, "start_instance", {"instance_hash": "f"})
        status, body = await call(it, "process_action", {"sid": answer["sid"], "content": "x"})
        assert (status, "content" in body) == (503, False)


async def test_retries_take_no_second_turn(store: str) -> None:
    async with served(FakeJudge(script, delay=0.05), session_store=store, max_turns=2) as it:
        sid = await started(it, request_id="one")
        assert await started(it, request_id="one") == sid
        assert await started(it, request_id="two") != sid
        status, answer = await call(it, "start_instance", START | {"request_id": "one", "shape": "sparse"})
        assert (status, "choose a new one" in answer["message"]) == (409, True)
        action = {"sid": sid, "content": "x", "turn": 0}
        answers = await asyncio.gather(*(call(it, "process_action", action) for _ in range(4)))
        assert {status for status, _ in answers} == {200}
        asked = it.judge.requests
        assert (await call(it, "process_action", {"sid": sid, "content": "x"}))[0] == 200
        assert it.judge.requests == asked
        assert (await call(it, "process_action", {"sid": sid, "content": "other", "turn": 0}))[0] == 409
        assert (await call(it, "process_action", {"sid": sid, "content": "x", "turn": 1}))[0] == 200
        status, answer = await call(it, "process_action", {"sid": sid, "content": "third"})
        assert (status, "--max-turns" in answer["message"]) == (413, True)
        rewards = await asyncio.gather(*(call(it, "compute_reward", {"sid": sid}) for _ in range(4)))
        assert [(status, body["turns"], body["reward"]) for status, body in rewards] == [(200, 2, 0.5)] * 4
        assert it.value("evalrun_reward_sessions_total", step="rewarded") == 1


async def test_a_closed_session_takes_no_action_and_an_empty_one_gets_zero(store: str) -> None:
    async with served(FakeJudge(script), session_store=store) as it:
        sid = await started(it)
        for _ in range(2):
            assert await call(it, "postprocess", {"sid": sid}) == (200, {})
        status, answer = await call(it, "process_action", {"sid": sid, "content": "x"})
        assert (status, "closed" in answer["message"]) == (409, True)
        status, answer = await call(it, "compute_reward", {"sid": sid})
        assert (status, answer["reward"], answer["final_status"]) == (200, 0.0, "empty_output")


@pytest.mark.parametrize("name", ["process_action", "postprocess", "compute_reward"])
@pytest.mark.parametrize("sid", ["12345", "x", "-1", str(1 << 63), 12345, -1, 1 << 70, 0.5, 1e300])
async def test_unknown_session_is_404_and_has_no_reward(name: str, sid: str | float, store: str) -> None:
    async with served(FakeJudge(script), session_store=store) as it:
        body = {"sid": sid} | ({"content": "x"} if name == "process_action" else {})
        status, answer = await call(it, name, body)
        assert status == 404
        assert "state lost" in answer["message"]
        assert "reward" not in answer
        assert it.value("evalrun_reward_request_seconds_count", reply="no_session") == 1


async def test_action_or_reward_not_judged_is_503_and_takes_no_turn(store: str) -> None:
    broken = [True]

    def sometimes(request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict:
        return judge_pb2.Verdict(judged=False, permanent=True) if broken[0] else script(request)

    async with served(FakeJudge(sometimes), session_store=store) as it:
        sid = await started(it)
        assert (await call(it, "process_action", {"sid": sid, "content": "right"}))[0] == 503
        broken[0] = False
        assert (await call(it, "process_action", {"sid": sid, "content": "right"}))[0] == 200
        broken[0] = True
        status, answer, headers = await post(it.address, "/compute_reward", {"sid": sid})
        assert (status, headers["Retry-After"], "reward" in answer) == (503, "1", False)
        broken[0] = False
        status, answer = await call(it, "compute_reward", {"sid": sid})
        assert (status, answer["reward"], answer["turns"]) == (200, 1.0, 1)


async def test_action_of_a_disconnected_caller_is_cancelled_and_takes_no_turn(store: str) -> None:
    async with served(FakeJudge(script, delay=30.0), session_store=store) as it:
        sid = await started(it)
        action = asyncio.create_task(call(it, "process_action", {"sid": sid, "content": "x"}))
        await until(lambda: it.judge.in_flight == 1)
        action.cancel()
        await asyncio.gather(action, return_exceptions=True)
        await until(lambda: it.judge.in_flight == 0)
        it.judge.delay = 0.0
        assert (await call(it, "process_action", {"sid": sid, "content": "y", "turn": 0}))[0] == 200


@pytest.mark.parametrize(
    ("name", "body", "status", "message"),
    [
        ("start_instance", {}, 400, "missing required field `instance_hash`"),
        ("start_instance", {"instance_hash": ""}, 400, "it is empty"),
        ("start_instance", {"instance_hash": "nine"}, 400, "unknown problem 'nine'"),
        ("start_instance", START | {"turns": 3}, 400, "unknown field `turns`"),
        ("start_instance", START | {"language": "cobol"}, 400, "cobol"),
        ("process_action", {"sid": None, "content": "x"}, 400, "sid"),
        ("postprocess", "{", 400, "body:"),
    ],
)
async def test_unusable_body_is_refused_with_the_reason(
    name: str, body: object, status: int, message: str, store: str
) -> None:
    async with served(FakeJudge(script), session_store=store) as it:
        given, answer = await call(it, name, body)
    assert given == status
    assert message in answer["message"]


async def test_request_beyond_limits_or_without_a_store_is_refused_with_the_flag(store: str) -> None:
    async with served(FakeJudge(script), session_store=store, max_sessions=1, max_session_characters=10_000) as it:
        sid = await started(it)
        status, answer, headers = await post(it.address, "/start_instance", START)
        assert (status, headers["Retry-After"], "--max-sessions" in answer["message"]) == (429, "10", True)
        status, answer = await call(it, "process_action", {"sid": sid, "content": "x" * 9000})
        assert (status, "--max-session-characters" in answer["message"]) == (413, True)
    async with served(FakeJudge(script)) as it:
        status, answer = await call(it, "start_instance", START)
        assert (status, "--session-store" in answer["message"]) == (501, True)


async def test_calls_need_the_token(store: str) -> None:
    async with served(FakeJudge(script), session_store=store, token="secret") as it:
        for name in ("start_instance", "process_action", "postprocess", "compute_reward"):
            assert (await call(it, name, {}))[0] == 401
