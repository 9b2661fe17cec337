"""Determines this machine's containment level by a probe: a real child that tries what programs must not do."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from evalrun_executor.api import LEVELS, Level

PROBE_MEMORY_MIB = 256
PROBE = f"""
import os, sys

def attempt(name, action):
    try:
        action()
    except (OSError, MemoryError, ValueError) as error:
        print(name, "refused", flush=True)
    else:
        print(name, "allowed", flush=True)

def fork():
    if os.fork() == 0:
        os._exit(0)
    os.wait()

def make_socket():
    import socket
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()

def write_private():
    with open("probe", "w") as file:
        file.write("x")

print("root", "allowed" if os.getuid() == 0 or os.geteuid() == 0 else "refused")
attempt("private", write_private)
attempt("read", lambda: open("/etc/passwd").close())
attempt("read", lambda: open("/proc/self/status").close())
attempt("read", lambda: os.listdir("/"))
attempt("write", lambda: os.mkdir("../probe"))
attempt("write", lambda: os.mkdir(f"/tmp/evalrun-probe-{{os.getpid()}}"))
attempt("write", lambda: open("/dev/shm/evalrun-probe", "w").close())
attempt("socket", make_socket)
attempt("fork", fork)
attempt("signal", lambda: os.kill(os.getppid(), 0))
attempt("memory", lambda: bytearray({2 * PROBE_MEMORY_MIB} << 20))
attempt("execute", lambda: os.execv("/bin/echo", ["echo", "execute", "allowed"]))
"""
"""The probe, which runs as an ordinary program."""

_MEANING = {
    "memory": "limits: RLIMIT_AS does not hold",
    "socket": "seccomp: a program can open sockets",
    "fork": "seccomp: a program can start processes",
    "signal": "seccomp: a program can signal others",
    "execute": "seccomp: a program can execute others",
    "read": "landlock: a program can read files that are not its own (needs Linux 5.13 with Landlock enabled)",
    "write": "landlock: a program can write outside its private directory (needs Linux 5.13 with Landlock enabled)",
    "root": "non-root: programs run as root",
}
_NEEDED: tuple[tuple[Level, tuple[str, ...]], ...] = (
    ("limits", ("memory",)),
    ("seccomp", ("socket", "fork", "signal", "execute")),
    ("full", ("read", "write", "root")),
)


@dataclass(frozen=True)
class ContainmentReport:
    """The containment level that the machine reaches."""

    level: Level
    missing: tuple[str, ...]
    """Obstacles between this machine and `full`, one per line."""
    landlock_abi: int = 0
    python_version: str = ""
    attempts: Mapping[str, bool] = field(default_factory=dict)
    """Whether each attempt was refused, by the attempt's name."""


def read_probe(stdout: str) -> dict[str, bool]:
    """Return, by attempt, whether every try was refused. An attempt that printed nothing counts as allowed."""
    refused = dict.fromkeys(_MEANING, False)
    seen: set[str] = set()
    for line in stdout.splitlines():
        name, _, answer = line.partition(" ")
        if name in _MEANING:
            refused[name] = answer == "refused" and (name not in seen or refused[name])
            seen.add(name)
    return refused


def rate_containment(
    attempts: Mapping[str, bool], landlock_abi: int = 0, python_version: str = ""
) -> ContainmentReport:
    """Return the highest level whose attempts, and those of all lower levels, were refused."""
    level: Level = "none"
    complete = True
    for name, needed in _NEEDED:
        complete = complete and all(attempts.get(attempt, False) for attempt in needed)
        if complete:
            level = name
    missing = tuple(text for name, text in _MEANING.items() if not attempts.get(name, False))
    return ContainmentReport(level, missing, landlock_abi, python_version, dict(attempts))


def is_sufficient(level: Level, required: Level) -> bool:
    """Return whether `level` is at least `required`."""
    return LEVELS.index(level) >= LEVELS.index(required)
