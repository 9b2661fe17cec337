"""The sandbox as a service: its own process, over HTTP."""

import asyncio
import signal
import sys
from pathlib import Path

import aiohttp
import msgspec
import pytest
from builders.judge.sandbox import living_children, programs_below, request, service, state_of, until

from evalrun_executor.api import Busy, Refused, RunReply, RunRequest, SandboxInfo


async def post(session: aiohttp.ClientSession, address: str, wanted: RunRequest) -> tuple[int, bytes]:
    async with session.post(f"{address}/v1/run", data=msgspec.msgpack.encode(wanted)) as answer:
        return answer.status, await answer.read()


async def test_http_routes_answer_as_documented() -> None:
    async with service("--slots", "2") as (address, _), aiohttp.ClientSession() as session:
        async with session.get(f"{address}/v1/ping") as answer:
            assert (answer.status, await answer.json()) == (200, "pong")
        async with session.get(f"{address}/health") as answer:
            assert answer.status == 200
        async with session.get(f"{address}/list_datasets") as answer:
            assert (answer.status, "--fusion-datasets DIR" in await answer.text()) == (404, True)
        async with session.get(f"{address}/v1/info") as answer:
            info = msgspec.json.decode(await answer.read(), type=SandboxInfo)
        assert (info.slots, "python" in info.languages) == (2, True)
        status, body = await post(session, address, request("print(input())", b"a", b"b"))
        reply = msgspec.msgpack.decode(body, type=RunReply)
        assert (status, [run.stdout for run in reply.runs], reply.level) == (200, [b"a\n", b"b\n"], info.level)
        async with session.get(f"{address}/metrics") as answer:
            text = await answer.text()
        assert 'evalrun_sandbox_slots{state="free"} 2.0' in text
        assert 'evalrun_sandbox_runs_total{end="exited"} 2.0' in text


async def test_bad_requests_are_refused_with_a_reason() -> None:
    async with service("--slots", "1") as (address, _), aiohttp.ClientSession() as session:
        async with session.post(f"{address}/v1/run", data=b"\xc1") as answer:
            assert answer.status == 400
            assert "body" in msgspec.msgpack.decode(await answer.read(), type=Refused).message
        for wanted in (request("x", mode="checks"), request("x", language="cobol")):
            status, body = await post(session, address, wanted)
            assert status == 400
            assert msgspec.msgpack.decode(body, type=Refused).message


async def test_requests_beyond_slots_and_queue_are_429_with_a_retry_delay() -> None:
    async with service("--slots", "1", "--queue", "1") as (address, _), aiohttp.ClientSession() as session:
        wanted = request("import time\ntime.sleep(0.5)")
        answers = await asyncio.gather(*[post(session, address, wanted) for _ in range(4)])
        assert sorted(status for status, _ in answers) == [200, 200, 429, 429]
        busy = [msgspec.msgpack.decode(body, type=Busy) for status, body in answers if status == 429]
        assert all(found.free == 0 and found.retry_after_ms > 0 for found in busy)


async def test_a_client_that_leaves_frees_its_slot() -> None:
    async with service("--slots", "1", "--queue", "0") as (address, process), aiohttp.ClientSession() as session:
        endless = request("import time\ntime.sleep(1000)", seconds=100)
        task = asyncio.create_task(post(session, address, endless))
        (zygote,) = await until(lambda: living_children(process.pid))
        await until(lambda: programs_below(zygote))
        task.cancel()
        async with asyncio.timeout(60):
            while (await post(session, address, request("print(1)")))[0] != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_a_program_is_stopped_at_its_callers_deadline() -> None:
    """Also where the caller is still there: one whose machine is gone closes no connection."""
    async with service("--slots", "1", "--queue", "0") as (address, _), aiohttp.ClientSession() as session:
        endless = msgspec.msgpack.encode(request("while True: pass", seconds=100))
        async with session.post(f"{address}/v1/run", data=endless, headers={"evalrun-timeout-ms": "300"}) as answer:
            assert answer.status == 504
            assert "deadline" in msgspec.msgpack.decode(await answer.read(), type=Refused).message
        async with asyncio.timeout(60):
            while (await post(session, address, request("print(1)")))[0] != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        async with session.get(f"{address}/metrics") as answer:
            assert 'evalrun_sandbox_requests_total{answer="expired"} 1.0' in await answer.text()


async def test_a_token_is_checked() -> None:
    async with service("--slots", "1", EVALRUN_SANDBOX_TOKEN="secret") as (address, _):
        async with aiohttp.ClientSession() as session:
            assert (await post(session, address, request("print(1)")))[0] == 401
            async with session.get(f"{address}/v1/ping") as answer:
                assert answer.status == 200
        async with aiohttp.ClientSession(headers={"Authorization": "Bearer secret"}) as session:
            assert (await post(session, address, request("print(1)")))[0] == 200


async def test_no_program_reads_the_file_of_tokens(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    headers = {"Authorization": "Bearer s3cret"}
    async with (
        service("--slots", "1", "--token-file", str(file)) as (address, _),
        aiohttp.ClientSession(headers=headers) as session,
    ):
        async with session.get(f"{address}/v1/info") as answer:
            level = msgspec.json.decode(await answer.read(), type=SandboxInfo).level
        status, body = await post(session, address, request(f"print(open({str(file)!r}).read())"))
    (run,) = msgspec.msgpack.decode(body, type=RunReply).runs
    assert status == 200
    if level != "full":
        pytest.skip(f"containment level {level}: without Landlock a program may read what its pod may")
    assert run.stdout == b""
    assert b"PermissionError" in run.stderr


async def test_sigterm_lets_requests_in_flight_end() -> None:
    async with service("--slots", "1") as (address, process), aiohttp.ClientSession() as session:
        (zygote,) = await until(lambda: living_children(process.pid))
        task = asyncio.create_task(post(session, address, request("import time\ntime.sleep(0.5)\nprint('done')")))
        await until(lambda: programs_below(zygote))
        process.terminate()
        status, body = await task
        assert (status, msgspec.msgpack.decode(body, type=RunReply).runs[0].stdout) == (200, b"done\n")
        assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_killed_server_leaves_no_process() -> None:
    async with service("--slots", "2") as (address, process), aiohttp.ClientSession() as session:
        (zygote,) = await until(lambda: living_children(process.pid))
        endless = request("import time\nwhile True: time.sleep(0.1)", b"", b"", b"", b"", seconds=100)
        task = asyncio.create_task(post(session, address, endless))
        programs = await until(lambda: found if len(found := programs_below(zygote)) == 2 else [])
        runners = living_children(zygote)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await until(lambda: all(state_of(pid) == "Z" for pid in [zygote, *runners, *programs]))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_server_without_a_working_python_ends_with_code_2_and_one_line() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "evalrun_sandbox", "--python", "/nonexistent/python", stderr=asyncio.subprocess.PIPE
    )
    _, err = await process.communicate()
    assert process.returncode == 2
    assert err.decode().startswith("evalrun: no Python for candidates works")
    assert err.count(b"\n") == 1
