"""The trainers' client against the real HTTP server: batches, replicas that go, refusals, several threads."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from builders.ports import free_port
from builders.reward.service import ECHO, TESTS, WRONG, served

from evalrun_client.fake_judge import FakeJudge
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_trainers.client import NotJudgedError, RefusedError, Result, RewardClient
from evalrun_trainers.options import Options
from evalrun_trainers.samples import make_sample
from evalrun_trainers.trl_reward import code_reward
from evalrun_trainers.verl_reward import compute_score, compute_score_async, compute_score_only


async def asked(client: RewardClient, answers: Sequence[str]) -> list[Result]:
    return await asyncio.to_thread(client.results, [make_sample("d", text, TESTS) for text in answers])


def mixed(number: int) -> list[str]:
    return [ECHO if index % 3 else WRONG for index in range(number)]


def right_for(results: Sequence[Result]) -> bool:
    return [result["reward"] for result in results] == [1.0 if index % 3 else 0.0 for index in range(len(results))]


async def test_samples_of_many_callers_are_sent_in_few_requests_and_each_gets_its_result() -> None:
    async with served() as it:
        client = RewardClient(Options(url=it.address, linger_seconds=5.0, max_batch=64))
        results = await asked(client, mixed(256))
        assert right_for(results)
        requests = it.value("evalrun_reward_request_seconds_count", reply="done")
    assert 4 <= requests <= 8
    assert client.counts == {"judged": 256}


async def test_a_replica_that_is_killed_under_load_costs_no_reward() -> None:
    """Two replicas; one closes every connection in the middle of its work, and does not come back."""
    judge = FakeJudge(delay=0.05)
    async with (
        served(judge, in_flight=32) as stays,
        served(FakeJudge(delay=0.05), in_flight=8, drain_seconds=0) as goes,
    ):
        options = Options(url=f"{goes.address},{stays.address}", max_batch=16, timeout_seconds=300)
        client = RewardClient(options)
        working = asyncio.create_task(asked(client, mixed(600)))
        while goes.judge.requests < 20:  # noqa: ASYNC110 - the other's work brings it about
            await asyncio.sleep(0.01)
        await goes.service.stop(0.0)
        results = await working
    assert right_for(results)
    assert stays.judge.requests > 0
    assert client.counts == {"judged": 600}


async def test_client_waits_for_a_full_queue() -> None:
    async with served(FakeJudge(delay=0.01), queue_limit=40) as it:
        client = RewardClient(Options(url=it.address, max_batch=10, timeout_seconds=60))
        assert right_for(await asked(client, mixed(120)))
        assert it.value("evalrun_reward_request_seconds_count", reply="queue_full") > 0


async def test_batch_that_is_too_large_is_sent_in_parts() -> None:
    async with served(max_samples=5) as it:
        client = RewardClient(Options(url=it.address, linger_seconds=0.1))
        assert right_for(await asked(client, mixed(33)))


async def test_unreachable_service_is_not_judged_and_never_a_zero() -> None:
    client = RewardClient(Options(url=f"http://127.0.0.1:{free_port()}", timeout_seconds=0.5))
    (result,) = await asked(client, [ECHO])
    assert (result["outcome"], result["reward"]) == ("not_judged", None)
    assert "no answer within 0.5 s" in result["reason"]
    assert "refused" in result["reason"]


async def test_wrong_token_raises_at_once_with_the_message_of_the_service() -> None:
    async with served(token="secret") as it:
        with pytest.raises(RefusedError, match="401: send the service's token"):
            await asked(RewardClient(Options(url=it.address, token="other")), [ECHO])
        client = RewardClient(Options(url=it.address, token="secret"))
        assert right_for(await asked(client, mixed(3)))


@asynccontextmanager
async def answering(*answers: web.Response) -> AsyncIterator[str]:
    """Serve these answers in turn, and after them a reward of 1; gives the address."""
    given = iter(answers)

    async def answer(_: web.Request) -> web.Response:
        judged = {"results": [{"outcome": "judged", "reward": 1.0}]}
        return next(given, None) or web.json_response(judged)

    runner = web.AppRunner(app := web.Application())
    app.router.add_post("/v1/rewards", answer)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port := free_port()).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def test_refusal_that_is_no_json_raises_an_error() -> None:
    async with answering(web.Response(text="<html>", status=404)) as url:
        with pytest.raises(RefusedError, match="404: <html>"):
            await asked(RewardClient(Options(url=url)), [ECHO])


async def test_refusal_by_a_proxy_raises_instead_of_marking_samples_invalid() -> None:
    async with answering(*[web.Response(text="plain HTTP was sent to an HTTPS port", status=400)] * 3) as url:
        with pytest.raises(RefusedError, match="400"):
            await asked(RewardClient(Options(url=url)), [ECHO, ECHO])


async def test_success_that_is_no_json_is_retried() -> None:
    """A proxy between trainer and service answers with a page of its own while the service restarts."""
    async with answering(web.Response(text="<html>"), web.Response(text="")) as url:
        (result,) = await asked(RewardClient(Options(url=url)), [ECHO])
    assert (result["outcome"], result["reward"]) == ("judged", 1.0)


async def test_success_without_results_is_refused_as_another_server() -> None:
    async with answering(web.json_response({"status": "ok"})) as url:
        with pytest.raises(RefusedError, match="0 results for 1 samples: no reward service"):
            await asked(RewardClient(Options(url=url)), [ECHO])


async def test_functions_for_verl_and_trl_return_the_rewards_of_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as it:
        url = it.address
        whole = await asyncio.to_thread(compute_score, "d", ECHO, TESTS, {"index": 1}, url=url)
        assert (whole["score"], whole["acc"], whole["judged"]) == (1.0, 1.0, 1.0)
        again = await compute_score_async("d", WRONG, TESTS, None, url=url, shape="sparse", reward_router_address=None)
        assert again["score"] == 0.0
        assert await asyncio.to_thread(compute_score_only, "d", ECHO, TESTS, url=url) == 1.0
        monkeypatch.setenv("EVALRUN_REWARD_URL", url)
        logs: list[tuple[str, float]] = []
        columns = {"ground_truth": [TESTS, TESTS], "log_metric": lambda name, value: logs.append((name, value))}
        rewards = await asyncio.to_thread(code_reward, ["p", "p"], [ECHO, WRONG], **columns)
        assert rewards == [1.0, 0.0]
        assert logs == [("evalrun/not_judged", 0.0)]


async def test_sample_not_judged_raises_or_gets_the_configured_reward() -> None:
    def unknown(request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict:
        return judge_pb2.Verdict(judged=False, permanent=True)

    async with served(FakeJudge(unknown)) as it:
        with pytest.raises(NotJudgedError):
            await compute_score_async("d", ECHO, TESTS, url=it.address)
        named = await compute_score_async("d", ECHO, TESTS, url=it.address, on_not_judged=-0.25)
    assert (named["score"], named["judged"]) == (-0.25, 0.0)


async def test_client_shared_by_threads_gives_each_its_reward() -> None:
    async with served() as it:
        client = RewardClient(Options(url=it.address))

        def one(number: int) -> float:
            return float(client.submit(make_sample("d", ECHO if number % 2 else WRONG, TESTS)).result()["reward"])

        with ThreadPoolExecutor(32) as pool:
            rewards = await asyncio.to_thread(lambda: list(pool.map(one, range(300))))
    assert rewards == [float(number % 2) for number in range(300)]


def test_trainer_modules_import_only_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "import evalrun_trainers.verl_reward, evalrun_trainers.trl_reward\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - set(sys.stdlib_module_names) - {'evalrun_trainers'}))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "[]"
