"""The gateway's SandboxFusion backend against servers: a double, our own server, and a stock server where one is named.

The same programs, and what each must come to, whatever stands behind the address.
"""

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from builders.fusion.clients import sandbox as own_server
from builders.fusion.clients import stock_address
from builders.fusion.server import StockDouble, stock_double
from builders.judge.sandbox import busy_descendant, living_children, until

from evalrun_executor.api import LEVELS, Limits, RunRequest
from evalrun_executor.contained.supervision import KEPT_STDERR
from evalrun_judge.sandboxes.fusion import FusionSandbox

pytestmark = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def client_of(kind: str) -> AsyncIterator[FusionSandbox]:
    """A client of a server; our own server is taken for a stock one: it runs no bash, and nothing may fork there."""
    if kind == "double":
        async with stock_double(StockDouble()) as url, FusionSandbox(url, nonces=secrets.token_bytes) as client:
            yield client
    elif kind == "own server":
        with own_server() as url:
            async with FusionSandbox(url, nonces=secrets.token_bytes, prefer_own_api=False) as client:
                yield client
    else:
        async with FusionSandbox(stock_address(), nonces=secrets.token_bytes) as client:
            yield client


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=["double", "stock", "own server"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[FusionSandbox]:
    async with client_of(request.param) as client:
        yield client


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=["double", "stock"])
async def batched(request: pytest.FixtureRequest) -> AsyncIterator[FusionSandbox]:
    """A server on which the harness runs: many tests a call."""
    async with client_of(request.param) as client:
        yield client


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def own() -> AsyncIterator[FusionSandbox]:
    async with client_of("own server") as client:
        yield client


def asked(code: str, *inputs: bytes, language: str = "python", seconds: float = 5.0, memory: int = 512,
          output: int = 1024, stop_after: int = 0, mode: str = "stdio") -> RunRequest:  # fmt: skip
    limits = Limits(seconds, memory, output)
    return RunRequest(language, code, list(inputs) or [b""], limits, mode, stop_after)


DOUBLE_IT = {
    "python": "print(2 * int(input()))",
    "cpp": "#include <iostream>\nint main() { int n; std::cin >> n; std::cout << 2 * n << std::endl; }",
}


@pytest.mark.parametrize("language", DOUBLE_IT)
async def test_each_input_gets_its_output(server: FusionSandbox, language: str) -> None:
    numbers = range(4)
    said = await server.run(asked(DOUBLE_IT[language], *[b"%d\n" % n for n in numbers], language=language))
    assert said.compile.status == "ok"
    assert [(run.end, run.exit_code, run.stdout) for run in said.runs] == [
        ("exited", 0, b"%d\n" % (2 * n)) for n in numbers
    ]


OTHERS = {
    "go": 'package main\nimport "fmt"\nfunc main() { var n int; fmt.Scan(&n); fmt.Println(2 * n) }\n',
    "lua": "print(2 * io.read('n'))",
    "php": "<?php echo 2 * fgets(STDIN), PHP_EOL;",
    "ruby": "puts 2 * gets.to_i",
    "java": "import java.util.*;\nclass Answer { public static void main(String[] args) {\n"
    "System.out.println(2 * new Scanner(System.in).nextInt()); } }",
    "javascript": "console.log(2 * require('fs').readFileSync(0, 'utf8'))",
    "rust": "fn main() { let mut text = String::new(); std::io::stdin().read_line(&mut text).unwrap();\n"
    'println!("{}", 2 * text.trim().parse::<i64>().unwrap()); }',
    "typescript": "declare var require: any;\nconst n: number = Number(require('fs').readFileSync(0, 'utf8'));\n"
    "console.log(2 * n)",
}


@pytest.mark.parametrize("language", OTHERS)
async def test_other_languages_run_in_the_harness(batched: FusionSandbox, language: str) -> None:
    if language not in (await batched.describe()).info.languages:
        pytest.skip(f"the server has no {language}")
    said = await batched.run(asked(OTHERS[language], b"2\n", b"21\n", language=language))
    assert said.compile.status == "ok"
    assert [(run.end, run.stdout) for run in said.runs] == [("exited", b"4\n"), ("exited", b"42\n")]


@pytest.mark.parametrize(("language", "code"), [("java", "class Answer {"), ("typescript", "const = 1;")])
async def test_compile_failure_of_code_for_an_interpreter_is_reported(
    batched: FusionSandbox, language: str, code: str
) -> None:
    if language not in (await batched.describe()).info.languages:
        pytest.skip(f"the server has no {language}")
    said = await batched.run(asked(code, b"", b"", language=language))
    assert (said.compile.status, said.compile.stderr != b"") == ("error", True)
    assert {run.end for run in said.runs} == {"not_run"}


ENDS = [
    ("raise ValueError(input())", ("exited", 1, b"")),
    ("print(1)\nraise SystemExit(3)", ("exited", 3, b"1\n")),
    ("import os\nos.abort()", ("exited", -6, b"")),
    ("while True: pass", ("timeout", None, b"")),
    ("print('x' * 100_000)", ("exited", 0, b"x" * 100_000 + b"\n")),
    ("x = bytearray(1 << 30)", None),
]


@pytest.mark.parametrize(("code", "end"), ENDS)
async def test_end_of_a_program_is_reported(
    server: FusionSandbox, code: str, end: tuple[str, int | None, bytes] | None
) -> None:
    (run,) = (await server.run(asked(code, seconds=0.4, memory=256))).runs
    if end is None:
        assert run.end == "memory_limit" or (run.exit_code == 1 and b"MemoryError" in run.stderr)
    else:
        assert (run.end, run.exit_code, run.stdout) == end


@pytest.mark.parametrize(
    ("language", "code"), [("python", "print("), ("python", "x = 1\n  y = 2"), ("cpp", "int main(")]
)
async def test_compile_failure_is_reported(server: FusionSandbox, language: str, code: str) -> None:
    said = await server.run(asked(code, b"", b"", language=language))
    assert (said.compile.status, [run.end for run in said.runs]) == ("error", ["not_run", "not_run"])
    assert said.compile.stderr


async def test_timeouts_stop_a_problem_early(server: FusionSandbox) -> None:
    code = "import sys\nif input() == 'slow':\n  while True: pass\nprint(1)"
    said = await server.run(asked(code, b"slow", b"fast", b"slow", b"fast", seconds=0.3, stop_after=2))
    assert [run.end for run in said.runs] == ["timeout", "exited", "timeout", "not_run"]


async def test_calls_mode_returns_the_value_of_the_function(server: FusionSandbox) -> None:
    batch = b'{"imports": "", "tests": [[0, [["f", [2], {"d": []}]]]]}'
    (run,) = (await server.run(asked("def f(n):\n  print('hm')\n  return n + 1", batch, mode="calls"))).runs
    lines = run.stdout.splitlines()
    assert (lines[0], lines[-1]) == (b"load V null", b"end"), run
    assert b"0 0 V [3,null]" in lines


async def test_output_that_a_stock_server_cuts_or_hangs_on_comes_whole(batched: FusionSandbox) -> None:
    for size in (262_144, 500_000, 3_000_000):
        request = asked(f"import os, sys\nsys.stdout.write('x' * {size})\nsys.stderr.write('y' * {size})", output=4096)
        (run,) = (await batched.run(request)).runs
        assert (run.end, len(run.stdout), len(run.stderr)) == ("exited", size, KEPT_STDERR)


async def test_non_text_bytes_cross_both_ways(batched: FusionSandbox) -> None:
    (run,) = (
        await batched.run(asked("import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())", b"\xff\0\n"))
    ).runs
    assert run.stdout == b"\xff\0\n"


async def test_load_makes_no_timeouts(batched: FusionSandbox) -> None:
    """12 programs of 0.2 CPU-s at a limit of 0.5 s: by the wall, as the server measures, most would be too late."""
    code = "import time\nwhile time.process_time() < 0.2: pass\nprint(input())"
    replies = await asyncio.gather(*[batched.run(asked(code, b"%d" % n, seconds=0.5)) for n in range(12)])
    assert [reply.runs[0].stdout for reply in replies] == [b"%d\n" % n for n in range(12)]


async def test_a_program_that_got_too_little_of_the_cpu_is_run_again_alone() -> None:
    """As in our own sandbox; what was left out after it, for want of timeouts that are allowed, runs too."""
    code = "import time\nwanted = float(input())\nwhile time.process_time() < wanted: pass\nprint('done')"
    async with client_of("double") as client:
        before = living_children(os.getpid())
        # Half the limit, because a busy machine makes CPU seconds longer. At the wall limit, after 11 s, the program
        # must have had a tenth of a CPU, or it would count as asleep.
        wanted = asked(code, b"1.5", b"0", b"0", seconds=3.0, stop_after=1)
        running = asyncio.create_task(client.run(wanted))
        program = await until(lambda: busy_descendant(os.getpid(), 1.15, before))
        os.kill(program, signal.SIGSTOP)
        runs = (await running).runs
    assert [(run.end, run.confirmed) for run in runs] == [("exited", True)] * 3


async def test_program_runs_contained_at_the_reported_level(batched: FusionSandbox) -> None:
    backend = await batched.describe()
    assert backend.name == "sandbox-fusion"
    assert {"python", "cpp"} <= set(backend.info.languages)
    if backend.info.level != "full":
        pytest.skip(f"this machine reaches {backend.info.level}: {backend.info.missing}")
    said = await batched.run(asked("import os\nprint(os.getuid() != 0, sorted(os.environ))"))
    assert said.level == "full"
    assert said.runs[0].stdout.startswith(b"True ['HOME', 'LANG'")


async def test_evalrun_sandbox_as_fusion_server_is_measured_and_its_batch_api_preferred(own: FusionSandbox) -> None:
    backend = await own.describe()
    assert (backend.name, backend.info.languages) == ("sandbox-fusion", ["python", "cpp"])
    async with FusionSandbox(own.address, nonces=secrets.token_bytes) as client:
        found = await client.describe()
        assert found.name == "evalrun"
        assert LEVELS.index(found.info.level) == LEVELS.index(backend.info.level)
        assert (await client.run(asked("print(input())", b"\xff"))).runs[0].stdout == b"\xff\n"
