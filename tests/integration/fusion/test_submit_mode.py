"""Answers judged by a SandboxFusion server's own tests: what is asked of a scripted server, and what real ones say.

The real ones: our own server, and a stock server where `EVALRUN_TEST_SANDBOXFUSION` names one (its samples are used).
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from builders.fusion.clients import STDIO_ROW, sandbox, stock_address

from evalrun_executor.slots import Slots
from evalrun_judge.families.submit import records_of_submission
from evalrun_judge.sandboxes import RunRefusedError, SandboxFailedError, SubmitCall, SubmitReply
from evalrun_judge.sandboxes.fusion import FusionSandbox
from evalrun_judge.sandboxes.fusion_datasets import FusionDatasets
from evalrun_judge.sandboxes.fusion_http import FusionServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

Answer = Callable[[dict[str, Any]], web.Response]


def call(code: str = "print(3)", *, dataset: str = "mbpp", row: int | str = 11, seconds: float = 5.0) -> SubmitCall:
    return SubmitCall(dataset, row, f"```python\n{code}\n```\n", "python", seconds)


def case(passed: bool, *, status: str = "Finished", code: int | None = 0) -> dict[str, Any]:
    run = {"status": status, "execution_time": 0.1, "return_code": code, "stdout": "3\n", "stderr": ""}
    info = {"status": "Success" if passed or code == 0 else "Failed", "message": "", "run_result": run}
    return {"passed": passed, "exec_info": info, "test_info": {"input": {"stdin": "1"}, "output": {"stdout": "3"}}}


PASSED, WRONG = case(passed=True), case(passed=False)
LATE = case(passed=False, status="TimeLimitExceeded", code=None)


def said(*cases: dict[str, Any]) -> Answer:
    accepted = all(each["passed"] for each in cases)
    return lambda body: web.json_response(
        {"id": body["id"], "accepted": accepted, "extracted_code": "x", "tests": list(cases)}
    )


@asynccontextmanager
async def scripted(
    *answers: Answer, on_call: Callable[[], None] = lambda: None
) -> AsyncIterator[tuple[FusionDatasets, list[dict[str, Any]]]]:
    """The datasets of a server that lists `mbpp` and gives these answers to `/submit`, in order."""
    asked: list[dict[str, Any]] = []
    left = list(answers)

    async def submit(request: web.Request) -> web.Response:
        asked.append(await request.json())
        on_call()
        return left.pop(0)(asked[-1])

    async def listed(_: web.Request) -> web.Response:
        return web.json_response(["mbpp"])

    application = web.Application()
    application.router.add_post("/submit", submit)
    application.router.add_get("/list_datasets", listed)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server = FusionServer(f"http://127.0.0.1:{runner.addresses[0][1]}")
    try:
        yield FusionDatasets(server), asked
    finally:
        await server.close()
        await runner.cleanup()


def switches(asked: list[dict[str, Any]]) -> list[bool]:
    return ["run_all_cases" in body["config"]["extra"] for body in asked]


async def test_only_program_failing_otherwise_than_by_timeout_is_asked_for_every_case() -> None:
    async with scripted(said(PASSED, PASSED)) as (datasets, asked):
        assert (await datasets.submit(call(), Slots(2), "none")).accepted
        assert switches(asked) == [False]
    async with scripted(said(PASSED, WRONG), said(PASSED, WRONG, PASSED)) as (datasets, asked):
        reply = await datasets.submit(call(), Slots(2), "none")
        assert (len(reply.tests), reply.complete, switches(asked)) == (3, True, [False, True])


async def test_a_program_that_failed_once_is_not_accepted_by_another_run() -> None:
    async with scripted(said(PASSED, WRONG), said(PASSED, PASSED)) as (datasets, _):
        reply = await datasets.submit(call(), Slots(2), "none")
    assert (reply.accepted, reply.complete, len(reply.tests)) == (False, False, 2)


async def test_timeout_of_wall_time_is_decided_again_alone() -> None:
    called = asyncio.Event()
    async with scripted(said(LATE), said(PASSED), on_call=called.set) as (datasets, asked):
        slots = Slots(2)
        other = await slots.take(1)
        judging = asyncio.create_task(datasets.submit(call(), slots, "none"))
        await called.wait()
        done, _ = await asyncio.wait((judging,), timeout=0.1)
        assert not done
        assert len(asked) == 1  # it waits for the other call to end
        slots.give_back(other)
        assert (await judging).accepted
    async with scripted(said(LATE), said(LATE)) as (datasets, asked):
        reply = await datasets.submit(call(), Slots(2), "none")
        assert ([test.run and test.run.confirmed for test in reply.tests], reply.complete) == ([True], False)
        assert switches(asked) == [False, False]  # a program that never ends would take the time of every case
    async with scripted(said(LATE)) as (datasets, asked):
        assert not (await datasets.submit(call(), None, "full")).complete  # our own sandbox has confirmed it


async def test_a_dataset_that_the_server_does_not_list_is_not_asked_for() -> None:
    async with scripted() as (datasets, asked):
        with pytest.raises(RunRefusedError, match="'live_code_bench_v1' is none of the server's /list_datasets: mbpp"):
            await datasets.submit(call(dataset="live_code_bench_v1"), None, "full")
        assert asked == []


@pytest.mark.parametrize(
    ("status", "detail", "error"),
    [
        (500, "failed to request sandbox: x", SandboxFailedError),
        (500, "'NoneType' object is not iterable", RunRefusedError),
        (400, "no eval class found", RunRefusedError),
        (422, "bad", RunRefusedError),
        (503, "later", SandboxFailedError),
    ],
)
async def test_error_answer_shows_no_traceback(status: int, detail: str, error: type[Exception]) -> None:
    answer = {"detail": detail, "traceback": ["File /secret/place"]}
    async with scripted(lambda _: web.json_response(answer, status=status)) as (datasets, _):
        with pytest.raises(error) as raised:
            await datasets.submit(call(), Slots(1), "none")
    assert "/secret/place" not in str(raised.value)


MBPP_11 = {
    "id": 11, "content": "Remove the first and last occurrence of a character.",
    "labels": {"test_setup_code": "", "challenge_test_list": []},
    "test_list": [
        'assert remove_Occ("hello","l") == "heo"', 'assert remove_Occ("abcda","a") == "bcd"',
        'assert remove_Occ("PHP","P") == "H"',
    ],
}  # fmt: skip
RIGHT = """def remove_Occ(s, ch):
    s = s.replace(ch, "", 1)
    at = s.rfind(ch)
    return s[:at] + s[at + 1:]"""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["own server", "stock"])
async def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[FusionSandbox]:
    if request.param == "own server":
        rows = tmp_path_factory.mktemp("rows")
        write_rows(rows)
        with sandbox("--fusion-datasets", rows) as url:
            async with FusionSandbox(url, nonces=secrets.token_bytes) as client:
                assert (await client.describe()).submits
                yield client
    else:
        async with FusionSandbox(stock_address(), nonces=secrets.token_bytes) as client:
            assert (await client.describe()).submits
            yield client


def write_rows(directory: Path) -> None:
    (directory / "mbpp.jsonl").write_text(json.dumps(MBPP_11) + "\n")
    (directory / "code_contests.jsonl").write_text(json.dumps(STDIO_ROW) + "\n")


def statuses(reply: SubmitReply) -> list[str]:
    return [record.status.value for record in records_of_submission(reply)]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (RIGHT, "success"),
        ("def remove_Occ(s, ch):\n    return s", "wrong_answer"),
        ("def remove_Occ(s, ch):\n    return s.nothing()", "runtime_error"),
        ("def remove_Occ(s, ch):\n    return (", "compile_error"),
        ("while True: pass", "timeout"),
        ("import os\nos._exit(0)", "success"),  # why these results are marked forgeable
    ],
)
async def test_submission_with_assertions_of_the_server_gets_its_status(
    server: FusionSandbox, code: str, status: str
) -> None:
    reply = await server.submit(call(code, seconds=1.0 if status == "timeout" else 10.0))
    assert (statuses(reply), reply.complete) == ([status], True)
    assert reply.code.strip() == code


async def test_failing_program_reports_every_case(server: FusionSandbox) -> None:
    reply = await server.submit(call('print("x")', dataset="code_contests", row=7, seconds=10.0))
    assert (reply.accepted, reply.complete) == (False, True)
    assert len(reply.tests) >= len(STDIO_ROW["test"])
    assert set(statuses(reply)) == {"wrong_answer"}
    first = records_of_submission(reply)[0]
    assert (first.stdout.text, first.exit_code, first.input.text != "") == ("x\n", 0, True)


async def test_unknown_rows_and_datasets_are_refused(server: FusionSandbox) -> None:
    with pytest.raises(RunRefusedError, match=r"no such row|has no row"):
        await server.submit(call(row=999_999))
    with pytest.raises(RunRefusedError, match="none of the server's /list_datasets"):
        await server.submit(call(dataset="made_up"))


async def test_sandbox_without_datasets_refuses_with_the_missing_flag() -> None:
    with sandbox() as url:
        async with FusionSandbox(url, nonces=secrets.token_bytes) as client:
            await client.describe()
            with pytest.raises(RunRefusedError, match=r"serves no datasets .* with --fusion-datasets DIR"):
                await client.submit(call())
