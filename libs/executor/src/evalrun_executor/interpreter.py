"""The interpreter that runs candidates, and the user that it runs as.

If the service is root, the zygote gets its own user and group, which own nothing. The interpreter must work for that
user: an interpreter under /root (mode 0700) does not.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TypedDict

from evalrun_executor.errors import Unusable

FIRST_USER, USERS = 60100, 4000
"""Each sandbox that root starts takes a user from this range by its process id, so that two sandboxes on a machine
share neither signals nor RLIMIT_NPROC."""
OLDEST_PYTHON = (3, 9)
_PROBE = f"""
import ctypes, sys, sysconfig
from _frozen_importlib_external import MAGIC_NUMBER
ok = sys.version_info >= {OLDEST_PYTHON} and sys.implementation.name == "cpython"
print("ok" if ok else "old", ".".join(map(str, sys.version_info[:3])), MAGIC_NUMBER.hex(), sep="\\n")
try:
    import site
    print(*site.getsitepackages(), sep="\\n")
except Exception:
    pass
"""
_PROBE_SECONDS = 20.0


@dataclass(frozen=True)
class Identity:
    """The user and group that candidates run as; None without root, when candidates run as our own user."""

    user: int | None
    group: int | None


@dataclass(frozen=True)
class Interpreter:
    """A Python that works for the candidates' user."""

    path: str
    version: str
    magic_number: str
    """Magic number of its byte code, in hex."""
    package_dirs: tuple[str, ...]
    """Directories of its own site-packages."""


def choose_identity() -> Identity:
    """Return the user that candidates run as: a different user if we are root."""
    if os.geteuid() != 0:
        return Identity(None, None)
    user = FIRST_USER + os.getpid() % USERS
    return Identity(user, user)


def list_candidates(configured: str | None) -> list[str]:
    """Return the interpreters to try, best first, or only the configured interpreter."""
    if configured is not None:
        return [configured]
    base = getattr(sys, "_base_executable", sys.executable)
    found = [base, "/usr/local/bin/python3", "/usr/bin/python3", shutil.which("python3")]
    return list(dict.fromkeys(path for path in found if path))


async def find_interpreter(configured: str | None, identity: Identity) -> Interpreter:
    """Return the first interpreter that works. Raises Unusable, with the reason for each interpreter that does not."""
    reasons = []
    for path in list_candidates(configured):
        found = await _probe(path, identity)
        if isinstance(found, Interpreter):
            return found
        reasons.append(f"{path}: {found}")
    raise Unusable(
        "no Python for candidates works for an unprivileged user (name one with --python): " + "; ".join(reasons)
    )


async def _probe(path: str, identity: Identity) -> Interpreter | str:
    def ask() -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [path, "-s", "-c", _PROBE], cwd="/", env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}, check=False,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_SECONDS, **as_user(identity),
        )  # fmt: skip

    try:
        # The call runs in a thread, because uvloop's own subprocesses take no user.
        process = await asyncio.to_thread(ask)
    except OSError as error:
        return error.strerror or str(error)
    except subprocess.TimeoutExpired:
        return f"did not answer within {_PROBE_SECONDS:.0f} s"
    out, err = process.stdout, process.stderr
    lines = out.decode(errors="replace").splitlines()
    if process.returncode != 0 or not lines:
        return (err.decode(errors="replace").strip().splitlines() or ["failed"])[-1]
    if lines[0] != "ok":
        return f"Python {lines[1]}, but CPython {'.'.join(map(str, OLDEST_PYTHON))} or newer is needed"
    return Interpreter(path, lines[1], lines[2], tuple(lines[3:]))


class AsUser(TypedDict, total=False):
    """Keyword arguments of a subprocess."""

    user: int
    group: int
    extra_groups: list[str | int]


def as_user(identity: Identity) -> AsUser:
    """Return the subprocess arguments that start a child as `identity`, without groups."""
    if identity.user is None or identity.group is None:
        return {}
    return {"user": identity.user, "group": identity.group, "extra_groups": []}
