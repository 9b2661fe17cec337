"""Programs of one input: one worker per slot forks them all, knows none of them, and is lost alone."""

import asyncio
import os
import signal

import pytest
from builders.judge.sandbox import MEMORY_SEARCH, living_children, request, run_one, started, until

from evalrun_executor.errors import ExecutorLost
from evalrun_executor.executor import Executor, ExecutorPlan

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENDS = "import os, sys\nprint(input())\nsys.stderr.write('x' * 70_000)\nos.write(1, b'.' * {printed})\n{last}"


@pytest.mark.parametrize(("printed", "last"), [
    (10, ""),
    (10, "sys.exit(3)"),
    (10, "1 / 0"),
    (80_000, ""),
    (80_000, "1 / 0"),
    (1 << 20, ""),
    (1, "while True: pass"),
    (1, "bytearray(10 << 30)"),
    (0, "print(open(__file__).read(), sys.argv, sys.path[0] + '/main.py' == __file__)"),
    (0, "print(sys.stdout.seekable(), sys.stdout.isatty(), os.fstat(1).st_mode, os.fstat(2).st_mode)"),
])  # fmt: skip
async def test_run_of_one_input_ends_like_the_first_of_several(executor: Executor, printed: int, last: str) -> None:
    """Several inputs go to a runner, which compiles once for all."""
    code = ENDS.format(printed=printed, last=last)
    alone = await executor.run(request(code, b"1", seconds=0.5))
    several = await executor.run(request(code, b"1", b"2", seconds=0.5))
    one, other = alone.runs[0], several.runs[0]
    assert (one.end, one.exit_code, one.stdout, one.stderr) == (other.end, other.exit_code, other.stdout, other.stderr)
    assert one.confirmed == other.confirmed


@pytest.mark.parametrize("code", ["def f(:", "x = 1\0", "\ud800", "(" * 100_000 + ")" * 100_000])
async def test_compile_error_is_the_same_for_one_and_several_inputs(executor: Executor, code: str) -> None:
    alone = await executor.run(request(code, b"1"))
    several = await executor.run(request(code, b"1", b"2"))
    assert (alone.compile.status, alone.compile.stderr) == (several.compile.status, several.compile.stderr)
    assert [run.end for run in alone.runs] == ["not_run"]


async def test_a_program_that_prints_too_much_is_stopped_and_the_next_one_runs(executor: Executor) -> None:
    for code in ("while True: print('x' * 1000)", "print('x' * 70_000)"):
        run = await run_one(executor, code, output=64)
        assert (run.end, run.exit_code, len(run.stdout)) == ("output_limit", None, 65536)
        assert (await run_one(executor, "print(1)")).stdout == b"1\n"


SEARCH = f"{MEMORY_SEARCH}\nprint(*f(input().split()))"


async def test_a_worker_keeps_nothing_of_a_program() -> None:
    """A later program would inherit its worker's memory: no text, input or output of an earlier one is in it."""
    async with started(ExecutorPlan(slots=1, allow_uncontained=True)) as alone:
        code = "# earlier-text\nimport sys\nprint('earlier-' + 'output', input())\nsys.stderr.write('earlier-' + 'log')"
        assert b"earlier-output earlier-input" in (await run_one(alone, code, b"earlier-input")).stdout
        assert (await alone.run(request("def f(: # earlier-text"))).compile.status == "error"
        for mark in ("text", "input", "output", "log"):
            scanned = (await run_one(alone, SEARCH, f"ear lier- {mark}".encode(), memory=1024)).stdout.split()
            assert (int(scanned[0]) <= 2, int(scanned[1]) > 500) == (True, True), (mark, scanned)  # its own two
        kept = "kept = ['own-mark-%d' % n for n in range(50)]\n"
        assert int((await run_one(alone, kept + SEARCH, b"own- mark-", memory=1024)).stdout.split()[0]) >= 25


async def test_a_dead_worker_is_an_infra_error_for_its_request_only() -> None:
    async with started(ExecutorPlan(slots=1, queue=4, allow_uncontained=True)) as executor:
        assert (await run_one(executor, "print(1)")).stdout == b"1\n"
        (worker,) = await until(lambda: found if len(found := living_children(executor.zygote_pid)) == 1 else [])
        running = asyncio.create_task(executor.run(request("import time\ntime.sleep(1000)", seconds=100)))
        await until(lambda: living_children(worker))
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(ExecutorLost):
            await running
        assert (await run_one(executor, "print(2)")).stdout == b"2\n"


async def test_a_request_that_is_given_up_frees_its_slot_and_ends_its_child() -> None:
    async with started(ExecutorPlan(slots=1, queue=4, allow_uncontained=True)) as executor:
        assert (await run_one(executor, "print(1)")).stdout == b"1\n"
        (worker,) = await until(lambda: found if len(found := living_children(executor.zygote_pid)) == 1 else [])
        running = asyncio.create_task(executor.run(request("import time\ntime.sleep(1000)", seconds=100)))
        (child,) = await until(lambda: living_children(worker))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await run_one(executor, "print(3)")).stdout == b"3\n"
        await until(lambda: not os.path.exists(f"/proc/{child}"))  # noqa: PTH110 - what the kernel says
