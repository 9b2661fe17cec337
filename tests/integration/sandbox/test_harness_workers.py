"""Harness runs: one harness worker per slot forks them all, knows none of them, and is lost alone."""

import asyncio
import json
import os
import signal

import pytest
from builders.judge.sandbox import MEMORY_SEARCH, living_children, request, started, until

from evalrun_executor.api import Limits, ProgramRun, RunReply, RunRequest
from evalrun_executor.errors import ExecutorLost
from evalrun_executor.executor import Executor, ExecutorPlan

pytestmark = pytest.mark.asyncio(loop_scope="session")


def calls(code: str, *args: object, seconds: float = 5.0, memory: int = 128, output: int = 1024) -> RunRequest:
    batch = {"imports": "", "tests": [[0, [["f", list(args), {"d": []}]]]]}
    limits = Limits(seconds, memory, output)
    return RunRequest("python", code, [json.dumps(batch).encode()], limits, mode="calls")


def answer(run: ProgramRun) -> object:
    lines = [line for line in run.stdout.decode().splitlines() if line.startswith("0 0 V ")]
    return json.loads(lines[0][6:])[0] if lines else None


async def called(executor: Executor, code: str, *args: object) -> object:
    return answer((await executor.run(calls(code, *args))).runs[0])


async def test_call_returns_its_value_and_stderr(executor: Executor) -> None:
    code = "import os\ndef f(x):\n    os.write(2, b'seen')\n    return x + 1"
    reply = await executor.run(calls(code, 41))
    assert (answer(reply.runs[0]), reply.runs[0].stderr) == (42, b"seen")
    assert (reply.compile.status, reply.runs[0].end, reply.runs[0].exit_code) == ("ok", "exited", 0)


async def test_each_input_runs_in_a_separate_process(executor: Executor) -> None:
    one = calls("n = 0\ndef f():\n    global n\n    n += 1\n    return n")
    reply = await executor.run(RunRequest("python", one.code, one.inputs * 20, one.limits, mode="calls"))
    assert [answer(run) for run in reply.runs] == [1] * 20


async def test_calls_program_that_does_not_compile_is_reported_and_not_run(executor: Executor) -> None:
    one = calls("def f(:\n    pass")
    reply = await executor.run(RunRequest("python", one.code, one.inputs * 3, one.limits, mode="calls"))
    assert reply.compile.status == "error"
    assert b'File "main.py", line 1' in reply.compile.stderr
    assert [run.end for run in reply.runs] == ["not_run"] * 3


@pytest.mark.parametrize("code", [
    "x = 1\0", "(" * 100_000 + ")" * 100_000, "-" * 200_000 + "1", "x = " + "1+" * 200_000 + "1", "\ud800",
])  # fmt: skip
async def test_hostile_text_does_not_harm_other_calls(executor: Executor, code: str) -> None:
    reply, beside = await asyncio.gather(executor.run(calls(code)), called(executor, "def f(): return 1"))
    assert reply.compile.status in ("error", "timeout")
    assert beside == 1


@pytest.mark.parametrize("line", ["1 is 1", "(1)(2)", "'\\d'"])
async def test_program_with_many_syntax_warnings_runs_with_empty_stderr(executor: Executor, line: str) -> None:
    """They would fill its output, or the sandbox's own log, before its first line has run."""
    full = "def g():\n" + f" {line}\n" * 2000
    reply = await executor.run(calls(f"{full}def f(): return 1", output=16))
    assert (reply.compile.status, answer(reply.runs[0]), reply.runs[0].stderr) == ("ok", 1, b"")
    again = await executor.run(request(f"{full}print(1)", output=16))
    assert (again.runs[0].stdout, again.runs[0].stderr) == (b"1\n", b"")


@pytest.mark.parametrize(("body", "end"), [
    ("while True: pass", "timeout"),
    ("import time\n    time.sleep(1000)", "timeout"),
    ("return len(bytearray(10 << 30))", None),  # a MemoryError is the call's result
    ("import os\n    while True: os.write(2, b'x' * 10000)", "output_limit"),
    ("import os\n    os.write(2, b'x' * 2000000)\n    while True: pass", "output_limit"),
    ("import os\n    os.ftruncate(2, 1 << 40)", None),  # refused: more than a file may hold
])  # fmt: skip
async def test_call_beyond_a_limit_is_stopped_and_the_next_call_works(
    executor: Executor, body: str, end: str | None
) -> None:
    seconds = 0.3 if end == "timeout" else 5.0
    reply = await executor.run(calls(f"def f():\n    {body}", seconds=seconds))
    run = reply.runs[0]
    assert run.end == (end or "exited"), run.stderr[-500:]
    assert max(len(run.stdout), len(run.stderr)) <= 1024 * 1024
    assert await called(executor, "def f(): return 1") == 1


async def test_files_of_one_run_are_gone_in_the_next_run(executor: Executor) -> None:
    code = "import os\ndef f():\n    found = os.listdir('.')\n    open('kept', 'w').write('x')\n    return found"
    assert [await called(executor, code) for _ in range(4)] == [[]] * 4


async def scanned(executor: Executor, code: str, parts: list[str]) -> tuple[int, int]:
    """How often the parts, joined, are found in the memory of a child, and in how many pages."""
    found = await called(executor, code, parts)
    assert isinstance(found, list)
    return int(found[0]), int(found[1])


async def test_a_worker_keeps_nothing_of_a_program() -> None:
    """A later program would inherit a harness worker's memory: no text, argument or result of a program is in it."""
    async with started(ExecutorPlan(slots=1, allow_uncontained=True)) as alone:
        for mark in ("earlier-text", "earlier-argument", "earlier-result"):
            assert await called(alone, f"# {mark}\ndef f(x): return x, 'earlier-' + 'result'", "earlier-argument")
        assert (await alone.run(calls("def f(: # earlier-text"))).compile.status == "error"
        assert (await alone.run(calls("def f():\n    raise ValueError('earlier-' + 'result')"))).runs[0].stderr
        for mark in ("text", "argument", "result"):
            found, pages = await scanned(alone, MEMORY_SEARCH, ["earlier", "-", mark])
            assert (found <= 2, pages > 500) == (True, True), (mark, found, pages)  # its own two: joined, encoded
        own, _ = await scanned(
            alone, "kept = ['own-mark-%d' % n for n in range(50)]\n" + MEMORY_SEARCH, ["own-", "mark-"]
        )
        assert own >= 25, "the search finds what is there"


async def test_a_dead_worker_is_an_infra_error_for_its_request_only() -> None:
    async with started(ExecutorPlan(slots=1, queue=4, allow_uncontained=True)) as executor:
        assert await called(executor, "def f(): return 1") == 1
        workers = await until(lambda: living_children(executor.zygote_pid))
        running = asyncio.create_task(executor.run(calls("import time\ndef f(): time.sleep(1000)", seconds=100)))
        await until(lambda: living_children(workers[-1]))
        os.kill(workers[-1], signal.SIGKILL)
        with pytest.raises(ExecutorLost):
            await running
        assert await called(executor, "def f(): return 2") == 2


async def test_a_request_that_is_given_up_frees_its_slot_and_ends_its_child() -> None:
    async with started(ExecutorPlan(slots=1, queue=4, allow_uncontained=True)) as executor:
        running: asyncio.Task[RunReply] = asyncio.create_task(
            executor.run(calls("import time\ndef f(): time.sleep(1000)", seconds=100))
        )
        (child,) = await until(  # the start's probe may still be leaving beside the harness worker
            lambda: [pid for worker in living_children(executor.zygote_pid) for pid in living_children(worker)]
        )
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await called(executor, "def f(): return 3") == 3
        await until(lambda: not os.path.exists(f"/proc/{child}"))  # noqa: PTH110 - what the kernel says
