"""The recorded-completions endpoint, as the official client and a plain one see it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import openai
import pytest
from builders.generator.work import Processes, processes, until_in_flight, work_item

from evalrun_generator.endpoints.endpoint import HttpEndpoint, Timed, open_session
from evalrun_generator.endpoints.openai_api import request_for
from evalrun_generator.endpoints.retry import Blame, RequestFailure, RetryAction


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Processes]:
    async with processes(tmp_path) as running:
        yield running


async def ask(endpoint: str, *, key: str | None = None, deadline: float = 60.0) -> Timed | RequestFailure:
    async with open_session(key) as session:
        there = HttpEndpoint(session, endpoint, "recorded")
        return await there.ask(request_for(work_item(), "recorded"), deadline)


async def test_official_client_gets_whole_and_streamed_answers(started: Processes) -> None:
    endpoint = await started.recorded_here("--echo-tokens", "40")
    async with openai.AsyncOpenAI(base_url=f"{endpoint}/v1", api_key="unused", max_retries=0) as client:
        assert [model.id async for model in client.models.list()] == ["recorded"]
        whole = await client.chat.completions.create(
            model="recorded", messages=[{"role": "user", "content": "hi"}], n=2
        )
        assert whole.choices[1].message.content == "word " * 40
        assert whole.choices[0].finish_reason == "stop"
        assert whole.usage is not None
        assert whole.usage.completion_tokens == 80
        stream = await client.chat.completions.create(
            model="recorded",
            messages=[{"role": "user", "content": "hi"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == "word " * 40
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 40
        completion = await client.completions.create(model="recorded", prompt="def f():")
        assert completion.choices[0].text == "word " * 40
        streamed = await client.completions.create(model="recorded", prompt="def f():", stream=True)
        assert "".join([chunk.choices[0].text async for chunk in streamed]) == "word " * 40


async def test_official_client_raises_the_matching_error_classes(started: Processes) -> None:
    endpoint = await started.recorded_here("--echo-tokens", "4")
    async with openai.AsyncOpenAI(base_url=f"{endpoint}/v1", api_key="unused", max_retries=0) as client:
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "hi"}])
        assert unknown.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError):
            await client.chat.completions.create(model="recorded", messages=[])
        with pytest.raises(openai.NotFoundError):
            await client.embeddings.create(model="recorded", input="hi")


async def test_health_needs_no_token_but_the_model_list_does(started: Processes) -> None:
    endpoint = await started.recorded("--echo-tokens", "4", environment={"EVALRUN_RECORDED_TOKEN": "key"})
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{endpoint.address}/health") as health:
            assert health.status == 200
        async with session.get(f"{endpoint.address}/v1/models") as models:
            assert models.status == 401
            assert json.loads(await models.read())["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(
    ("kind", "blame", "reason"),
    [
        ("500", Blame.SUSPECT, "HTTP 500: injected fault (--fault-rate)"),
        ("drop", Blame.SUSPECT, "ServerDisconnectedError"),
        ("429", Blame.BUSY, "HTTP 429: injected fault: too many requests"),
        ("hang", Blame.SUSPECT, "no answer within 0.2 s"),
    ],
)
async def test_injected_faults_are_recognized_by_the_generator(
    started: Processes, kind: str, blame: Blame, reason: str
) -> None:
    endpoint = await started.recorded_here(
        "--echo-tokens", "4", "--fault-rate", "1", "--fault-kinds", kind, "--retry-after-seconds", "3"
    )
    outcome = await ask(endpoint, deadline=0.2 if kind == "hang" else 60.0)
    assert isinstance(outcome, RequestFailure)
    assert (outcome.action, outcome.blame) == (RetryAction.RETRY, blame)
    assert outcome.reason.startswith(reason)
    assert outcome.retry_after == (3.0 if kind == "429" else None)


async def test_dropped_stream_breaks_off_after_its_first_chunk(started: Processes) -> None:
    endpoint = await started.recorded_here("--echo-tokens", "40", "--fault-rate", "1", "--fault-kinds", "drop")
    body = {"model": "recorded", "prompt": "hi", "stream": True}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{endpoint}/v1/completions", json=body) as response,
    ):
        first = await response.content.readuntil(b"\n\n")
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.content.read()
    assert json.loads(first.removeprefix(b"data: "))["choices"][0]["text"] == "word word word w"


async def test_requests_beyond_max_concurrency_wait_for_earlier_requests(started: Processes) -> None:
    endpoint = await started.recorded_here(
        "--echo-tokens",
        "10",
        "--latency-seconds",
        "0.1",
        "--latency-seconds-per-token",
        "0.01",
        "--max-concurrency",
        "2",
    )
    begun = time.perf_counter()
    outcomes = await asyncio.gather(*(ask(endpoint) for _ in range(4)))
    assert all(isinstance(outcome, Timed) for outcome in outcomes)
    assert time.perf_counter() - begun >= 0.4  # two at a time, 0.2 s each


async def test_sigterm_ends_the_server_though_a_request_hangs(started: Processes) -> None:
    endpoint = await started.recorded("--echo-tokens", "4", "--fault-rate", "1", "--fault-kinds", "hang")
    asking = asyncio.create_task(ask(endpoint.address, deadline=60.0))
    await until_in_flight(endpoint.address, 1)
    endpoint.process.terminate()
    assert await endpoint.wait() == 0
    assert isinstance(await asking, RequestFailure)


async def test_drain_lets_requests_end_until_its_time_limit(started: Processes) -> None:
    for latency, drain, ended in (("0.3", "60", Timed), ("60", "1", RequestFailure)):
        endpoint = await started.recorded(
            "--echo-tokens", "4", f"--latency-seconds={latency}", f"--drain-seconds={drain}"
        )
        asking = asyncio.create_task(ask(endpoint.address))
        await until_in_flight(endpoint.address, 1)
        endpoint.process.terminate()
        assert isinstance(await asking, ended)
        assert await endpoint.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "pass --problems and --responses, or --echo-tokens"),
        (["--echo-tokens", "3", "--problems", "x"], "--echo-tokens excludes --problems and --responses"),
        (["--echo-tokens", "3", "--fault-rate", "2"], "--fault-rate"),
        (["--problems", "nowhere.jsonl", "--responses", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
async def test_recorded_endpoint_with_bad_input_ends_with_code_2_and_a_message(
    started: Processes, arguments: list[str], message: str
) -> None:
    process = await started.start("evalrun_generator.recorded", arguments)
    assert await process.wait() == 2
    assert message in process.errors.splitlines()[-1]
