"""Programs that share a call of a stock server: each gets what it would get alone, and sees nothing of the others."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from aiohttp import web
from builders.fusion.clients import stock_address
from builders.fusion.server import StockDouble, stock_double

from evalrun_executor.api import Limits, RunReply, RunRequest
from evalrun_judge.sandboxes.fusion import FusionSandbox
from evalrun_judge.sandboxes.fusion_answer import NotTheHarnessError, result
from evalrun_judge.sandboxes.fusion_batch import LOOK, MachineFacts, Part, body
from evalrun_judge.sandboxes.fusion_http import FusionServer
from evalrun_judge.sandboxes.stock_harness import CALLS, TASK

NEEDLE = "5ca1ab1e0ddba11f0000c0ffee000000beef"
KNOWN = NEEDLE[:18]
"""What of it the program knows that looks for the rest, in its own text backwards."""

LOOKER = f"""
import ctypes, os, re
pattern = re.compile(b"{KNOWN[::-1]}"[::-1] + b"[0-9a-f]{{18}}")
write = ctypes.CDLL(None).write
write.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
PAGE, STEP = 4096, 65536
reading, writing = os.pipe()
os.set_blocking(reading, False)
def look(start, size):
    "Through the kernel, which answers EFAULT where the interpreter would crash."
    data = b""
    if write(writing, start, size) > 0:
        data = os.read(reading, 2 * STEP)
    return data
found, seen = 0, 0
kept = [ctypes.create_string_buffer(size) for size in (8, 2000, 60_000)]  # of each of the allocators' regions
places = [*map(id, (object(), re, 0, look, globals())), *map(ctypes.addressof, kept)]
for middle in sorted({{place >> 26 for place in places}}):
    tail = b""
    for place in range((middle - 1) << 26, (middle + 2) << 26, STEP):
        data = look(place, STEP) if place > 0 else b""
        if len(data) < STEP:
            data = b"".join(look(page, PAGE) for page in range(place, place + STEP, PAGE)) if place > 0 else b""
        seen += len(data)
        found += len(pattern.findall(tail + data))
        tail = data[-64:]
for name in ("task", "nonce", "result"):
    for number in range(4):
        for place in ("../../..", "../..", ".."):
            try: open(f"{{place}}/evalrun-{{name}}-{{number}}", "rb"); found += 1000
            except OSError: pass
for fd in range(3, 256):
    try: os.fstat(fd); found += (fd not in (reading, writing)) * 1000
    except OSError: pass
print(found, seen > 1 << 20)
"""


@asynccontextmanager
async def sharing(double: StockDouble, **settings: Any) -> AsyncIterator[FusionSandbox]:
    async with stock_double(double) as url, FusionSandbox(url, nonces=secrets.token_bytes, **settings) as client:
        info = (await client.describe()).info
        if info.level != "full":
            pytest.skip(f"no calls are shared at level {info.level}: {'; '.join(info.missing)}")
        yield client


async def together(client: FusionSandbox, *requests: RunRequest) -> list[RunReply]:
    """Run them in one call, in order, behind another that takes the only turn.

    With a turn for each core, several may come free at once, over which the waiting programs are spread.
    """
    first = asyncio.create_task(client.run(asked("print('first')")))
    await asyncio.sleep(0)
    replies = await asyncio.gather(*map(client.run, requests))
    await first
    return replies


def shared(double: StockDouble) -> list[int]:
    """How many programs each call held that held several."""
    programs = [sum(name.startswith(TASK) for name in call.get("files", {})) for call in double.calls]
    return [number for number in programs if number > 1]


def asked(code: str, *inputs: bytes, seconds: float = 5.0) -> RunRequest:
    return RunRequest("python", code, list(inputs) or [b""], Limits(seconds, 512, 1024))


async def test_each_program_of_a_call_ends_as_it_would_alone() -> None:
    double = StockDouble(slots=1)
    async with sharing(double) as client:
        good, wrong, broken, crash = await together(
            client, asked("print(2 * int(input()))", b"1", b"2"), asked("raise ValueError(input())", b"no"),
            asked("print("), asked("import os\nos.abort()"),
        )  # fmt: skip
        assert shared(double) == [4]
        assert [run.stdout for run in good.runs] == [b"2\n", b"4\n"]
        assert (wrong.runs[0].exit_code, b"ValueError: no" in wrong.runs[0].stderr) == (1, True)
        assert (broken.compile.status, [run.end for run in broken.runs]) == ("error", ["not_run"])
        assert crash.runs[0].exit_code == -6
        assert {reply.level for reply in (good, wrong, crash)} == {"full"}


async def test_a_program_finds_nothing_of_its_neighbours_in_memory_files_or_descriptors() -> None:
    """Their text, input and output hold a word of which it knows the half; its own input does only in the last run."""
    double = StockDouble(slots=1)
    neighbour = asked(f"word = '{NEEDLE}'\nprint(word, input())", NEEDLE.encode())
    async with sharing(double) as client:
        before, shown, after = await together(client, asked(LOOKER), neighbour, asked(LOOKER))
        assert shared(double) == [3]
        assert shown.runs[0].stdout == f"{NEEDLE} {NEEDLE}\n".encode()
        assert [reply.runs[0].stdout for reply in (before, after)] == [b"0 True\n"] * 2, after.runs[0].stderr
        (own,) = (await client.run(asked(f"own_word = input()\n{LOOKER}", NEEDLE.encode()))).runs
        found = int(own.stdout.split()[0])
        assert 0 < found < 1000, (own.stdout, own.stderr)


async def test_programs_without_their_turn_are_sent_again_alone() -> None:
    double = StockDouble(slots=1)
    async with sharing(double, shared_seconds=0.0) as client:
        replies = await together(client, *[asked("print(input())", b"%d" % n, b"x") for n in range(3)])
        assert [reply.runs[0].stdout for reply in replies] == [b"%d\n" % n for n in range(3)]
        assert [len(reply.runs) for reply in replies] == [2] * 3
        assert shared(double) == [3]


async def test_a_call_that_fails_costs_none_of_its_programs_a_verdict() -> None:
    double = StockDouble(slots=1)
    async with sharing(double) as client:
        double.interfere = lambda body: (
            web.json_response({"detail": "boom"}, status=500) if f"{TASK}1" in body["files"] else None
        )
        replies = await together(client, *[asked("print(input())", b"%d" % n) for n in range(3)])
        assert [reply.runs[0].stdout for reply in replies] == [b"%d\n" % n for n in range(3)]
        assert shared(double) == [3]


async def test_harness_without_a_filter_refuses_several_programs() -> None:
    async with stock_double(StockDouble()) as url:
        server = FusionServer(url)
        seen = (await server.run_code({"language": "python", "code": LOOK}, 60)).run_result
        assert seen is not None
        machine = msgspec.json.decode(seen.stdout or "", type=MachineFacts).machine()
        parts = [Part(asked(f"print({n})"), [0], secrets.token_bytes(32)) for n in range(2)]
        unknown = replace(machine, architecture="none that we have a filter for")
        one, two = [await server.run_code(body(parts[:count], unknown), 60) for count in (1, 2)]
        await server.close()
    said = result(one, 0, parts[0])
    assert said is not None
    assert (said.hello["filter"], said.runs[0].stdout) == ("0", b"0\n")
    with pytest.raises(NotTheHarnessError, match="without a filter"):
        result(two, 0, parts[0])


async def test_only_requests_in_calls_mode_send_the_modules_for_calls() -> None:
    double = StockDouble()
    batch = b'{"imports": [], "tests": []}'
    called = RunRequest("python", "print('loaded')", [batch], Limits(5.0, 512, 64), mode="calls")
    async with sharing(double) as client:
        await client.run(asked("print(1)"))
        reply = await client.run(called)
        assert [CALLS in call["files"] for call in double.calls[-2:]] == [False, True]
        assert (reply.compile.status, reply.runs[0].exit_code) == ("ok", 0), reply.runs[0].stderr
        assert b"end" in reply.runs[0].stdout


SIDE_BY_SIDE = """
import os, time
number, began = input(), time.monotonic()
open(number, "w").close()
time.sleep(0.2)
for slot in (1, 3):
    try: os.listdir(f"../../slot-{slot}/source/..")
    except PermissionError: continue
    print("seen")
print(os.listdir("."), began, time.monotonic())
"""


async def test_program_on_an_idle_server_runs_two_tests_at_once() -> None:
    double = StockDouble(slots=2)
    async with sharing(double) as client:
        reply = await client.run(asked(SIDE_BY_SIDE, *[b"%d" % n for n in range(6)]))
        printed = [run.stdout.decode().rpartition("]") for run in reply.runs]
        assert [files for files, _, _ in printed] == [f"['{n}'" for n in range(6)]
        times = [tuple(map(float, rest.split())) for _, _, rest in printed]
        at_once = [sum(began <= start < ended for began, ended in times) for start, _ in times]
        assert max(at_once) == 2, times


async def test_program_of_two_runners_reports_a_compile_error_or_a_timeout() -> None:
    async with sharing(StockDouble(slots=2)) as client:
        broken = await client.run(asked("print(", *[b""] * 8))
        assert (broken.compile.status, {run.end for run in broken.runs}) == ("error", {"not_run"})
        request = RunRequest("python", "while True: pass", [b""] * 8, Limits(0.3, 512, 64), stop_after_timeouts=1)
        ends = [run.end for run in (await client.run(request)).runs]
        assert ends == ["timeout", *["not_run"] * 7]


async def test_call_imports_no_expensive_module_for_its_programs() -> None:
    """Each of these costs every call some ms; none was needed to run a program."""
    dear = (
        "__future__", "collections", "ctypes", "enum", "functools", "json", "opcode", "re", "struct", "subprocess",
        "types", "typing", "warnings",
    )  # fmt: skip
    async with sharing(StockDouble()) as client:
        reply = await client.run(asked(f"import sys\nprint([name for name in {dear} if name in sys.modules])"))
        assert reply.runs[0].stdout == b"[]\n"


async def test_a_stock_server_serves_many_at_once() -> None:
    async with FusionSandbox(stock_address(), nonces=secrets.token_bytes) as client:
        await client.describe()
        numbers = range(24)
        replies = await asyncio.gather(
            *[client.run(asked("print(2 * int(input()))", b"%d" % n, b"7")) for n in numbers]
        )
        assert [[run.stdout for run in reply.runs] for reply in replies] == [
            [b"%d\n" % (2 * n), b"14\n"] for n in numbers
        ]
