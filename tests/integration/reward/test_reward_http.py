"""The HTTP server before a scripted judge: what a trainer gets for what it posts."""

import asyncio
import json
from collections import Counter
from pathlib import Path

import aiohttp
import pytest
from builders.judge.sandbox import until
from builders.reward.service import ECHO, TESTS, WRONG, batch, post, served

from evalrun_client.fake_judge import FakeJudge, unavailable
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_reward.sessions.routes import SESSION_PATHS


async def test_batch_gets_one_result_per_sample_in_its_order() -> None:
    async with served() as it:
        status, body, _ = await post(it.address, "/v1/rewards", batch(ECHO, WRONG, ECHO))
        assert status == 200
        assert [(r["id"], r["outcome"], r["reward"], r["accepted"]) for r in body["results"]] == [
            ("0", "judged", 1.0, True), ("1", "judged", 0.0, False), ("2", "judged", 1.0, True),
        ]  # fmt: skip
        assert (body["judged"], body["not_judged"], body["invalid"]) == (3, 0, 0)
        assert it.value("evalrun_reward_samples_total", outcome="judged") == 3


async def test_sample_not_judged_has_no_reward_and_is_counted() -> None:
    def script(request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict:
        return judge_pb2.Verdict(judged=False, permanent=True, final_status=judge_pb2.FINAL_STATUS_API_ERROR)

    async with served(FakeJudge(script)) as it:
        _, body, _ = await post(it.address, "/v1/rewards", batch(ECHO))
        (result,) = body["results"]
        assert (result["outcome"], result["reward"], result["reason"]) == (
            "not_judged", None, "the judge could not tell",
        )  # fmt: skip
        assert it.value("evalrun_reward_samples_total", outcome="not_judged") == 1


async def test_bad_sample_is_invalid_and_the_others_are_judged() -> None:
    samples = [{"response": ECHO, "ground_truth": TESTS}, {"response": ECHO}, {"response": ECHO, "problem_id": "nine"}]
    async with served() as it:
        status, body, _ = await post(it.address, "/v1/rewards", {"samples": samples})
    assert status == 200
    assert [result["outcome"] for result in body["results"]] == ["judged", "invalid", "invalid"]
    assert "samples sample 2: unknown problem 'nine'" in body["results"][2]["reason"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("{", 400, "body:"),
        ('{"more": ' + "[" * 100_000 + "]" * 100_000 + "}", 400, "body:"),
        ({"samples": [{"answer": "x"}]}, 400, "unknown field `answer`"),
        ({"samples": [{"ground_truth": TESTS}]}, 400, "missing required field `response`"),
        (batch(ECHO, shape="triangular"), 400, "shape"),
        (batch(ECHO, WRONG, ECHO), 413, "3 samples, and a request takes 2 (--max-samples)"),
        ({"samples": [{"response": "x" * 1_100_000}]}, 413, "larger than 1 MiB"),
    ],
)
async def test_unusable_body_is_refused_with_the_reason(body: object, status: int, message: str) -> None:
    async with served(max_samples=2, max_request_mib=1) as it:
        given, answer, _ = await post(it.address, "/v1/rewards", body)
    assert given == status
    assert message in answer["message"]


async def test_every_route_except_health_and_openapi_needs_the_token() -> None:
    async with served(token="secret") as it:
        assert (await post(it.address, "/v1/rewards", batch(ECHO)))[0] == 401
        assert (await post(it.address, "/get_reward", {}, {"Authorization": "Bearer wrong"}))[0] == 401
        given = await post(it.address, "/v1/rewards", batch(ECHO), {"Authorization": "Bearer secret"})
        assert given[0] == 200
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{it.address}/healthz") as health:
                assert (health.status, (await health.json())["status"]) == (200, "ok")
            async with session.get(f"{it.address}/openapi.json") as description:
                document = await description.json()
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]) == {"/v1/rewards", "/get_reward", "/healthz", "/openapi.json", *SESSION_PATHS}
    assert all(reference[1:-1] in json.dumps(document) for reference in ('"Sample"', '"Result"'))


async def test_a_full_queue_answers_429_with_the_time_to_come_back_and_leaves_room_for_another_run() -> None:
    async with served(FakeJudge(delay=30.0), queue_limit=10) as it:
        greedy = asyncio.create_task(post(it.address, "/v1/rewards", batch(*[ECHO] * 8, run="greedy")))
        await until(lambda: it.judge.in_flight == 8)
        status, body, headers = await post(it.address, "/v1/rewards", batch(ECHO, run="greedy"))
        assert status == 429
        assert int(headers["Retry-After"]) >= 1
        assert body["retry_after_ms"] >= 100
        other = asyncio.create_task(post(it.address, "/v1/rewards", batch(ECHO, run="other")))
        await until(lambda: it.judge.in_flight == 9)
        assert it.value("evalrun_reward_request_seconds_count", reply="queue_full") == 1
        greedy.cancel()
        other.cancel()
        await asyncio.gather(greedy, other, return_exceptions=True)
        await until(lambda: it.judge.in_flight == 0)  # a trainer that goes takes its samples back, down to the judge


async def test_a_deadline_is_passed_on_and_leaves_samples_not_judged() -> None:
    seen: list[float] = []

    def script(request: judge_pb2.JudgeRequest) -> judge_pb2.StreamFailure:
        seen.append(request.deadline_seconds)
        return unavailable()

    async with served(FakeJudge(script)) as it:
        status, body, _ = await post(it.address, "/v1/rewards", batch(ECHO), {"evalrun-timeout-ms": "600"})
    assert status == 200
    assert body["results"][0]["outcome"] == "not_judged"
    assert "deadline" in body["results"][0]["reason"]
    assert seen
    assert all(0 < seconds <= 0.6 for seconds in seen)


async def test_judge_requests_carry_the_run_of_their_samples() -> None:
    runs: list[str] = []

    def script(request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict:
        runs.append(request.run)
        return judge_pb2.Verdict(judged=True, accepted=True, pass_ratio=1.0)

    async with served(FakeJudge(script)) as it:
        await post(it.address, "/v1/rewards", batch(ECHO, run="grpo-7b"))
        query = {"query": ["p" + ECHO], "prompts": ["p"], "labels": [json.dumps(TESTS)]}
        await post(it.address, "/get_reward?run=openrlhf", query)
    assert runs == ["grpo-7b", "openrlhf"]


async def test_token_of_a_caller_decides_its_run_instead_of_the_request(tmp_path: Path) -> None:
    runs: list[str] = []

    def script(request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict:
        runs.append(request.run)
        return judge_pb2.Verdict(judged=True, accepted=True, pass_ratio=1.0)

    (callers := tmp_path / "callers").write_text("grpo-7b s3cret\n")
    async with served(FakeJudge(script), callers_file=callers, token="main") as it:
        for token in ("s3cret", "main"):
            headers = {"Authorization": f"Bearer {token}"}
            assert (await post(it.address, "/v1/rewards", batch(ECHO, run="dpo"), headers))[0] == 200
        assert (await post(it.address, "/v1/rewards", batch(ECHO), {"Authorization": "Bearer wrong"}))[0] == 401
        assert (await post(it.address, "/v1/rewards", batch(ECHO), {}))[0] == 401
        assert it.value("evalrun_reward_run_samples_total", run="grpo-7b", outcome="judged") == 1
        assert it.value("evalrun_reward_run_samples_total", run="other", outcome="judged") == 1
    assert runs == ["grpo-7b", "dpo"]


async def test_run_gets_its_declared_share_of_the_judge() -> None:
    """Two runs with more samples than places: while both wait, three of four places are the first one's."""
    order: list[str] = []

    def script(request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict:
        order.append(request.run)
        return judge_pb2.Verdict(judged=True, accepted=True, pass_ratio=1.0)

    async with served(FakeJudge(script, delay=0.05), in_flight=8, share=["heavy=3"]) as it:
        await asyncio.gather(
            *(post(it.address, "/v1/rewards", batch(*[ECHO] * 60, run=run)) for run in ("heavy", "light"))
        )
        heavy = it.value("evalrun_reward_run_judge_seconds_total", run="heavy")
    assert heavy > 60 * 0.05 * 0.9
    first = Counter(order[:72])  # both wait: the heavy one's last is the 80th or so
    assert first["heavy"] / 72 == pytest.approx(0.75, abs=0.075)


async def test_a_run_of_a_higher_priority_overtakes_a_storm_that_came_first() -> None:
    order: list[str] = []
    has_begun = asyncio.Event()

    def script(request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict:
        order.append(request.run)
        has_begun.set()
        return judge_pb2.Verdict(judged=True, accepted=True, pass_ratio=1.0)

    async with served(FakeJudge(script, delay=0.02), in_flight=4, priority=["nightly=high"]) as it:
        storm = asyncio.create_task(post(it.address, "/v1/rewards", batch(*[ECHO] * 120, run="storm")))
        await has_begun.wait()
        await post(it.address, "/v1/rewards", batch(*[ECHO] * 40, run="nightly"))
        await storm
        assert it.value("evalrun_reward_run_samples_total", run="nightly", outcome="judged") == 40
    meanwhile = order[order.index("nightly") : 160 - order[::-1].index("nightly")]
    assert meanwhile.count("storm") < 20  # equal shares would give it 40
    assert order[-1] == "storm"


async def test_sparse_reward_asks_the_judge_to_stop_at_the_first_failure() -> None:
    asked: list[tuple[int, bool]] = []

    def script(request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict:
        asked.append((request.stop_after_timeouts, request.stop_at_failure))
        return judge_pb2.Verdict(judged=True, accepted=True, pass_ratio=1.0)

    async with served(FakeJudge(script)) as it:
        for shape in ("dense", "sparse"):
            await post(it.address, "/v1/rewards", batch(ECHO, shape=shape))
        query = {"query": ["p" + ECHO], "prompts": ["p"], "labels": [json.dumps(TESTS)]}
        await post(it.address, "/get_reward?shape=sparse", query)
    assert asked == [(3, False), (1, True), (1, True)]


async def test_openrlhf_gets_rewards_and_never_a_zero_for_samples_not_judged() -> None:
    query = {"query": ["<s>Echo." + ECHO + "<|im_end|>"], "prompts": ["Echo."], "labels": [json.dumps(TESTS)]}
    async with served() as it:
        status, body, _ = await post(it.address, "/get_reward", query)
        assert (status, body["rewards"], body["scores"]) == (200, [1.0], [1.0])
        status, body, _ = await post(it.address, "/get_reward", query | {"labels": ["42"]})
        assert status == 422
        assert "label 0" in body["message"]

    def unknown(request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict:
        return judge_pb2.Verdict(judged=False, permanent=True)

    async with served(FakeJudge(unknown)) as it:
        status, body, headers = await post(it.address, "/get_reward", query)
        assert status == 503
        assert headers["Retry-After"] == "1"
    async with served(FakeJudge(unknown), not_judged_reward=-0.25) as it:
        status, body, _ = await post(it.address, "/get_reward", query)
        assert (status, body["rewards"], body["extra_logs"]["judged"]) == (200, [-0.25], [0.0])


async def test_draining_service_answers_requests_in_flight() -> None:
    async with served(FakeJudge(delay=0.3)) as it:
        begun = asyncio.create_task(post(it.address, "/v1/rewards", batch(ECHO)))
        await until(lambda: it.judge.in_flight)
        await it.service.stop(5.0)
        status, body, _ = await begun
    assert (status, body["judged"]) == (200, 1)
