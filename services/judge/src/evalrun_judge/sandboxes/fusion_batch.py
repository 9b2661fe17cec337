"""Encodes a batch of tests as one `/run_code` call of a stock SandboxFusion server, and decodes its reply. Pure.

The call is a bash script that starts the server's own Python once, with a clean environment, on `stock_harness`. Task
and reply are files, because a stock server silently cuts a program's output past 219264 bytes, and stops the program at
the time limit past 500000. A `RunRequest` contains no expected outputs, so none is sent.
"""

import base64
import marshal
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec

from evalrun_executor.api import RunRequest
from evalrun_executor.contained import frames, seccomp
from evalrun_executor.contained.compiler import WALL_SECONDS
from evalrun_executor.contained.filters import ARCHITECTURES
from evalrun_executor.contained.limits import wall_limit
from evalrun_executor.toolchain import COMPILER_PATH, COMPILERS, Toolchain, make_execution
from evalrun_judge.sandboxes import fusion_bundle
from evalrun_judge.sandboxes.stock_harness import (
    BUNDLE,
    CALLS,
    CALLS_CODE,
    CODE,
    NONCE,
    RESULT,
    SETUP,
    TASK,
)
from evalrun_registry.languages import LANGUAGES, Driver

NONCE_BYTES = 32

BUDGET_SECONDS = 45.0
"""Wall seconds after which no further test of a call is begun. A client that leaves cannot stop a call on a stock
server, so no call may be long; the rest goes into another call."""

BUDGET_BYTES = 32 << 20
"""The same limit for the output of the tests, in bytes."""

SPARE_SECONDS = 60.0
"""Seconds beyond the tests' own limits after which the server ends a call, and everything else that runs there."""

# Maximum bytes of a compiler's output.
_OUTPUT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Machine:
    """Known facts about a server's machine."""

    python: str
    """Path of the interpreter for programs."""
    version: str
    architecture: str
    cpus: int
    package_dirs: tuple[str, ...]
    compilers: Mapping[str, str] = field(default_factory=dict)
    """Path of the compiler, by language."""
    bundle: bytes = b""
    call_modules: bytes = b""
    """Both bundles as the server's interpreter compiled them; see `fusion_bundle`."""

    @property
    def languages(self) -> list[str]:
        return ["python", *sorted(self.compilers)]


LOOK = f"""\
import json, os, shutil, sys
path = {COMPILER_PATH!r}
print(json.dumps({{
    "python": sys.executable, "version": ".".join(map(str, sys.version_info[:3])), "architecture": os.uname().machine,
    "cpus": len(os.sched_getaffinity(0)), "package_dirs": [p for p in sys.path if p.endswith("-packages")],
    "compilers": {{name: shutil.which(compiler, path=path) for name, compiler in {COMPILERS!r}.items()}},
    "usable": sys.implementation.name == "cpython" and sys.version_info >= (3, 9) and hasattr(os, "memfd_create"),
}}))
"""
"""A program that prints facts about the machine."""


class MachineFacts(msgspec.Struct):
    """Output of `LOOK`."""

    python: str
    version: str
    architecture: str
    cpus: int
    package_dirs: list[str]
    compilers: dict[str, str | None]
    usable: bool

    def machine(self) -> Machine:
        found = {name: path for name, path in self.compilers.items() if path is not None}
        return Machine(self.python, self.version, self.architecture, self.cpus, tuple(self.package_dirs), found)


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a call that belongs to a program."""

    request: RunRequest
    """The program, its limits and all its inputs."""
    indices: Sequence[int]
    """Indices of the inputs in this call."""
    nonce: bytes
    """Nonce of this part only; its reply begins with it."""

    @property
    def size(self) -> int:
        """Approximate bytes of the part."""
        return len(self.request.code) + sum(len(self.request.inputs[index]) for index in self.indices)


def body(
    parts: Sequence[Part],
    machine: Machine,
    *,
    budget_seconds: float = BUDGET_SECONDS,
    runners: int = 1,
    want_code: bool = False,
) -> dict[str, Any]:
    """Return the body of the call.

    Args:
        parts: the programs, all of the same kind: run as they are, called, or compiled first. Several programs require
            the server's level `full`.
        machine: the server's machine.
        budget_seconds: seconds after which no further test is begun.
        runners: number of each program's tests that run at once. Several require the level `full`.
        want_code: return the bundle as compiled by the server's interpreter.
    """
    first = parts[0].request
    compiled = machine.bundle != b""
    files = {
        fusion_bundle.LAUNCH: fusion_bundle.launch(compiled=compiled),
        BUNDLE: _base64(machine.bundle if compiled else fusion_bundle.bundle()),
        SETUP: _setup(
            machine.architecture,
            machine.package_dirs,
            kind(first),
            len(parts),
            budget_seconds,
            runners,
            want_code=want_code,
        ),
    }
    if want_code or kind(first) == frames.KIND_HARNESS:
        files[CALLS] = _base64(machine.call_modules if compiled else fusion_bundle.call_modules())
    for number, part in enumerate(parts):
        files[f"{TASK}{number}"] = _encode_base64(marshal.dumps(_task(part, machine), 2))
        files[f"{NONCE}{number}"] = _encode_base64(part.nonce)
    return {
        "language": "bash",
        "code": f"{_COMMAND} {shlex.quote(machine.python)} -s -S -B {fusion_bundle.LAUNCH}\n",
        "run_timeout": max(call_seconds(part.request) for part in parts),
        "files": files,
        "fetch_files": [
            *(f"{RESULT}{number}" for number in range(len(parts))),
            *([CODE, CALLS_CODE] if want_code else []),
        ],
    }


@cache
def _setup(
    architecture: str,
    package_dirs: tuple[str, ...],
    of_kind: int,
    programs: int,
    budget: float,
    runners: int,
    *,
    want_code: bool,
) -> str:
    """Return the description of machine and call for the harness, in base64: see `stock_harness.Setup`."""
    fields = {
        "filters": _filters(architecture, executable=of_kind in (frames.KIND_EXECUTABLE, frames.KIND_INTERPRETED)),
        "package_dirs": list(package_dirs),
        "calls": of_kind == frames.KIND_HARNESS,
        "programs": programs,
        "runners": runners,
        "budget_seconds": budget,
        "budget_bytes": BUDGET_BYTES,
        "want_code": want_code,
    }
    return _encode_base64(marshal.dumps(fields, 2))


def _task(part: Part, machine: Machine) -> dict[str, Any]:
    """Return the description of a program for the harness: see `stock_harness.Task`."""
    request = part.request
    limits = request.limits
    inputs = [request.inputs[index] for index in part.indices]
    code = request.code.encode("utf-8", "surrogatepass")
    compiled, toolchain = LANGUAGES[request.language].is_compiled, Toolchain(machine.compilers)
    of_kind = kind(request)
    # The compiler's output replaces the text.
    text = b"" if compiled and of_kind == frames.KIND_INTERPRETED else code
    job = frames.Job(
        request.mode, "", text, limits.time_seconds, limits.memory_mib, limits.output_kib * 1024,
        [len(data) for data in inputs], execution=make_execution(request.language, limits.memory_mib),
    )  # fmt: skip
    source = toolchain.source(request.language) if compiled else ""
    commands = toolchain.commands(request.language) if compiled else []
    return {
        "kind": of_kind,
        "interpreter": toolchain.interpreter(request.language) if of_kind == frames.KIND_INTERPRETED else "",
        "job": b"".join([job.encode(), *inputs]),
        "count": len(inputs),
        "commands": ["\n".join(command) for command in commands],
        "compile_job": frames.Job("", source, code, 0.0, 0, _OUTPUT_BYTES, []).encode() if compiled else b"",
        "time_seconds": limits.time_seconds,
        "stop_after": request.stop_after_timeouts,
    }


_COMMAND = (
    "exec env -i PATH=/usr/bin:/bin HOME=/nonexistent LANG=C.UTF-8 PYTHONHASHSEED=0 MALLOC_ARENA_MAX=2 LD_BIND_NOW=1 "
    "OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1"
)
"""Beginning of the command. The environment is that of our sandbox's programs, without anything of the server's own
environment, which holds secrets."""


def call_seconds(request: RunRequest) -> float:
    """Return the wall seconds after which the server ends the call, whatever has become of the harness."""
    compiling = 2 * WALL_SECONDS if LANGUAGES[request.language].is_compiled else 0
    return BUDGET_SECONDS + wall_limit(request.limits.time_seconds) + compiling + SPARE_SECONDS


def kind(request: RunRequest) -> int:
    """Return the kind of run, one of `frames`' kinds."""
    match LANGUAGES[request.language].driver:
        case Driver.EXECUTABLE:
            return frames.KIND_EXECUTABLE
        case Driver.INTERPRETER:
            return frames.KIND_INTERPRETED
        case Driver.PYTHON:
            pass
    return frames.KIND_PROGRAM if request.mode == "stdio" else frames.KIND_HARNESS


@cache
def _filters(
    architecture: str, *, executable: bool
) -> tuple[tuple[bytes, list[int], bytes], tuple[bytes, list[int]]] | None:
    """Return the parts of the filters for programs and compilers, or None for an unsupported architecture."""
    if architecture not in ARCHITECTURES:
        return None
    return seccomp.assemble_program(architecture, executable=executable), seccomp.assemble_compiler(architecture)


@cache
def _base64(text: bytes) -> str:
    return _encode_base64(text)


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
