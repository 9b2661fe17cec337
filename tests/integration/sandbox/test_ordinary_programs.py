"""Ordinary programs just run: the list of the evaluation's specification, each a test."""

import sys

import pytest
from builders.judge.ordinary_programs import EXITS, PROGRAMS, plainly
from builders.judge.sandbox import request, run_one

from evalrun_executor.executor import Executor

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("name", PROGRAMS)
async def test_program_prints_the_same_as_under_python(executor: Executor, name: str) -> None:
    code, stdin, expected = PROGRAMS[name]
    run = await run_one(executor, code, stdin)
    assert (run.stdout, run.end, run.exit_code) == (expected, "exited", 0), run.stderr.decode()
    assert plainly(code, stdin) == (0, expected)


@pytest.mark.parametrize("name", EXITS)
async def test_program_ends_the_same_as_under_python(executor: Executor, name: str) -> None:
    code, exit_code, stdout, stderr = EXITS[name]
    run = await run_one(executor, code)
    assert (run.end, run.exit_code, run.stdout) == ("exited", exit_code, stdout)
    assert plainly(code) == (exit_code, stdout)
    if stderr == b"...":
        assert run.stderr
    elif sys.version_info[:2] == (3, 11) or b"~~" not in stderr:  # other versions mark the place otherwise
        assert run.stderr == stderr


async def test_starting_programs_and_opening_sockets_are_ordinary_errors(executor: Executor) -> None:
    if executor.report.level not in ("seccomp", "full"):
        pytest.skip("this machine does not refuse them")
    code = """
import os, socket, subprocess
for attempt in (os.fork, lambda: subprocess.run(["true"]), lambda: os.system("true"), socket.socket,
                lambda: socket.create_connection(("127.0.0.1", 1)), lambda: os.execv("/bin/true", ["true"]),
                lambda: os.posix_spawn("/bin/true", ["true"], {})):
    try:
        print("allowed", attempt())
    except OSError as error:
        print("refused")
"""
    run = await run_one(executor, code)
    lines = run.stdout.decode().splitlines()
    assert lines[:2] + lines[3:] == ["refused"] * 6
    assert lines[2] in ("allowed -1", "allowed 32512", "refused")  # os.system tells by its result


async def test_changes_of_one_run_are_invisible_to_the_next_run(executor: Executor) -> None:
    code = """
import builtins, os, sys, random
print(sorted(os.listdir()), hasattr(builtins, "mark"), "mark" in sys.modules, os.environ.get("MARK"), len(sys.path))
open("left", "w").write("x"); os.makedirs("a/b/c")
builtins.mark = 1; sys.modules["mark"] = sys; os.environ["MARK"] = "1"; sys.path.append("/")
"""
    reply = await executor.run(request(code, *[b""] * 6))
    assert len({run.stdout for run in reply.runs}) == 1
    assert reply.runs[0].stdout.startswith(b"[] False False None")


async def test_a_set_has_the_same_order_each_time(executor: Executor) -> None:
    reply = await executor.run(request("print(set('abcdefgh'), hash('x'))", *[b""] * 4))
    again = await executor.run(request("print(set('abcdefgh'), hash('x'))"))
    assert len({run.stdout for run in [*reply.runs, *again.runs]}) == 1


async def test_random_has_another_seed_in_each_test(executor: Executor) -> None:
    reply = await executor.run(request("import random\nprint(random.random())", *[b""] * 4))
    assert len({run.stdout for run in reply.runs}) == 4


async def test_numpy_program_prints_the_right_result(executor: Executor) -> None:
    run = await run_one(executor, "import importlib.util\nprint(importlib.util.find_spec('numpy') is not None)")
    if run.stdout != b"True\n":
        pytest.skip("the candidates' interpreter has no numpy")
    run = await run_one(
        executor, "import numpy as np\nprint(np.arange(10).sum(), np.linalg.det(np.eye(3)))", memory=1024
    )
    assert run.stdout == b"45 1.0\n", run.stderr.decode()
