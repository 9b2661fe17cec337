"""Live sessions over HTTP: state that is kept, state that is lost, and retries."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from builders.judge.sandbox import living_children, service, state_of, until

from evalrun_executor.api import SandboxInfo

Answer = tuple[int, Any]


class Client:
    """Speaks to one sandbox."""

    def __init__(self, http: aiohttp.ClientSession, address: str, pid: int) -> None:
        self.http = http
        self.address = address
        self.pid = pid

    async def create(self) -> str:
        status, body = await self.post("")
        assert status == 201, body
        return str(body["session"])

    async def execute(self, session: str, code: str, **fields: object) -> Answer:
        return await self.post(f"/{session}/executions", {"code": code, **fields})

    async def post(self, path: str, body: object = None) -> Answer:
        async with self.http.post(f"{self.address}/v1/sessions{path}", json=body) as answer:
            return answer.status, await answer.json()

    async def end(self, session: str) -> int:
        async with self.http.delete(f"{self.address}/v1/sessions/{session}") as answer:
            return answer.status

    async def until(self, session: str, wanted: Callable[[Answer], bool]) -> Answer:
        """Execute nothing, until the answer is as wanted."""
        async with asyncio.timeout(60):
            while True:
                answer = await self.execute(session, "")
                if wanted(answer):
                    return answer
                await asyncio.sleep(0.02)

    async def create_when_there_is_room(self) -> str:
        async with asyncio.timeout(60):
            while True:
                status, body = await self.post("")
                if status == 201:
                    return str(body["session"])
                await asyncio.sleep(0.02)


@asynccontextmanager
async def sandbox(*flags: str) -> AsyncIterator[Client]:
    """A sandbox with sessions; skips where this machine cannot contain them."""
    async with (
        service("--slots", "2") as (address, _),
        aiohttp.ClientSession() as http,
        http.get(f"{address}/v1/info") as answer,
    ):
        info = SandboxInfo(**await answer.json())
    if info.level != "full":
        pytest.skip(f"this machine reaches level {info.level}: {'; '.join(info.missing)}")
    async with service("--slots", "2", *flags) as (address, process), aiohttp.ClientSession() as http:
        yield Client(http, address, process.pid)


async def test_a_session_keeps_its_state_and_a_retry_is_not_executed_again() -> None:
    async with sandbox("--max-sessions", "2") as client:
        session, other = await client.create(), await client.create()
        status, body = await client.execute(session, "x = 20\nprint('set')", execution=1)
        assert (status, body["status"], body["state"], body["stdout"]) == (200, "ok", "kept", "set\n")
        first = await client.execute(session, "x += 1\nx", execution=2)
        assert first[1]["result"] == "21"
        assert await client.execute(session, "x += 1\nx", execution=2) == first
        assert (await client.execute(session, "x += 2\nx", execution=2))[0] == 409
        assert (await client.execute(session, "x", execution=1))[0] == 409
        assert (await client.execute(session, "x", execution=9))[0] == 409
        assert (await client.execute(session, "x"))[1]["result"] == "21"
        status, body = await client.execute(other, "x")
        assert (body["status"], body["error"]["name"], body["state"]) == ("error", "NameError", "kept")
        assert '"<cell 1>", line 1' in body["error"]["traceback"]

        status, body = await client.post("")
        assert (status, "close one" in body["message"]) == (429, True)
        assert [await client.end(other), await client.end(other)] == [204, 204]
        await client.create_when_there_is_room()
        status, body = await client.execute(other, "1")
        assert (status, body["state"]) == (404, "lost")
        for fields in ({"time_seconds": 0}, {"output_kib": 0}, {"code": "1", "cod": 1}):
            assert (await client.post(f"/{session}/executions", {"code": "1", **fields}))[0] == 400
        async with client.http.get(f"{client.address}/metrics") as answer:
            text = await answer.text()
        assert "evalrun_sandbox_sessions 2.0" in text
        assert 'evalrun_sandbox_session_executions_total{answer="done"} 4.0' in text


async def test_retry_of_a_disconnected_caller_gets_the_answer() -> None:
    async with sandbox("--max-sessions", "1") as client:
        session = await client.create()
        code = "import time\nn = globals().get('n', 0) + 1\ntime.sleep(0.5)\nn"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.execute(session, code, execution=1)
        status, body = await client.execute(session, code, execution=1)
        assert (status, body["result"]) == (200, "1")
        assert (await client.execute(session, "n"))[1]["result"] == "1"


async def test_lost_session_is_reported_as_lost_and_never_restarted() -> None:
    async with sandbox("--max-sessions", "4") as client:
        status, body = await client.execute("0123", "1")
        assert (status, body["state"]) == (404, "lost")

        ended = await client.create()
        answer = await client.execute(ended, "print('last words', flush=True)\nimport os\nos._exit(0)", execution=1)
        assert (answer[1]["status"], answer[1]["state"], answer[1]["stdout"]) == ("ended", "lost", "last words\n")
        again = "print('last words', flush=True)\nimport os\nos._exit(0)"
        assert await client.execute(ended, again, execution=1) == answer
        status, body = await client.execute(ended, "1", execution=2)
        assert (status, body["state"], "ended with status 0" in body["message"]) == (404, "lost", True)

        killed = await client.create()
        pid = int((await client.execute(killed, "import os\nos.getpid()"))[1]["result"])
        os.kill(pid, signal.SIGKILL)
        status, body = await client.until(killed, lambda found: found[0] != 200)
        assert (status, body["state"]) == (404, "lost")

        orphaned = await client.create()
        pid = int((await client.execute(orphaned, "import os\nos.getppid()"))[1]["result"])
        zygotes = [zygote for zygote in living_children(client.pid) if pid in living_children(zygote)]
        os.kill(zygotes[0], signal.SIGKILL)
        status, body = await client.until(orphaned, lambda found: found[0] != 200)
        assert (status, body["state"]) == (404, "lost")
        fresh = await client.create()
        assert (await client.execute(fresh, "6 * 7"))[1]["result"] == "42"


async def test_exceeded_memory_budget_ends_the_largest_session() -> None:
    async with sandbox("--max-sessions", "3", "--session-budget-mib", "64") as client:
        small, large, other = await client.create(), await client.create(), await client.create()
        await client.execute(small, "kept = 1")
        assert (await client.execute(large, "x = bytearray(100 << 20)"))[1]["state"] == "kept"
        _, body = await client.until(large, lambda found: found[0] == 404)
        assert "held most" in body["message"]
        assert (await client.execute(small, "kept"))[1]["result"] == "1"
        await client.execute(
            other, "import socket\nx = [socket.socketpair() for _ in range(25)]\ny = bytearray(40 << 20)"
        )
        _, body = await client.until(other, lambda found: found[0] == 404)
        assert "held most" in body["message"]
        assert (await client.execute(small, "kept"))[1]["result"] == "1"


async def test_session_waiting_for_a_slot_counts_toward_the_memory_budget() -> None:
    async with sandbox("--max-sessions", "2", "--slots", "1", "--session-budget-mib", "64") as client:
        busy, large = await client.create(), await client.create()
        await client.execute(large, "x = bytearray(100 << 20)")
        pid = int((await client.execute(busy, "import os\nos.getpid()"))[1]["result"])
        running = asyncio.create_task(client.execute(busy, "while True: pass", time_seconds=2))
        await until(lambda: state_of(pid) != "T")  # it holds the slot
        status, body = await client.execute(large, "len(x)")
        assert (status, "held most" in body["message"]) == (404, True)
        assert (await running)[1]["status"] == "timeout"


async def test_short_execution_gets_a_slot_before_endless_loops_end() -> None:
    """Two slots, four loops: each has turns until it has used its time, whatever it waited between."""
    async with sandbox("--max-sessions", "5") as client:
        *busy, quick = [await client.create() for _ in range(5)]
        pids = [int((await client.execute(session, "import os\nos.getpid()"))[1]["result"]) for session in busy]
        loop = "kept = 1\nwhile True: pass"
        loops = [asyncio.create_task(client.execute(session, loop, time_seconds=3)) for session in busy]
        await until(lambda: all(state_of(pid) != "T" for pid in pids[:2]))
        for number in range(5):
            assert (await client.execute(quick, f"{number} + 1"))[1]["result"] == str(number + 1)
            assert not any(task.done() for task in loops)
        ended = [body for _, body in await asyncio.gather(*loops)]
        assert [body["status"] for body in ended] == ["timeout"] * 4
        assert all(body["cpu_seconds"] < 6 for body in ended)
        assert [(await client.execute(session, "kept"))[1]["result"] for session in busy] == ["1"] * 4


async def test_paused_execution_can_be_killed_or_closed() -> None:
    async with sandbox("--max-sessions", "3", "--slots", "1") as client:
        first, second, third = [await client.create() for _ in range(3)]
        pid = int((await client.execute(first, "import os\nos.getpid()"))[1]["result"])
        loop = "import time\nend = time.monotonic() + 300\nwhile time.monotonic() < end: pass"
        asked = [asyncio.create_task(client.execute(session, loop, time_seconds=300)) for session in (first, second)]
        await until(lambda: state_of(pid) != "T")
        await until(lambda: state_of(pid) == "T")  # the second one's turn
        os.kill(pid, signal.SIGKILL)
        status, body = await asked[0]
        assert (status, body["state"]) == (200, "lost")
        waiting = asyncio.create_task(client.execute(third, loop, time_seconds=300))
        assert await client.end(third) == await client.end(second) == 204
        assert {(await task)[0] for task in (asked[1], waiting)} == {404}


async def test_an_unused_session_expires() -> None:
    async with sandbox("--max-sessions", "1", "--session-idle-seconds", "0.5") as client:
        session = await client.create()
        await client.create_when_there_is_room()
        status, body = await client.execute(session, "1")
        assert (status, body["message"]) == (404, "the session's state is lost: nobody used it for 0.5 s")


async def test_a_removed_file_that_is_mapped_ends_its_session() -> None:
    code = "import ctypes, os\nf = os.open('x', os.O_RDWR | os.O_CREAT)\nos.write(f, bytes(1 << 20))\n"
    code += "mmap = ctypes.CDLL(None).mmap\nmmap.restype = ctypes.c_void_p\n"
    code += "a = mmap(None, ctypes.c_size_t(4096), 1, 2, f, ctypes.c_long(0))\nos.close(f)\nos.unlink('x')\na > 0"
    async with sandbox("--max-sessions", "1") as client:
        session = await client.create()
        assert (await client.execute(session, code))[1]["result"] == "True"
        _, body = await client.until(session, lambda found: found[0] == 404)
        assert "maps a file" in body["message"]


async def test_sessions_without_max_sessions_are_404_with_the_flag() -> None:
    async with service("--slots", "1") as (address, process), aiohttp.ClientSession() as http:
        client = Client(http, address, process.pid)
        status, body = await client.post("")
        assert (status, "--max-sessions" in body["message"]) == (404, True)
        assert (await client.execute("x", "1"))[0] == 404
        assert await client.end("x") == 404


async def test_sessions_need_the_token() -> None:
    flags = ("--slots", "1", "--max-sessions", "1")
    protected = service(*flags, EVALRUN_SANDBOX_TOKEN="secret-token")
    async with protected as (address, process), aiohttp.ClientSession() as http:
        assert (await Client(http, address, process.pid).post(""))[0] == 401


async def test_run_jupyter_runs_cells_in_a_separate_session() -> None:
    async with sandbox("--max-sessions", "1") as client:

        async def run(**body: object) -> Answer:
            async with client.http.post(f"{client.address}/run_jupyter", json=body) as answer:
                return answer.status, await answer.json()

        async def run_when_there_is_room(**body: object) -> Any:
            async with asyncio.timeout(60):
                while True:
                    status, found = await run(**body)
                    if status != 504:
                        assert status == 200, found
                        return found
                    await asyncio.sleep(0.02)

        cells = ["x = open('in.txt').read()\nprint(x)", "1 / 0", "open('out.txt', 'w').write(x * 2)"]
        found = await run_when_there_is_room(cells=cells, files={"in.txt": "YWI="}, fetch_files=["out.txt", "no.txt"])
        assert (found["status"], found["files"], found["driver"]["return_code"]) == (
            "Success",
            {"out.txt": "YWJhYg=="},
            0,
        )
        first, second, third = found["cells"]
        assert (first["stdout"], second["error"][0]["ename"], third["display"]) == (
            "ab\n", "ZeroDivisionError", [{"text/plain": "4"}],
        )  # fmt: skip
        found = await run_when_there_is_room(cells=["x"])
        assert found["cells"][0]["error"][0]["ename"] == "NameError"
        found = await run_when_there_is_room(cells=["print('a')", "while True: pass", "1"], total_timeout=0.2)
        assert (found["status"], len(found["cells"])) == ("Failed", 2)
        assert (found["driver"]["status"], found["cells"][0]["stdout"]) == ("TimeLimitExceeded", "a\n")
        found = await run_when_there_is_room(cells=["import os\nos._exit(3)", "1"])
        assert (found["status"], found["driver"]["stderr"]) == ("Failed", "the interpreter ended with status 3")
        assert (await run(cells=["1"], files={"../x": "YQ=="}))[0] == 400
        assert (await run(cells="1"))[0] == 422
