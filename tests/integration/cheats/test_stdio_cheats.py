"""Programs that want anything but to solve the problem. None gets it, and a program beside each keeps its right result.

The executor knows no expected output, so "not accepted" means here: what the program prints is its own, what it tried
was refused, nothing of it is left, and no other run is changed.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from builders.judge.cheat_programs import (
    BOUNDED,
    FLOODS,
    LOOKING,
    NOTHING_PRINTED,
    OPEN_FILES,
    REFUSED,
    all_called,
    tried,
)
from builders.judge.sandbox import (
    filters_of,
    living_children,
    programs_below,
    request,
    run_one,
    started,
    state_of,
    until,
)

from evalrun_executor.api import Limits, ProgramRun, RunRequest
from evalrun_executor.executor import Executor, ExecutorPlan

pytestmark = pytest.mark.asyncio(loop_scope="session")

HONEST = (
    "import threading\nn = int(input())\nt = threading.Thread(target=lambda: print(sum(range(n))))\nt.start()\nt.join()"
)


async def beside_an_honest_one(
    sandbox: Executor, code: str, *, seconds: float = 2.0, memory: int = 256, output: int = 1024
) -> ProgramRun:
    """Run the cheat on three inputs, and on one, while an honest program runs; the honest one must pass.

    One input alone is run by a worker, several are by a runner.
    """
    cheats = [request(code, *inputs, seconds=seconds, memory=memory, output=output) for inputs in ([b""] * 3, [b""])]
    honest = request(HONEST, *[b"%d" % number for number in range(20)], seconds=10.0)
    cheating, alone, passing = await asyncio.gather(*map(sandbox.run, [*cheats, honest]))
    assert [run.stdout for run in passing.runs] == [b"%d\n" % sum(range(number)) for number in range(20)]
    assert (cheating.compile.status, alone.compile.status) == ("ok", "ok")
    assert await no_program_left(sandbox)
    run, other = cheating.runs[0], alone.runs[0]
    assert (run.end, run.exit_code, run.stdout) == (other.end, other.exit_code, other.stdout), (
        run.stderr[-500:],
        other.stderr[-500:],
    )
    return run


async def no_program_left(sandbox: Executor) -> bool:
    """Once nothing runs, the zygote has no child but its slots' workers, which have none, and no program."""
    zygote = sandbox.zygote_pid
    own = filters_of(zygote)

    def is_quiet() -> bool:
        children = living_children(zygote)
        return len(children) <= sandbox.slots and not any(
            living_children(child) or filters_of(child) > own + 1 for child in children
        )

    return await until(is_quiet)


@pytest.mark.parametrize("name", NOTHING_PRINTED)
async def test_program_ending_early_prints_nothing(sandbox: Executor, name: str) -> None:
    run = await beside_an_honest_one(sandbox, NOTHING_PRINTED[name])
    assert (run.end, run.stdout) == ("exited", b"")


@pytest.mark.parametrize("name", REFUSED)
async def test_forbidden_act_is_refused_as_an_ordinary_error(sandbox: Executor, name: str) -> None:
    run = await beside_an_honest_one(sandbox, tried(name))
    assert run.stdout == b"refused\n", (run.end, run.exit_code, run.stderr.decode()[-500:])


async def test_raw_system_calls_are_refused(sandbox: Executor) -> None:
    run = await beside_an_honest_one(sandbox, all_called(os.uname().machine))
    assert run.stdout == b"done\n", run.stderr


async def test_system_call_by_int_0x80_kills_only_the_caller(sandbox: Executor) -> None:
    """int 0x80 asks for 32-bit call numbers, which the filter does not know."""
    if os.uname().machine != "x86_64":
        pytest.skip("x86 only")
    code = """
import ctypes, mmap
rights = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=rights)
page.write(b"\\xb8\\x02\\x00\\x00\\x00\\xcd\\x80\\xc3")  # mov eax, 2 (fork); int 0x80; ret
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
print("forked", ctypes.CFUNCTYPE(ctypes.c_int)(address)())
"""
    run = await beside_an_honest_one(sandbox, code)
    assert (run.exit_code, run.stdout) == (-signal.SIGSYS, b"")


async def test_only_three_descriptors_are_inherited(sandbox: Executor) -> None:
    code = """
import os
found = []
for fd in range(1024):
    try:
        os.fstat(fd)
        found.append(fd)
    except OSError:
        pass
print(found)
"""
    run = await beside_an_honest_one(sandbox, code)
    assert run.stdout == b"[0, 1, 2]\n"


async def test_program_among_many_slots_inherits_no_further_descriptor() -> None:
    """A zygote of many slots holds hundreds of descriptors, so that new ones have high numbers."""
    slots = 140
    batch = json.dumps({"imports": "", "tests": [[0, [["found", [], {"d": []}]]]]}).encode()
    calls = RunRequest("python", OPEN_FILES, [batch], Limits(30.0, 64, 64), mode="calls")
    printing = request(f"{OPEN_FILES}\nprint(found())", seconds=30.0, memory=64)
    async with started(ExecutorPlan(slots=slots, queue=slots, allow_uncontained=True)) as many:
        answered = await asyncio.gather(*[many.run(calls) for _ in range(slots)])
        assert {reply.runs[0].stdout for reply in answered} == {b"load V null\n0 0 V [[3],null]\nend\n"}
        printed = await asyncio.gather(*[many.run(printing) for _ in range(slots)])
        assert {reply.runs[0].stdout for reply in printed} == {b"[]\n"}


async def test_text_of_an_earlier_program_cannot_be_read() -> None:
    """Neither for a compiled program nor for calls: their slot's last Python text is not theirs."""
    async with started(ExecutorPlan(slots=1, allow_uncontained=True)) as alone:
        if "c" not in alone.languages:
            pytest.skip("no compiler")
        assert (await run_one(alone, "print(1) # an earlier program")).stdout == b"1\n"
        code = '#include <stdio.h>\nint main() { puts(fopen("../source/main.py", "r") ? "read" : "refused"); }'
        assert (await run_one(alone, code, language="c")).stdout == b"refused\n"


async def test_threads_share_one_limit_on_open_files(sandbox: Executor) -> None:
    code = """
import ctypes, os, threading
libc = ctypes.CDLL(None)
opened = []
held = threading.Barrier(5)
def fill():
    libc.syscall(436, 3, 0x7fffffff, 2)
    try:
        while True: opened.append(os.pipe())
    except OSError:
        held.wait()
threads = [threading.Thread(target=fill) for _ in range(5)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(opened) <= 128)
"""
    run = await beside_an_honest_one(sandbox, code)
    assert run.stdout == b"True\n", run.stderr


LEADERLESS = {
    "that sleeps": "threading.Thread(target=time.sleep, args=(1000,)).start()",
    "that runs": "threading.Thread(target=spin).start()\ntime.sleep(0.05)",
}


@pytest.mark.parametrize("name", LEADERLESS)
async def test_a_program_whose_first_thread_has_left_is_held_to_its_limits(sandbox: Executor, name: str) -> None:
    code = f"import ctypes, threading, time\ndef spin():\n  while True: pass\n{LEADERLESS[name]}\n"
    code += f"ctypes.CDLL(None).syscall({60 if os.uname().machine == 'x86_64' else 93}, 0)"
    run = (await sandbox.run(request(code, seconds=0.1))).runs[0]
    # Where others fill the disk meanwhile, it is stopped as soon as its open files cannot be seen.
    assert run.end == "timeout" or b"as far as can be seen" in run.stderr


async def test_program_that_sends_itself_stop_signals_continues(sandbox: Executor) -> None:
    code = "import os, signal\nfor s in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU): os.kill(os.getpid(), s)\n"
    code += "print('on')"
    run = await beside_an_honest_one(sandbox, code)
    assert run.stdout == b"on\n"


async def test_frames_cannot_be_forged_on_descriptors(sandbox: Executor) -> None:
    code = """
import os, struct
run = struct.pack("<BI", 2, 50) + struct.pack("<IBiddQI", 0, 0, 0, 0.0, 0.0, 0, 6) + b"forged"
for fd in range(3, 1024):
    try:
        os.write(fd, run)
        print("written", fd)
    except OSError:
        pass
os.write(0, run)
os.write(2, run)
print("mine")
"""
    run = await beside_an_honest_one(sandbox, code)
    assert run.stdout == b"mine\n"


async def test_interpreter_memory_holds_no_data_of_other_programs(sandbox: Executor) -> None:
    """A program can read all of its own memory: the zygote's, then. No other program and no input may be there."""
    marker = "f7c1" + "a9e5" * 4
    await sandbox.run(request(f"x = '{marker}'\nprint(input())", marker.encode(), marker.encode()))
    code = """
import gc
part = "f7c1" + "a9e5"
def strings(value, seen):
    return [v for v in seen if isinstance(v, (str, bytes)) and (part if isinstance(v, str) else part.encode()) in v]
seen = [r for o in gc.get_objects() for r in gc.get_referents(o)]
print(len([v for v in strings(None, seen) if len(v) > 8 and len(v) < 100]))
"""
    run = await beside_an_honest_one(sandbox, code)
    assert run.stdout == b"0\n", run.stdout


@pytest.mark.parametrize("name", FLOODS)
async def test_flood_is_stopped_at_its_limit(sandbox: Executor, name: str) -> None:
    code, end = FLOODS[name]
    run = await beside_an_honest_one(sandbox, code, seconds=0.2 if end == "timeout" else 5.0, output=256)
    assert run.end in (end, "exited" if "bomb of" in name else end), (run.exit_code, run.stderr[-300:])
    assert run.end != "exited" or run.exit_code != 0
    assert len(run.stdout) + len(run.stderr) <= 2 * 256 * 1024 + 200


@pytest.mark.parametrize("name", BOUNDED)
async def test_program_breaking_limits_outside_the_kernel_is_stopped_with_reason(sandbox: Executor, name: str) -> None:
    code, reason = BOUNDED[name]
    run = await beside_an_honest_one(sandbox, code, memory=1024)
    assert (run.end, run.exit_code) == ("exited", -signal.SIGKILL), run.stderr[-300:]
    assert b"stopped by the sandbox: " in run.stderr
    assert reason in run.stderr.rpartition(b"stopped by the sandbox: ")[2]


async def test_endless_file_write_fails_with_file_too_large(sandbox: Executor) -> None:
    run = await beside_an_honest_one(sandbox, "f = open('f', 'wb')\nwhile True: f.write(bytes(1 << 20))")
    assert (run.end, run.exit_code) == ("exited", 1)
    assert b"File too large" in run.stderr


async def test_crashed_program_leaves_no_core_file(sandbox: Executor) -> None:
    code = "import ctypes\nctypes.string_at(0)"
    run = await beside_an_honest_one(sandbox, code)
    assert run.exit_code == -signal.SIGSEGV
    left = await sandbox.run(request("import os\nprint(os.listdir())", b"", b""))
    assert {run.stdout for run in left.runs} == {b"[]\n"}


async def test_program_cannot_see_files_of_other_slots(sandbox: Executor) -> None:
    """Both slots have a directory under one place; each program knows where its own lies."""
    writer = request("import os, time\nopen('secret', 'w').write('x')\ntime.sleep(0.3)\nprint(os.getcwd())")
    reader = request(
        "import os, time\ntime.sleep(0.1)\nhere = os.getcwd()\n"
        "for n in range(8):\n  path = here.rpartition('slot-')[0] + f'slot-{n}/work/secret'\n"
        "  try: print(open(path).read(), 'read')\n  except OSError: pass"
    )
    _, read = await asyncio.gather(sandbox.run(writer), sandbox.run(reader))
    assert read.runs[0].stdout == b""


async def test_program_cannot_read_other_programs_or_the_runner(sandbox: Executor) -> None:
    """A program may be looked into by its own user, for its runner counts its files: but not by another program."""
    neighbour = request("open('f', 'w')\nimport time\ntime.sleep(1)")
    looking, _ = await asyncio.gather(sandbox.run(request(LOOKING)), sandbox.run(neighbour))
    assert looking.runs[0].stdout == b"True []\n", looking.runs[0].stderr


async def test_killed_sandbox_process_ends_zygote_runners_and_programs() -> None:
    """In a process of its own: an executor with a program that ignores all it can, killed by SIGKILL."""
    script = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from builders.judge.cheat_programs import BOUNDED, FLOODS, NOTHING_PRINTED, RAW_CALLS, REFUSED, called, tried
from builders.judge.sandbox import request
from evalrun_executor.executor import Executor, ExecutorPlan
async def main():
    executor = Executor(ExecutorPlan(slots=2, allow_uncontained=True))
    await executor.start()
    print(executor.zygote_pid, flush=True)
    code = "import signal\\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\\nwhile True: pass"
    await executor.run(request(code, b"", b"", b"", b"", seconds=100))
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(Path(__file__).parents[2]), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    zygote = int(await process.stdout.readline())
    programs = await until(lambda: found if len(found := programs_below(zygote)) == 2 else [])
    runners = living_children(zygote)
    process.kill()
    await process.wait()

    assert await until(lambda: all(state_of(pid) == "Z" for pid in [zygote, *runners, *programs]))
