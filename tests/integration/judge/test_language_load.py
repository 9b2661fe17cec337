"""64 right programs of a language at once, beside processes that never rest: no false timeout."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from subprocess import Popen

import pytest
import pytest_asyncio
from builders.judge.contest_programs import LANGUAGES, load_programs
from builders.judge.sandbox import require_compiler
from builders.judge.services import judge_until_judged, request_of, services, told

from evalrun_data.records import Problem, StdioTests
from evalrun_executor.toolchain import COMPILERS
from evalrun_registry.limits import PartialLimits

BUSY = int(os.environ.get("EVALRUN_TEST_BUSY", "0"))
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(3600),
    pytest.mark.skipif(BUSY == 0, reason="it takes minutes: `make test-busy` loads the machine with 12 processes"),
]

PROGRAMS = 64
# Each takes 0.3 to 0.6 s of CPU on a machine with nothing else to do. JavaScript's has big integers.
NUMBERS = {"go": 40, "java": 41, "javascript": 32, "rust": 41, "typescript": 32}
FIBONACCI = {32: 2178309, 40: 102334155, 41: 165580141}
LIMIT = 2.0


@contextmanager
def spinning(count: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(count):
            process = stack.enter_context(Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(process.kill)
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    async with services(tmp_path_factory.mktemp("services")) as (gateway, _):
        with spinning(BUSY):
            yield gateway.address


@pytest.mark.parametrize("language", LANGUAGES)
async def test_right_programs_on_a_busy_machine_take_no_false_timeout(judge: str, language: str) -> None:
    require_compiler(COMPILERS[language])
    number = NUMBERS[language]
    tests = StdioTests((f"{number}\n",), (f"{FIBONACCI[number]}\n",))
    problem = Problem("busy", "fib", "Print it.", tests, limits=PartialLimits(time_seconds=LIMIT, memory_mib=256))
    # Recursion without a memory is right, and as slow as its number is large.
    slow = next(each for each in load_programs(language) if (each.problem, each.status) == ("fib", "timeout"))
    requests = {
        str(each): request_of(problem, f"{slow.text}// {each}\n", language=language) for each in range(PROGRAMS)
    }
    loop = asyncio.get_running_loop()
    began = loop.time()
    verdicts = await judge_until_judged(judge, requests)
    used = [test.cpu_time for verdict in verdicts.values() for test in verdict.tests]
    print(
        f"{language}: {min(used):.2f} to {max(used):.2f} CPU s of {LIMIT} in {loop.time() - began:.0f} s; load "
        f"{os.getloadavg()[0]:.0f}"
    )
    assert [told(verdict) for verdict in verdicts.values() if not (verdict.judged and verdict.accepted)] == []
