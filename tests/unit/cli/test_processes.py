"""A part that is launched before its arguments are known: it waits for them on stdin."""

import ast
import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evalrun_cli.local.processes import ServiceFailedError, ServiceProcess
from evalrun_runtime import late_arguments

MODULE = """\
import asyncio, sys, time
from evalrun_runtime.late_arguments import complete, next_line
from evalrun_runtime.ready_line import ready_line
arguments = complete(sys.argv[1:])
told = asyncio.run(next_line()) if "--told" in arguments else ""
if "--refuse" in arguments:
    sys.exit("refused")
port = arguments[arguments.index("--port") + 1]
print(ready_line("part", f"http://127.0.0.1:{port}/{arguments[0]}{told}"), flush=True)
sys.stdin.read()
time.sleep(600)
"""


@pytest.fixture
def part(tmp_path: Path) -> ServiceProcess:
    (tmp_path / "part_of_a_test.py").write_text(MODULE)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    return ServiceProcess("part", "part_of_a_test", [], tmp_path / "part.log", {"PYTHONPATH": path})


async def test_a_launched_part_gets_its_arguments(part: ServiceProcess) -> None:
    await part.launch()
    launched = part.pid
    part.arguments = ["name"]
    await part.start()
    assert (part.address, part.pid) == ("http://127.0.0.1:0/name", launched)
    await part.stop(0)


async def test_part_receives_a_later_line_that_was_sent_early(part: ServiceProcess) -> None:
    await part.launch()
    part.arguments = ["name", "--told"]
    starting = asyncio.create_task(part.start(is_told_later=True))
    await asyncio.sleep(0)  # the arguments are written; the part still imports
    part.tell("/later")
    await starting
    assert part.address == "http://127.0.0.1:0/name/later"
    await part.stop(0)


async def test_part_that_ended_while_waiting_is_started_again(part: ServiceProcess) -> None:
    await part.launch()
    killed = part.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    await part.wait()
    part.arguments = ["name"]
    await part.start()
    assert part.address == "http://127.0.0.1:0/name"
    assert part.pid != killed
    await part.stop(0)


async def test_launched_part_that_refuses_its_arguments_fails_with_the_reason(part: ServiceProcess) -> None:
    await part.launch()
    part.arguments = ["--refuse"]
    with pytest.raises(ServiceFailedError, match="part ended with exit code 1: refused"):
        await part.start()


def test_part_without_arguments_on_stdin_ends_quietly(part: ServiceProcess) -> None:
    command = [sys.executable, "-m", part.module, late_arguments.FLAG]
    environment = {**os.environ, **part.environment}
    ended = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


@pytest.mark.parametrize("arguments", [[], ["--output", "a b\nc"], ["\udcff", "\u00e9"]])
def test_arguments_arrive_unchanged(arguments: list[str], tmp_path: Path) -> None:
    script = "import sys\nfrom evalrun_runtime.late_arguments import complete\nprint(ascii(complete(sys.argv[1:])))\n"
    script += "print('to the log', file=sys.stderr)"
    log = tmp_path / "log"
    ended = subprocess.run(
        [sys.executable, "-c", script, "--first", late_arguments.FLAG],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        input=late_arguments.render_line(arguments, log), capture_output=True, check=True,
    )  # fmt: skip
    assert ast.literal_eval(ended.stdout.decode()) == ["--first", *arguments]
    assert (log.read_text(), ended.stderr) == ("to the log\n", b"")
