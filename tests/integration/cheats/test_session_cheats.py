"""Code in a live session that wants more than its session. It gets nothing, and a session beside it keeps its state.

A session's code can forge its own answers: no verdict is made of them. What counts here is that it reaches nothing
else: no file, memory, process or CPU time of another session, of a program, or of the sandbox.
"""

import asyncio
import errno
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from builders.judge.cheat_programs import BOUNDED, FLOODS, LOOKING, OPEN_FILES, REFUSED, all_called, tried
from builders.judge.sandbox import state_of, until
from builders.judge.sessions import OUTPUT_BYTES, executed, opened

from evalrun_executor.contained.frames import NOT_STOPPED, STOPPED_OUTPUT, STOPPED_TIME
from evalrun_executor.errors import ExecutorLost
from evalrun_sandbox.sessions.interpreter import Interpreter, Interpreters

pytestmark = pytest.mark.asyncio(loop_scope="session")

NO_FILE_OF_ITS_OWN = {"a write to its own text"}
"""Of `REFUSED`: a session's code has no `__file__`."""
FLOODED = (
    "1 GB of output", "errors without end", "10 GB of memory", "10 GB in pieces", "memory by pipes", "a fork bomb",
    "a loop that blocks every signal", "a loop in C that holds the interpreter", "a bomb of spinning threads",
    "a thread that never ends",
)  # fmt: skip


@asynccontextmanager
async def beside_an_honest_one(interpreters: Interpreters) -> AsyncIterator[Interpreter]:
    """Return a session for the cheat; an honest one beside it must keep its state, files and speech."""
    async with opened(interpreters) as honest, opened(interpreters) as cheat:
        await executed(honest, "kept = [1, 2]\nopen('kept', 'w').write('mine')\nimport os")
        yield cheat
        found = await executed(honest, "kept, open('kept').read(), os.listdir()")
        assert (found.result, found.error, found.lost) == ("([1, 2], 'mine', ['kept'])", None, "")


async def pid_of(interpreter: Interpreter) -> int:
    return int((await executed(interpreter, "import os\nos.getpid()")).result)


async def test_session_code_cannot_do_what_programs_cannot(interpreters: Interpreters) -> None:
    async with beside_an_honest_one(interpreters) as cheat:
        for name in REFUSED.keys() - NO_FILE_OF_ITS_OWN:
            found = await executed(cheat, tried(name))
            assert found.stdout == b"refused\n", (name, found)
        found = await executed(cheat, all_called(os.uname().machine))
        assert found.stdout == b"done\n", found


OUTLASTING = {
    "a timer that wakes a stopped process": (
        "import ctypes\nevent = bytes(8) + bytes([18]) + bytes(55)\nctypes.CDLL(None).timer_create(1, event, bytes(8))",
        "-1",
    ),
    "shared memory": ("import mmap\ntry: mmap.mmap(-1, 4096)\nexcept OSError as e: n = e.errno\nn", str(errno.EPERM)),
    "a lock on a file": (
        "import fcntl\ntry: fcntl.lockf(open('x', 'w'), fcntl.LOCK_EX)\nexcept OSError as e: n = e.errno\nn",
        str(errno.EPERM),
    ),
}


@pytest.mark.parametrize("name", OUTLASTING)
async def test_session_code_outlasting_its_execution_is_refused(interpreters: Interpreters, name: str) -> None:
    code, answer = OUTLASTING[name]
    async with opened(interpreters) as cheat:
        assert (await executed(cheat, code)).result == answer


async def test_session_inherits_only_the_streams_and_its_channel(interpreters: Interpreters) -> None:
    async with opened(interpreters) as cheat:
        assert (await executed(cheat, f"{OPEN_FILES}\nfound()")).result == "[3]"


async def test_session_cannot_see_files_memory_or_process_of_another(interpreters: Interpreters) -> None:
    async with opened(interpreters) as other:
        secret = "b3d1" * 8
        await executed(other, f"secret = '{secret}'\nopen('secret', 'w').write(secret)\nimport os")
        place, pid = (await executed(other, "print(os.getcwd())")).stdout.decode().strip(), await pid_of(other)
        async with opened(interpreters) as cheat:
            tries = [f"open({place + '/secret'!r}).read()", f"open('/proc/{pid}/mem', 'rb')", f"os.kill({pid}, 9)",
                     f"os.listdir({place!r})", f"os.kill({pid}, 18)", f"open('/proc/{pid}/environ')"]  # fmt: skip
            for attempt in tries:
                found = await executed(cheat, f"import os\n{attempt}")
                assert found.error is not None, attempt
                assert found.error.name == "PermissionError", found
            looked = await executed(cheat, LOOKING, 30.0)
            assert looked.stdout == b"True []\n", looked
            code = "import gc\nlen([v for o in gc.get_objects() for v in gc.get_referents(o) if isinstance(v, str)"
            searched = await executed(cheat, f"{code} and v.startswith('b3d1b3d1') and len(v) == 32])")
            assert searched.result == "0"
        assert (await executed(other, "secret == open('secret').read()")).result == "True"


async def test_a_directory_is_empty_again_for_the_next_session(interpreters: Interpreters) -> None:
    async with opened(interpreters) as first:
        await executed(
            first, "open('left', 'w').write('x')\nimport os\nos.mkdir('directory')\nopen('directory/x', 'w')"
        )
        number = first.number
    async with opened(interpreters) as second:
        assert second.number == number
        assert (await executed(second, "import os\nos.listdir()")).result == "[]"


async def test_forged_reply_ends_no_other_session(interpreters: Interpreters) -> None:
    """Code may put words into its own interpreter's mouth; too many of them end its session."""
    forge = (
        "import os, struct\nos.write(3, struct.pack('<BIIII', 0, 6, 0, 0, 0) + b'forged')\nimport time\ntime.sleep(1)"
    )
    async with beside_an_honest_one(interpreters) as cheat:
        assert (await executed(cheat, forge)).result == "forged"
    floods = ["import os\nwhile True: os.write(3, b'x' * 4096)", "import os\nos.write(3, b'\\0' * 5000)",
              "import os\nos.close(3)", "import os\nos.write(3, b'\\xff' * 17)"]  # fmt: skip
    for code in floods:
        async with beside_an_honest_one(interpreters) as cheat:
            assert (await executed(cheat, code)).lost


@pytest.mark.parametrize("name", FLOODED)
async def test_session_flood_is_stopped_with_bounded_output(interpreters: Interpreters, name: str) -> None:
    async with beside_an_honest_one(interpreters) as cheat:
        found = await executed(cheat, FLOODS[name][0], 0.2)
        assert found.stopped != NOT_STOPPED or found.error is not None or found.lost or "never ends" in name
        assert len(found.stdout) <= OUTPUT_BYTES
        assert len(found.stderr) <= OUTPUT_BYTES


@pytest.mark.parametrize("name", BOUNDED)
async def test_session_breaking_limits_outside_the_kernel_ends_with_reason(
    interpreters: Interpreters, name: str
) -> None:
    code, reason = BOUNDED[name]
    async with beside_an_honest_one(interpreters) as cheat:
        lost = (await executed(cheat, code)).lost
        assert reason.decode() in lost or "first thread" in lost, lost


async def test_session_kernel_memory_is_counted(interpreters: Interpreters) -> None:
    async with opened(interpreters) as cheat:
        before = (await executed(cheat, "import os, socket")).held_bytes
        await executed(cheat, "pairs = [socket.socketpair() for _ in range(4)]\npipes = [os.pipe() for _ in range(8)]")
        code = "f = os.open('x', os.O_RDWR | os.O_CREAT)\nos.write(f, bytes(1 << 20)) and os.unlink('x')"
        assert (await executed(cheat, code)).held_bytes - before >= 8 * (1 << 19) + 8 * (1 << 16) + (1 << 20)


async def test_code_that_ignores_an_interrupt_loses_its_session(interpreters: Interpreters) -> None:
    stubborn = "import signal\nsignal.signal(signal.SIGINT, lambda *_: None)\nwhile True: pass"
    async with opened(interpreters) as cheat:
        found = await executed(cheat, stubborn, 0.1)
        assert found.stopped == STOPPED_TIME
        assert "interrupted" in found.lost
        with pytest.raises(ExecutorLost):
            await executed(cheat, "1")


async def test_interrupted_code_keeps_its_state(interpreters: Interpreters) -> None:
    async with opened(interpreters) as session:
        found = await executed(session, "x = 0\nwhile True: x += 1", 0.1)
        assert (found.stopped, found.error and found.error.name, found.lost) == (STOPPED_TIME, "KeyboardInterrupt", "")
        found = await executed(session, "print('a' * 10 ** 6)\nwhile True: pass")
        assert (found.stopped, found.stdout, found.lost) == (STOPPED_OUTPUT, b"a" * OUTPUT_BYTES, "")
        assert (await executed(session, "x > 0")).result == "True"


async def test_an_idle_session_uses_no_cpu(interpreters: Interpreters) -> None:
    """Whatever it has left running: threads, and timers that would wake a process."""
    spin = """
import signal, threading
def spin():
    while True: pass
for _ in range(4): threading.Thread(target=spin).start()
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
"""
    async with opened(interpreters) as cheat, opened(interpreters) as other:
        pid = await pid_of(cheat)
        await executed(cheat, spin)
        assert state_of(pid) == "T"
        clock = (~pid << 3) | 2
        before = time.clock_gettime(clock)
        await executed(other, "import time\nstart = time.process_time()\nwhile time.process_time() < start + 0.2: pass")
        assert time.clock_gettime(clock) == before
        assert (await executed(cheat, "1 + 1", 30.0)).result == "2"


async def test_closed_session_leaves_no_process(interpreters: Interpreters) -> None:
    stay = "import signal, threading, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n"
    stay += "threading.Thread(target=time.sleep, args=(1000,)).start()"
    async with opened(interpreters) as cheat:
        pid = await pid_of(cheat)
        await executed(cheat, stay)
    assert state_of(pid) == "Z"
    async with opened(interpreters) as cheat:
        pid = await pid_of(cheat)
        task = asyncio.create_task(executed(cheat, "while True: pass", 100.0))
        await until(lambda: state_of(pid) == "R")
        cheat.close()
        with pytest.raises(ExecutorLost):
            await task
    assert state_of(pid) == "Z"


async def test_killed_sandbox_process_ends_every_session() -> None:
    script = """
import asyncio
from evalrun_executor.executor import Executor, ExecutorPlan
from evalrun_sandbox.sessions.interpreter import Interpreters
async def main():
    executor = Executor(ExecutorPlan(slots=1, allow_uncontained=True))
    await executor.start()
    interpreters = Interpreters(executor.zygote_plan)
    pids = []
    for _ in range(2):
        one, _ = await interpreters.open(256, {})
        pids.append((await one.execute("import os\\nos.getpid()", 10.0, 1000)).result)
    print(*pids, flush=True)
    await one.execute("while True: pass", 100.0, 1000)
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    pids = [int(pid) for pid in (await process.stdout.readline()).split()]
    assert len(pids) == 2
    process.kill()
    await process.wait()
    assert await until(lambda: all(state_of(pid) == "Z" for pid in pids))
