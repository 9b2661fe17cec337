"""Programs that want anything but to solve the problem. None gets it, and a program beside each keeps its right result.

The executor knows no expected output, so "not accepted" means here: what the program prints is its own, what it tried
was refused, nothing of it is left, and no other run is changed.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from builders.sandbox import living_children, request, state_of, until

from evalrun_sandbox.api import ProgramRun
from evalrun_sandbox.executor import Executor

pytestmark = pytest.mark.asyncio(loop_scope="session")

# ruff: noqa: E501, ISC004 - tables of programs read best with a program a line
HONEST = (
    "import threading\nn = int(input())\nt = threading.Thread(target=lambda: print(sum(range(n))))\nt.start()\nt.join()"
)


async def beside_an_honest_one(
    sandbox: Executor, code: str, *, seconds: float = 2.0, memory: int = 256, output: int = 1024
) -> ProgramRun:
    """Run the cheat three times while an honest program with tests of its own runs; the honest one must pass."""
    cheat = request(code, b"", b"", b"", seconds=seconds, memory=memory, output=output)
    honest = request(HONEST, *[b"%d" % number for number in range(20)], seconds=10.0)
    cheating, passing = await asyncio.gather(sandbox.run(cheat), sandbox.run(honest))
    assert [run.stdout for run in passing.runs] == [b"%d\n" % sum(range(number)) for number in range(20)]
    assert cheating.compile.status == "ok"
    assert await no_program_left(sandbox)
    return cheating.runs[0]


async def no_program_left(sandbox: Executor) -> bool:
    """The zygote has no child once nothing runs: neither runners, nor what they left."""
    return await until(lambda: not living_children(sandbox.zygote_pid))


NOTHING_PRINTED = {
    "sys.exit": "import sys\nsys.exit(0)",
    "os._exit": "import os\nos._exit(0)",
    "os._exit in atexit": "import atexit, os\natexit.register(os._exit, 0)",
    "an exception swallowed by a hook": "import sys\nsys.excepthook = lambda *_: None\nraise ValueError",
    "a thread that exits": "import threading, os\nthreading.Thread(target=os._exit, args=(0,)).start()\nimport time\ntime.sleep(9)",
}  # fmt: skip


@pytest.mark.parametrize("name", NOTHING_PRINTED)
async def test_ending_early_prints_nothing(sandbox: Executor, name: str) -> None:
    run = await beside_an_honest_one(sandbox, NOTHING_PRINTED[name])
    assert (run.end, run.stdout) == ("exited", b"")


REFUSED = {
    "other users' files": "open('/etc/passwd').read()",
    "the root folder": "import os\nos.listdir('/')",
    "other slots": "import os\nos.listdir('../..')",
    "the processes": "import os\nos.listdir('/proc')",
    "its own status": "open('/proc/self/status')",
    "its own memory map": "open('/proc/self/maps')",
    "the parent's memory": "import os\nopen(f'/proc/{os.getppid()}/mem', 'rb')",
    "the parent's command line": "import os\nopen(f'/proc/{os.getppid()}/cmdline').read()",
    "the parent's descriptors": "import os\nos.listdir(f'/proc/{os.getppid()}/fd')",
    "the first process's environment": "open('/proc/1/environ').read()",
    "the harness": "import os, sys\nopen(sys._getframe(1).f_code.co_filename)",
    "a write to the temporary folder": "open('/tmp/escaped', 'w')",
    "a write to shared memory": "open('/dev/shm/escaped', 'w')",
    "a write to its own text": "open(__file__, 'a')",
    "a write beside its folder": "open('../escaped', 'w')",
    "a folder beside its folder": "import os\nos.mkdir('../escaped')",
    "a rename out of its folder": "import os\nopen('x', 'w')\nos.rename('x', '/tmp/escaped')",
    "a link": "import os\nos.symlink('/etc/passwd', 'x')",
    "a hard link": "import os\nos.link('/usr/bin/python3', 'x')",
    "a pipe in the file system": "import os\nos.mkfifo('x')",
    "rights of files": "import os\nos.chmod('..', 0o777)",
    "a socket": "import socket\nsocket.socket()",
    "a datagram socket": "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "a raw socket": "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "a local socket": "import socket\nsocket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "a netlink socket": "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "a name": "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:1', timeout=1)",
    "fork": "import os\nos.fork()",
    "another program": "import subprocess\nsubprocess.run(['/bin/sh', '-c', 'id'])",
    "python -O again": "import os, sys\nos.execv(sys.executable or '/usr/bin/python3', ['python3', '-O', '-c', 'print(1)'])",
    "a process pool": "import multiprocessing\nmultiprocessing.Pool(2)",
    "the parent": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
    "everybody": "import os, signal\nos.kill(-1, signal.SIGKILL)",
    "its group": "import os, signal\nos.killpg(0, signal.SIGKILL)",
    "a stop of itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "a signal by way of a descriptor": "import fcntl, os\nr, w = os.pipe()\nfcntl.fcntl(r, fcntl.F_SETOWN, os.getppid())",
    "more CPU": "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (-1, -1))",
    "more memory": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "the parent's limits": "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
    "its priority": "import os\nos.nice(-5)",
    "a session": "import os\nos.setsid()",
    "a memory file": "import os\nos.memfd_create('x')",
    "shared memory": "from multiprocessing import shared_memory\nshared_memory.SharedMemory(create=True, size=10)",
    "another root": "import os\nos.chroot('.')",
    "another user": "import os\nos.setuid(0)",
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
async def test_it_is_refused_as_an_ordinary_error(sandbox: Executor, name: str) -> None:
    code = (
        f"try:\n  {REFUSED[name].replace(chr(10), chr(10) + '  ')}\nexcept (OSError, ValueError):\n  print('refused')"
    )
    run = await beside_an_honest_one(sandbox, code)
    assert run.stdout == b"refused\n", (run.end, run.exit_code, run.stderr.decode()[-500:])


RAW_CALLS = {
    "ptrace": (101, 117, "16, os.getppid(), 0, 0"),
    "process_vm_readv": (310, 270, "os.getppid(), buffer, 1, buffer, 1, 0"),
    "process_vm_writev": (311, 271, "os.getppid(), buffer, 1, buffer, 1, 0"),
    "tkill": (200, 130, "os.getppid(), 9"),
    "rt_sigqueueinfo": (129, 138, "os.getppid(), 9, buffer"),
    "pidfd_open": (434, 434, "os.getppid(), 0"),
    "pidfd_send_signal": (424, 424, "0, 9, 0, 0"),
    "unshare": (272, 97, "0x10000000"),
    "setns": (308, 268, "0, 0"),
    "mount": (165, 40, "0, b'.', b'tmpfs', 0, 0"),
    "open_by_handle_at": (304, 265, "0, buffer, 0"),
    "io_uring_setup": (425, 425, "8, buffer"),
    "userfaultfd": (323, 282, "0"),
    "bpf": (321, 280, "0, buffer, 64"),
    "perf_event_open": (298, 241, "buffer, 0, -1, -1, 0"),
    "keyctl": (250, 219, "0, 0, 0, 0, 0"),
    "add_key": (248, 217, "b'user', b'x', b'y', 1, -1"),
    "memfd_create": (319, 279, "b'x', 0"),
    "memfd_secret": (447, 447, "0"),
    "shmget": (29, 194, "0x1234, 4096, 0o1666"),
    "msgget": (68, 186, "0x1234, 0o1666"),
    "semget": (64, 190, "0x1234, 1, 0o1666"),
    "mq_open": (240, 180, "b'x', 0o102, 0o666, 0"),
    "prctl PDEATHSIG": (157, 167, "1, 0, 0, 0, 0"),
    "prctl DUMPABLE": (157, 167, "4, 1, 0, 0, 0"),
    "personality": (135, 92, "0x0040000"),
    "seccomp": (317, 277, "1, 0, buffer"),
    "clone into a process": (56, 220, "17, 0, 0, 0, 0"),
    "clone3": (435, 435, "buffer, 88"),
    "vfork as a clone": (56, 220, "0x4111, 0, 0, 0, 0"),
    "execveat": (322, 281, "0, b'', 0, 0, 0x1000"),
    "kexec_load": (246, 104, "0, 0, 0, 0"),
    "reboot": (169, 142, "0xfee1dead, 672274793, 0x1234567, 0"),
    "name_to_handle_at": (303, 264, "-100, b'/', buffer, buffer, 0"),
    "kcmp": (312, 272, "os.getpid(), os.getppid(), 0, 0, 0"),
    "process_madvise": (440, 440, "0, buffer, 1, 4, 0"),
    "landlock_restrict_self": (446, 446, "0, 0"),
}


@pytest.mark.parametrize("name", RAW_CALLS)
async def test_raw_system_calls_are_refused(sandbox: Executor, name: str) -> None:
    x86, arm, arguments = RAW_CALLS[name]
    number = x86 if os.uname().machine == "x86_64" else arm
    code = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(256)
result = libc.syscall({number}, {arguments})
print(result, ctypes.get_errno() in (1, 38))
"""
    run = await beside_an_honest_one(sandbox, code)
    assert run.stdout == b"-1 True\n", run.stderr


async def test_a_call_by_the_old_gate_kills_the_caller_only(sandbox: Executor) -> None:
    """int 0x80 asks for 32-bit call numbers, which the filter does not know."""
    if os.uname().machine != "x86_64":
        pytest.skip("x86 only")
    code = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
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


async def test_the_interpreters_memory_holds_nothing_of_others(sandbox: Executor) -> None:
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


FLOODS = {
    "1 GB of output": ("import sys\nblock = 'x' * (1 << 20)\nfor _ in range(1024): sys.stdout.write(block)", "output_limit"),
    "1 GB of errors": ("import os\nblock = b'x' * (1 << 20)\nfor _ in range(1024): os.write(2, block)", "output_limit"),
    "10 GB of memory": ("x = bytearray(10 << 30)", "memory_limit"),
    "10 GB in pieces": ("x = []\nwhile True: x.append(bytearray(1 << 20))", "memory_limit"),
    "10 GB mapped": ("import mmap\nx = []\nwhile True: x.append(mmap.mmap(-1, 1 << 24))", "exited"),
    "memory by pipes": ("import os\nx = []\nwhile True:\n  x.append(os.pipe())\n  os.write(x[-1][1], bytes(65536))", "exited"),
    "an endless loop": ("while True: pass", "timeout"),
    "an endless sleep": ("import time\nwhile True: time.sleep(1000)", "timeout"),
    "a loop that ignores every signal": (
        "import signal\nfor n in range(1, 65):\n  try: signal.signal(n, signal.SIG_IGN)\n  except (OSError, ValueError): pass\n"
        "while True: pass", "timeout"),
    "a loop that blocks every signal": (
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass", "timeout"),
    "SIGXCPU handled": ("import signal\nsignal.signal(signal.SIGXCPU, lambda *_: None)\n"
                        "signal.signal(signal.SIGPROF, lambda *_: None)\nwhile True: pass", "timeout"),
    "a loop in C that holds the interpreter": ("x = 9 ** 9 ** 9", "timeout"),
    "a regular expression": ("import re\nre.match('(a*)*b', 'a' * 40)", "timeout"),
    "a fork bomb": ("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", "timeout"),
    "a bomb of spinning threads": (
        "import threading\ndef spin():\n  while True: pass\nwhile True:\n  try: threading.Thread(target=spin).start()\n"
        "  except RuntimeError: pass", "timeout"),
    "a loop at the end": ("import atexit\ndef spin():\n  while True: pass\natexit.register(spin)", "timeout"),
    "a thread that never ends": ("import threading\ndef spin():\n  while True: pass\nthreading.Thread(target=spin).start()",
                                 "timeout"),
    "a destructor that never ends": ("class A:\n  def __del__(self):\n    while True: pass\na = A()", "timeout"),
}  # fmt: skip


@pytest.mark.parametrize("name", FLOODS)
async def test_a_limit_holds(sandbox: Executor, name: str) -> None:
    code, end = FLOODS[name]
    run = await beside_an_honest_one(sandbox, code, seconds=0.2 if end == "timeout" else 5.0, output=256)
    assert run.end in (end, "exited" if "bomb of" in name else end), (run.exit_code, run.stderr[-300:])
    assert run.end != "exited" or run.exit_code != 0
    assert len(run.stdout) + len(run.stderr) <= 2 * 256 * 1024 + 200


BOUNDED = {
    "small threads": ("import threading, time\nthreading.stack_size(32768)\n"
                      "while True: threading.Thread(target=time.sleep, args=(100,)).start()", b"threads"),
    "many files": ("i = 0\nwhile True:\n  open(str(i), 'w').close()\n  i += 1", b"files"),
    "large files": ("i = 0\nwhile True:\n  open(str(i), 'w').write('x' * 10_000_000)\n  i += 1", b"MiB"),
    "deep folders": ("import os\nwhile True:\n  os.mkdir('d')\n  os.chdir('d')", b"deep"),
    "hidden folders": ("import os\nos.mkdir('h', 0o300)\ni = 0\nwhile True:\n  open(f'h/{i}', 'w').close()\n  i += 1",
                       b"files"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDED)
async def test_what_no_limit_of_the_kernel_holds_is_stopped_with_a_reason(sandbox: Executor, name: str) -> None:
    code, reason = BOUNDED[name]
    run = await beside_an_honest_one(sandbox, code, memory=1024)
    assert (run.end, run.exit_code) == ("exited", -signal.SIGKILL), run.stderr[-300:]
    assert b"stopped by the sandbox: " in run.stderr
    assert reason in run.stderr.rpartition(b"stopped by the sandbox: ")[2]


async def test_one_endless_file_is_an_ordinary_error(sandbox: Executor) -> None:
    run = await beside_an_honest_one(sandbox, "f = open('f', 'wb')\nwhile True: f.write(bytes(1 << 20))")
    assert (run.end, run.exit_code) == ("exited", 1)
    assert b"File too large" in run.stderr


async def test_a_crash_leaves_no_core(sandbox: Executor) -> None:
    code = "import ctypes\nctypes.string_at(0)"
    run = await beside_an_honest_one(sandbox, code)
    assert run.exit_code == -signal.SIGSEGV
    left = await sandbox.run(request("import os\nprint(os.listdir())", b"", b""))
    assert {run.stdout for run in left.runs} == {b"[]\n"}


async def test_nobody_sees_the_neighbours_files(sandbox: Executor) -> None:
    """Both slots have a folder under one place; each program knows where its own lies."""
    writer = request("import os, time\nopen('secret', 'w').write('x')\ntime.sleep(0.3)\nprint(os.getcwd())")
    reader = request(
        "import os, time\ntime.sleep(0.1)\nhere = os.getcwd()\n"
        "for n in range(8):\n  path = here.rpartition('slot-')[0] + f'slot-{n}/work/secret'\n"
        "  try: print(open(path).read(), 'read')\n  except OSError: pass"
    )
    _, read = await asyncio.gather(sandbox.run(writer), sandbox.run(reader))
    assert read.runs[0].stdout == b""


async def test_a_killed_front_takes_everything_with_it() -> None:
    """In a process of its own: an executor with a program that ignores all it can, killed by SIGKILL."""
    script = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from builders.sandbox import request
from evalrun_sandbox.executor import Executor, ExecutorPlan
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
    runners = await until(lambda: found if len(found := living_children(zygote)) == 2 else [])
    programs = await until(lambda: [child for runner in runners for child in living_children(runner)])
    process.kill()
    await process.wait()

    assert await until(lambda: all(state_of(pid) == "Z" for pid in [zygote, *runners, *programs]))
