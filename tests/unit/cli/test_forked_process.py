"""A part that is forked: what it inherits, how it ends, and when nothing may be forked."""

import json
import subprocess
import sys
import threading

from evalrun_cli.local.forked_process import can_fork

CHILD = """\
import asyncio, json, os, signal, sys
from evalrun_cli.local.forked_process import attach_child, fork

def seen():
    line = sys.stdin.readline()
    print(json.dumps({
        "line": line, "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
        "leads": os.getsid(0) == os.getpid(), "name": open("/proc/self/comm").read().strip(),
    }))
    return 7

def refuses():
    sys.exit("refused")

def breaks():
    raise ValueError("broken")

def waits():
    signal.pause()

async def watch(forks):
    one, *others = [await attach_child(fork) for fork in forks]
    one.stdin.write(b"hello\\n")
    others[-1].kill()
    codes = [await process.wait() for process in (one, *others)]
    others[-1].kill()  # it has ended: nothing happens
    others[-1].stdin.write(b"nobody reads this")
    return [*codes, json.loads(await one.stdout.read())]

secret = open("/dev/null")  # a descriptor of the parent's
print("printed once", end="")  # and not flushed
forks = [fork("a-name-of-more-than-15-bytes", seen), *(fork("part", main) for main in (refuses, breaks, waits))]
print(json.dumps(asyncio.run(watch(forks))))
"""

FORKED_PART = """\
import time
from pathlib import Path
from evalrun_cli.local.parts import launch_parts
ours = Path("/proc/self/comm").read_text()
with launch_parts(["recorded", "judge"]) as launched:
    for service in launched.services.values():
        while (name := Path(f"/proc/{service.pid}/comm").read_text()) == ours:
            time.sleep(0.01)  # the child has not named itself yet
        print(name, end="")
"""
"""The judge comes after the imports of the command, gRPC's and aiohttp's, which therefore start no thread."""


def output_of(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)


def test_forked_child_keeps_no_descriptor_open_and_its_exit_code_is_returned() -> None:
    ended = output_of(CHILD)
    first, _, rest = ended.stdout.partition("[")
    *codes, seen = json.loads(f"[{rest}")
    assert first == "printed once"
    assert codes == [7, 1, 1, -9]
    assert seen == {"line": "hello\n", "descriptors": [0, 1, 2], "leads": True, "name": "a-name-of-more-"}
    assert "refused\n" in ended.stderr
    assert "ValueError: broken" in ended.stderr


def test_parts_are_forked_by_a_command() -> None:
    assert output_of(FORKED_PART).stdout.split() == ["evalrun-recorde", "evalrun-judge"]


def test_a_process_with_threads_does_not_fork() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert not can_fork()
    finally:
        end.set()
        thread.join()
