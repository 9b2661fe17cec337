"""Programs in Go, Java, JavaScript, Lua, PHP, Ruby and Rust that want anything but to solve the problem: in vain."""

from typing import Any

import pytest
from builders.judge.language_cheats import COMPILE_TIME, FLOODS, KEEPS_A_FILE, MANY_THREADS, WORKS_ON, make_cheats
from builders.judge.sandbox import request, require_compiler, run_one

from evalrun_executor.executor import Executor
from evalrun_executor.toolchain import COMPILERS

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

LANGUAGES = ["javascript", "go", "java", "rust", "ruby", "php", "lua"]
LIMITS: dict[str, Any] = {"seconds": 5.0, "memory": 512, "output": 64}


@pytest.fixture
def language(request: pytest.FixtureRequest) -> str:
    """A language whose compiler or interpreter is here."""
    name = str(request.param)
    require_compiler(COMPILERS[name])
    return name


@pytest.mark.parametrize("language", LANGUAGES, indirect=True)
async def test_every_hostile_act_is_refused(sandbox: Executor, language: str) -> None:
    code, acts = make_cheats(language)
    run = await run_one(sandbox, code, language=language, **LIMITS)
    assert run.exit_code == 0, run.stderr.decode()
    told = dict(line.split() for line in run.stdout.decode().splitlines())
    assert len(acts) >= 40
    assert [act for number, act in enumerate(acts) if told[str(number)] != "refused"] == []


@pytest.mark.parametrize("name", COMPILE_TIME)
async def test_compiler_reads_and_exhausts_nothing(sandbox: Executor, name: str) -> None:
    language, code = COMPILE_TIME[name]
    require_compiler(COMPILERS[language])
    reply = await sandbox.run(request(code, language=language))
    assert reply.compile.status in ("error", "timeout")
    assert b"root:" not in reply.compile.stderr
    assert reply.runs[0].end == "not_run"


@pytest.mark.parametrize("language", LANGUAGES, indirect=True)
async def test_files_of_one_test_are_gone_in_the_next_test(sandbox: Executor, language: str) -> None:
    reply = await sandbox.run(request(KEEPS_A_FILE[language], b"1", b"2", b"3", language=language))
    assert [run.stdout for run in reply.runs] == [b"0\n"] * 3


@pytest.mark.parametrize("language", WORKS_ON, indirect=True)
async def test_threads_end_with_their_program(sandbox: Executor, language: str) -> None:
    run = await run_one(sandbox, WORKS_ON[language], language=language, **LIMITS)
    assert (run.end, run.exit_code, run.stdout) == ("exited", 0, b"answer\n")


@pytest.mark.parametrize("language", LANGUAGES, indirect=True)
async def test_endless_output_is_stopped_at_the_output_limit(sandbox: Executor, language: str) -> None:
    run = await run_one(sandbox, FLOODS[language], language=language, **LIMITS)
    assert run.end == "output_limit"


@pytest.mark.parametrize("language", MANY_THREADS, indirect=True)
async def test_threads_are_bounded(sandbox: Executor, language: str) -> None:
    run = await run_one(sandbox, MANY_THREADS[language], language=language, seconds=8.0, memory=1024)
    assert b"done" not in run.stdout
    assert (run.end, run.exit_code) != ("exited", 0)
