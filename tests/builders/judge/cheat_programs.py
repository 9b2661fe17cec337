"""Programs that want anything but to solve the problem, and what becomes of each in a contained sandbox.

Nothing here needs the sandbox: the tables serve the executor's own tests and those on a cluster.
"""

# ruff: noqa: E501, ISC004 - tables of programs read best with a program a line

NOTHING_PRINTED = {
    "sys.exit": "import sys\nsys.exit(0)",
    "os._exit": "import os\nos._exit(0)",
    "os._exit in atexit": "import atexit, os\natexit.register(os._exit, 0)",
    "an exception swallowed by a hook": "import sys\nsys.excepthook = lambda *_: None\nraise ValueError",
    "a thread that exits": "import threading, os\nthreading.Thread(target=os._exit, args=(0,)).start()\nimport "
        "time\ntime.sleep(9)",
}  # fmt: skip
"""They end before they print."""

REFUSED = {
    "other users' files": "open('/etc/passwd').read()",
    "the root directory": "import os\nos.listdir('/')",
    "other slots": "import os\nos.listdir('../..')",
    "the processes": "import os\nos.listdir('/proc')",
    "its own status": "open('/proc/self/status')",
    "its own memory map": "open('/proc/self/maps')",
    "the parent's memory": "import os\nopen(f'/proc/{os.getppid()}/mem', 'rb')",
    "the parent's command line": "import os\nopen(f'/proc/{os.getppid()}/cmdline').read()",
    "the parent's descriptors": "import os\nos.listdir(f'/proc/{os.getppid()}/fd')",
    "the first process's environment": "open('/proc/1/environ').read()",
    "the harness": "import os, sys\nopen(sys._getframe(1).f_code.co_filename)",
    "a write to the temporary directory": "open('/tmp/escaped', 'w')",
    "a write to shared memory": "open('/dev/shm/escaped', 'w')",
    "a write to its own text": "open(__file__, 'a')",
    "a write beside its directory": "open('../escaped', 'w')",
    "a directory beside its directory": "import os\nos.mkdir('../escaped')",
    "a rename out of its directory": "import os\nopen('x', 'w')\nos.rename('x', '/tmp/escaped')",
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
    "python -O again": "import os, sys\nos.execv(sys.executable or '/usr/bin/python3', ['python3', '-O', '-c', "
        "'print(1)'])",
    "a process pool": "import multiprocessing\nmultiprocessing.Pool(2)",
    "the parent": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
    "everybody": "import os, signal\nos.kill(-1, signal.SIGKILL)",
    "its group": "import os, signal\nos.killpg(0, signal.SIGKILL)",
    "a stop of itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "a signal by way of a descriptor": "import fcntl, os\nr, w = os.pipe()\nfcntl.fcntl(r, fcntl.F_SETOWN, "
        "os.getppid())",
    "more CPU": "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (-1, -1))",
    "more memory": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "the parent's limits": "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
    "its priority": "import os\nos.nice(-5)",
    "a session": "import os\nos.setsid()",
    "a memory file": "import os\nos.memfd_create('x')",
    "shared memory without a file": "import mmap\nmmap.mmap(-1, 4096)",
    "shared memory": "from multiprocessing import shared_memory\nshared_memory.SharedMemory(create=True, size=10)",
    "another root": "import os\nos.chroot('.')",
    "another user": "import os\nos.setuid(0)",
}  # fmt: skip
"""What must fail as an ordinary error: OSError or ValueError."""

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
    "landlock_create_ruleset": (444, 444, "0, 0, 1"),
    "close_range that gives a thread files of its own": (436, 436, "1000, 2000, 2"),
    "clone with files of its own": (56, 220, "0x10b00, 0, 0, 0, 0"),
    "clone with a working directory of its own": (56, 220, "0x10d00, 0, 0, 0, 0"),
    "fallocate": (285, 47, "1, 0, 0, 4096"),
    "sched_setaffinity": (203, 122, "0, 8, b'\\1' + bytes(7)"),
    "sched_setscheduler": (144, 119, "0, 0, buffer"),
    "setpriority": (141, 140, "0, 0, 19"),
    "ioprio_set": (251, 30, "1, 0, 0"),
    "pidfd_getfd": (438, 438, "0, 0, 0"),
    "process_mrelease": (448, 448, "0, 0"),
    "rt_tgsigqueueinfo": (297, 240, "os.getpid(), os.getpid(), 9, buffer"),
    "vmsplice": (278, 75, "1, buffer, 1, 0"),
    "splice": (275, 76, "0, 0, 1, 0, 1, 0"),
    "tee": (276, 77, "0, 1, 1, 0"),
    "io_uring_enter": (426, 426, "0, 0, 0, 0, 0"),
    "fanotify_init": (300, 262, "0, 0"),
    "inotify_init1": (294, 26, "0"),
    "acct": (163, 89, "0"),
    "syslog": (103, 116, "3, buffer, 256"),
    "clock_settime": (227, 112, "0, buffer"),
    "adjtimex": (159, 171, "buffer"),
    "sethostname": (170, 161, "b'x', 1"),
    "move_pages": (279, 239, "os.getppid(), 0, 0, 0, 0, 0"),
    "migrate_pages": (256, 238, "os.getppid(), 8, buffer, buffer"),
    "mlockall": (151, 230, "3"),
    "socket of a virtual machine": (41, 198, "40, 1, 0"),
    "socket of the kernel's cryptography": (41, 198, "38, 5, 0"),
    "pair of datagram sockets": (53, 199, "1, 2, 0, buffer"),
    "connect": (42, 203, "0, buffer, 16"),
    "bind": (49, 200, "0, buffer, 16"),
    "sendmsg": (46, 211, "0, buffer, 0"),
    "sendmmsg": (307, 269, "0, buffer, 1, 0"),
    "sendto an address": (44, 206, "0, buffer, 1, 0, buffer, 16"),
    "fchmod": (91, 52, "1, 0o777"),
    "fchown": (93, 55, "1, 0, 0"),
    "fsetxattr": (190, 7, "1, b'user.x', b'x', 1, 0"),
    "utimensat": (280, 88, "1, 0, 0, 0"),
    "mknodat": (259, 33, "-100, b'x', 0o10666, 0"),
    "syncfs": (306, 267, "1"),
    "pivot_root": (155, 41, "b'.', b'.'"),
    "fcntl F_SETSIG": (72, 25, "1, 10, 9"),
    "fcntl F_SETPIPE_SZ": (72, 25, "1, 1031, 1 << 20"),
    "fcntl F_SETLEASE": (72, 25, "1, 1024, 1"),
    "ioctl FIOSETOWN": (16, 29, "1, 0x8901, buffer"),
    "ioctl FICLONE": (16, 29, "1, 0x40049409, 0"),
    "prlimit of files": (302, 261, "0, 7, buffer, 0"),
    "prlimit by a pointer whose low half is null": (302, 261, "0, 0, ctypes.c_void_p(0x700000000), None"),
    "prctl PR_SET_MM": (157, 167, "35, 1, 0, 0, 0"),
    "prctl PR_SET_NO_NEW_PRIVS": (157, 167, "38, 1, 0, 0, 0"),
}
"""System calls by number (x86-64, arm64) with their arguments in Python; each must fail with EPERM or ENOSYS."""

FLOODS = {
    "1 GB of output": ("import sys\nblock = 'x' * (1 << 20)\nfor _ in range(1024): sys.stdout.write(block)", "output_limit"),
    "errors without end": ("import os\nblock = b'x' * (1 << 20)\nwhile True: os.write(2, block)", "timeout"),
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
"""Programs that pass a limit, and how the sandbox must say that they ended."""

BOUNDED = {
    "small threads": ("import threading, time\nthreading.stack_size(32768)\n"
                      "while True: threading.Thread(target=time.sleep, args=(100,)).start()", b"threads"),
    "many files": ("i = 0\nwhile True:\n  open(str(i), 'w').close()\n  i += 1", b"files"),
    "large files": ("i = 0\nwhile True:\n  open(str(i), 'w').write('x' * 10_000_000)\n  i += 1", b"MiB"),
    "deep folders": ("import os\nwhile True:\n  os.mkdir('d')\n  os.chdir('d')", b"deep"),
    "files behind names that change": (
        "import os, threading\ndef churn():\n  while True: os.mkdir('d'); os.rename('d', 'e'); os.rmdir('e')\n"
        "threading.Thread(target=churn, daemon=True).start()\nfor i in range(50):\n  open(f'f{i}', 'w').write('x' * 10_000_000)",
        b"MiB"),
    "files without a name": (
        "import os\nfds = []\nblock = bytes(1 << 16)\nwhile True:\n"
        "  fds.append(os.open('f', os.O_RDWR | os.O_CREAT))\n  os.unlink('f')\n  for _ in range(160): os.write(fds[-1], block)",
        b"without a name"),
    "files that never had a name, behind a thread that left": (
        "import ctypes, os, threading\ndef fill():\n  fds = []\n  while True:\n"
        "    fds.append(os.open('.', os.O_RDWR | os.O_TMPFILE))\n    for _ in range(60): os.write(fds[-1], bytes(1 << 20))\n"
        "threading.Thread(target=fill).start()\nctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)",
        b"without a name"),
    "hidden folders": ("import os\nos.mkdir('h', 0o300)\ni = 0\nwhile True:\n  open(f'h/{i}', 'w').close()\n  i += 1",
                       b"files"),
}  # fmt: skip
"""Programs that pass what no limit of the kernel holds, and a word of the reason."""

OPEN_FILES = """
import os
def found():
    numbers = []
    for fd in range(3, 2048):
        try:
            os.fstat(fd)
            numbers.append(fd)
        except OSError:
            pass
    return numbers
"""
"""Defines `found`, which returns the numbers of open descriptors above 2."""

LOOKING = """
import os, time
seen = []
near = 0
for pid in [*range(max(1, os.getpid() - 20000), os.getpid()), *range(os.getpid() + 1, os.getpid() + 20000)]:
    try:
        os.stat(f"/proc/{pid}")
    except OSError:
        continue
    near += 1
    for what in ("exe", "cwd", "fd/0", "fd/1", "fd/3", "ns/pid", "mem", "maps", "environ", "cmdline", "status"):
        for look in (os.stat, os.readlink) if what[:2] in ("ex", "cw", "fd", "ns") else (open,):
            try:
                look(f"/proc/{pid}/{what}")
                seen.append((pid, what))
            except OSError:
                pass
print(near > 2, seen)
"""
"""Prints whether there are other processes, and what it can see of them."""


def tried(name: str) -> str:
    """Return a program that tries what `REFUSED` names, and prints `refused` where it was."""
    attempt = REFUSED[name].replace("\n", "\n  ")
    return f"try:\n  {attempt}\nexcept (OSError, ValueError):\n  print('refused')"


def called(name: str, machine: str) -> str:
    """Return a program that makes the call that `RAW_CALLS` names, and prints `-1 True` where it was refused.

    Args:
        name: of the call.
        machine: as `uname -m` says it.
    """
    x86, arm, arguments = RAW_CALLS[name]
    return f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(256)
result = libc.syscall({x86 if machine == "x86_64" else arm}, {arguments})
print(result, ctypes.get_errno() in (1, 38))
"""


def all_called(machine: str) -> str:
    """Return a program that makes all of `RAW_CALLS`, prints those that were not refused, then `done`."""
    lines = [
        f"check({name!r}, {x86 if machine == 'x86_64' else arm}, {arguments})"
        for name, (x86, arm, arguments) in RAW_CALLS.items()
    ]
    return f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(256)
def check(name, number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(number, *arguments)
    if (result, ctypes.get_errno() in (1, 38)) != (-1, True):
        print(name, result, ctypes.get_errno())
{chr(10).join(lines)}
print("done")
"""
