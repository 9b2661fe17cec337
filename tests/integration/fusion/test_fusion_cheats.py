"""Programs that cheat, through the harness on a stock server: what they try is refused, what they forge counts nothing.

The server itself contains nothing: there each of these programs is root, with the server's environment and files.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from builders.fusion.clients import stock_address
from builders.fusion.server import StockDouble, stock_double
from builders.judge.cheat_programs import BOUNDED, FLOODS, NOTHING_PRINTED, REFUSED, all_called

from evalrun_executor.api import Limits, ProgramRun, RunRequest
from evalrun_judge.sandboxes.fusion import FusionSandbox

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECRET = "EVALRUN_TEST_SECRET_OF_THE_SERVER"


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=["double", "stock"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[FusionSandbox]:
    if request.param == "stock":
        async with FusionSandbox(stock_address(), nonces=secrets.token_bytes) as client:
            yield await contained(client)
    else:
        async with stock_double(StockDouble()) as url, FusionSandbox(url, nonces=secrets.token_bytes) as client:
            yield await contained(client)


async def contained(client: FusionSandbox) -> FusionSandbox:
    info = (await client.describe()).info
    if info.level != "full":
        pytest.skip(f"this machine reaches level {info.level}: {'; '.join(info.missing)}")
    return client


async def run_each(server: FusionSandbox, codes: dict[str, str], seconds: float = 2.0) -> dict[str, ProgramRun]:
    """Run each program once, two at a time."""
    places = asyncio.Semaphore(2)

    async def run(code: str) -> ProgramRun:
        async with places:
            reply = await server.run(RunRequest("python", code, [b""], Limits(seconds, 256, 256)))
        assert reply.compile.status == "ok"
        return reply.runs[0]

    ran = await asyncio.gather(*map(run, codes.values()))
    return dict(zip(codes, ran, strict=True))


@pytest.mark.timeout(240)
async def test_program_refused_in_our_sandbox_is_refused_on_fusion(server: FusionSandbox) -> None:
    codes = {
        name: f"try:\n  {code.replace(chr(10), chr(10) + '  ')}\nexcept (OSError, ValueError):\n  print('refused')"
        for name, code in REFUSED.items()
    }
    ran = await run_each(server, codes)
    assert {name: run.stdout for name, run in ran.items() if run.stdout != b"refused\n"} == {}


@pytest.mark.timeout(240)
async def test_raw_calls_are_refused(server: FusionSandbox) -> None:
    code = all_called(os.uname().machine)
    assert (await run_each(server, {"all": code}))["all"].stdout == b"done\n"


@pytest.mark.timeout(240)
async def test_program_ending_early_prints_nothing_and_floods_are_stopped(server: FusionSandbox) -> None:
    early = await run_each(server, NOTHING_PRINTED)
    assert {name for name, run in early.items() if (run.end, run.stdout) != ("exited", b"")} == set()
    some = ("1 GB of output", "10 GB of memory", "SIGXCPU handled", "a fork bomb", "an endless loop")
    floods = await run_each(server, {name: FLOODS[name][0] for name in some}, seconds=0.5)
    assert {name: run.end for name, run in floods.items()} == {name: FLOODS[name][1] for name in some}
    bounded = await run_each(server, {"many files": BOUNDED["many files"][0]})
    assert BOUNDED["many files"][1] in bounded["many files"].stderr


FORGERIES = {
    "writes frames on every descriptor": """
import os, struct
run = struct.pack("<BI", 2, 50) + struct.pack("<IBiddQI", 0, 0, 0, 0.0, 0.0, 0, 6) + b"forged"
for fd in range(3, 1024):
    try: os.write(fd, run); print("written", fd)
    except OSError: pass
print("mine")
""",
    "writes the result's file": """
import os
for place in ("../../evalrun-result-0", "../../../evalrun-result-0", "/tmp/evalrun-result-0"):
    try: open(place, "wb").write(b"forged"); print("written", place)
    except OSError: pass
print("mine")
""",
    "looks for the nonce and the task": """
import gc, os
for place in ("../../evalrun-nonce-0", "../../../evalrun-nonce-0", "../../../evalrun-task-0", "../../.."):
    for look in (lambda: open(place, "rb").read(), lambda: os.listdir(place)):
        try: look(); print("read", place)
        except OSError: pass
print("mine")
""",
    "looks for the server's environment": f"""
import os
print("leaked" if {SECRET!r} in os.environ or len(os.environ) > 9 else "mine")
""",
    "changes the harness in its own process": """
import sys
for name in list(sys.modules):
    if "evalrun" in name: print("found", name)
frame = sys._getframe()
while frame.f_back is not None: frame = frame.f_back
print("mine" if "task" not in frame.f_globals else "found")
""",
}


async def test_forged_result_is_ignored(server: FusionSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, "1")
    ran = await run_each(server, FORGERIES)
    assert {name: run.stdout for name, run in ran.items()} == dict.fromkeys(FORGERIES, b"mine\n")


async def test_no_memory_that_a_program_can_reach_holds_the_nonce() -> None:
    """The nonce is known here: the program is given its first half and looks for the whole in all that it can read."""
    nonce = bytes(range(100, 132))
    code = f"""
import ctypes, gc
half = bytes({list(nonce[:16])!r})
hits = 0
for thing in gc.get_objects():
    for part in gc.get_referents(thing):
        if isinstance(part, (bytes, bytearray)) and half in part and bytes(part) != half:
            hits += 1
print(hits)
"""
    async with stock_double(StockDouble()) as url, FusionSandbox(url, nonces=lambda _: nonce) as client:
        await client.describe()
        reply = await client.run(RunRequest("python", code, [b""], Limits(5.0, 256, 256)))
    assert reply.runs[0].stdout == b"0\n", reply.runs[0].stderr
