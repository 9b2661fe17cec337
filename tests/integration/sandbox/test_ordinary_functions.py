"""Ordinary functions just pass: what programs do around the function that is asked for, in the contained processes."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from builders.judge.sandbox import started

from evalrun_executor.api import Limits, RunRequest
from evalrun_executor.executor import Executor, ExecutorPlan
from evalrun_judge.function_tests.assertions import ASSERTION_HARNESS, MODE
from evalrun_judge.function_tests.session import (
    OUTPUT_KIB,
    AssertTests,
    Finished,
    FunctionTestSession,
    RunAssertions,
    RunCalls,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

TESTS = AssertTests(["assert f(3) == 9", "assert f('no') is None"], "", "f")
LIMITS = Limits(10.0, 256, OUTPUT_KIB)
PLAIN = "None if x == 'no' else x * x"


PROGRAMS = {
    "recursion": "import sys\nsys.setrecursionlimit(10**6)\ndef g(n): return n and 1 + g(n - 1)\n"
                 f"def f(x):\n  g(50000)\n  return {PLAIN}",
    "a thread": f"import threading\ndef f(x):\n  found = []\n  t = threading.Thread(target=lambda: "
        f"found.append({PLAIN}))\n"
                "  t.start(); t.join()\n  return found[0]",
    "a daemon thread": f"import threading, time\nthreading.Thread(target=time.sleep, args=(99,), "
        f"daemon=True).start()\ndef f(x): return {PLAIN}",
    "a thread that stays": f"import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()\ndef "
        f"f(x): return {PLAIN}",
    "much output": f"import sys\ndef f(x):\n  print('x' * 10**6)\n  print('x' * 10**6, file=sys.stderr)\n  return "
        f"{PLAIN}",
    "a main guard": f"def f(x): return {PLAIN}\nif __name__ == '__main__': print(f(int(input())))",
    "tests of its own": f"def f(x): return {PLAIN}\nassert f(2) == 4\nprint(f(2))",
    "stdin": f"import sys\ndata = sys.stdin.read()\ndef f(x): return {PLAIN}",
    "an alarm": f"import signal\ndef f(x):\n  signal.alarm(5); signal.alarm(0)\n  return {PLAIN}",
    "files": f"import os, tempfile\nos.makedirs('a/b')\ndef f(x):\n  with tempfile.TemporaryFile() as file: "
        f"file.write(b'1')\n  return {PLAIN}",
    "a dataclass": "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n  v: "
        "int\n"
                   "def f(x): return None if x == 'no' else A(x * x).v",
    "names of builtins": f"list = []; str = 'x'; type = 3; len = 4; isinstance = 5; any = None; sorted = 0\ndef f(x): "
        f"return {PLAIN}",
    "asyncio": f"import asyncio\nasync def g(x): return {PLAIN}\ndef f(x): return asyncio.run(g(x))",
    "an IntEnum": "import enum\nclass E(enum.IntEnum):\n  A = 9\ndef f(x): return None if x == 'no' else E(x * x)",
    "a cache": f"from functools import lru_cache\n@lru_cache(None)\ndef f(x): return {PLAIN}",
    "an object that is called": f"class F:\n  def __call__(self, x): return {PLAIN}\nf = F()",
    "a partial function": f"from functools import partial\nf = partial(lambda k, x: {PLAIN}, 0)",
    "a generator inside": f"def g(x):\n  try: yield {PLAIN}\n  finally: pass\ndef f(x): return next(g(x))",
    "atexit": f"import atexit\natexit.register(print, 'x')\ndef f(x): return {PLAIN}",
    "warnings as errors": f"import warnings\nwarnings.simplefilter('error')\ndef f(x): return {PLAIN}",
    "a replaced stdout": f"import io, sys\nsys.stdout = io.StringIO()\ndef f(x):\n  print(1)\n  return {PLAIN}",
    "a closed stdout": f"import sys\nsys.stdout.close()\ndef f(x): return {PLAIN}",
}  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def both() -> AsyncIterator[Executor]:
    async with started(
        ExecutorPlan(slots=2, queue=64, preload={MODE: ASSERTION_HARNESS}, allow_uncontained=True)
    ) as running:
        yield running


async def judged(executor: Executor, tests: AssertTests, program: str) -> list[tuple[str, str]]:
    session = FunctionTestSession(tests, program)
    while not isinstance(step := session.next_step(), Finished):
        if isinstance(step, RunAssertions):
            reply = await executor.run(RunRequest("python", "", [step.stdin], LIMITS, mode=MODE))
            session.assertions_done(reply.runs[0])
        else:
            assert isinstance(step, RunCalls)
            reply = await executor.run(RunRequest("python", step.code, [step.stdin], LIMITS, mode="calls"))
            session.calls_done(reply.runs[0], reply.compile)
    return [(str(test.status), test.reason) for test in step.tests]


@pytest.mark.parametrize("name", PROGRAMS)
async def test_ordinary_function_passes_its_tests(both: Executor, name: str) -> None:
    assert await judged(both, TESTS, PROGRAMS[name]) == [("success", "")] * 2


@pytest.mark.parametrize(("letter", "status"), [("b", "success"), ("a", "wrong_answer")])
async def test_large_output_printed_by_a_test_leaves_the_answer_judged(
    both: Executor, letter: str, status: str
) -> None:
    """It is printed in each round, by the replay and by each look ahead: 84 MB in the second, beyond the limit of
    output."""
    test = "for n in range(3): print(f(n))\nassert f(5)[0] == 'b'"
    program = f"def f(x): return {letter!r} * 14_000_000 if x < 3 else {letter!r}"
    found = await judged(both, AssertTests([test], "", "f"), program)
    assert [ended for ended, _ in found] == [status], found
