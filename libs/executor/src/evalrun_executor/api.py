"""The batch API of `evalrun-sandbox`: the types on the wire, as MessagePack. Texts are unchanged bytes.

`POST /v1/run` (`/v2/run`, ...: in that wire version) takes a `RunRequest` and answers 200 with a `RunReply`, 404 with a
`Refused` where it names inputs that are not kept, 429 with a `Busy` where every slot is taken, 400 with a `Refused`,
426 with a where it does not speak the version, 504 with a where the caller's deadline (the header
`evalrun-timeout-ms`) has passed. `GET /v1/info` answers with `SandboxInfo` as JSON, `GET /v1/ping` with `"pong"`.
"""

import hashlib
from collections.abc import Iterable
from typing import Literal

import msgspec

from evalrun_registry.limits import BARE_OUTPUT_KIB, DEFAULT_LIMITS

Level = Literal["none", "limits", "seccomp", "full"]
"""Containment reached, least first."""

LEVELS: tuple[Level, ...] = ("none", "limits", "seccomp", "full")

CONTENT_TYPE = "application/msgpack"

WIRE_VERSION = 1
"""Newest version of what crosses between gateway and sandbox: the structs here, `call_harness`'s batches and answers,
and `values`' encoding. (`contained.frames` cross within one image, and a stock server's harness travels with each
program: neither has a version.)

Gateway and sandbox are images of their own. Raise it with each change that the other side, built before, would misread:
a value that is read as another is a wrong verdict, and nothing else would tell. Each side also reads and writes the
version before (`list_spoken_versions`), so that either can be upgraded first; a request names its version in its path.
"""

VERSION_REFUSED = 426
"""HTTP status of the answer to a request in a version that the sandbox does not speak; the body is a `Refused`."""


def list_spoken_versions(newest: int) -> list[int]:
    """Return the versions that a release with this newest version supports, oldest first."""
    return [version for version in (newest - 1, newest) if version >= 1]


UNKNOWN_LANGUAGE = "unknown_language"
"""The `cause` in an `evalrun-sandbox`'s answer of `/run_code`: it has no toolchain for the language, and never will."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of a run."""

    time_seconds: float = DEFAULT_LIMITS.time_seconds
    """CPU seconds. The wall limit is twice that plus 5 s."""
    memory_mib: int = DEFAULT_LIMITS.memory_mib
    output_kib: int = BARE_OUTPUT_KIB
    """Of stdout and of stderr, each."""


class RunRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A program that is compiled once and run on each input.

    What is not said is left out of the message, so that a sandbox that knows fewer fields still takes it.
    """

    language: str
    """A name of `evalrun_registry.languages.LANGUAGES`."""
    code: str
    inputs: list[bytes]
    """One run an input, which it reads on stdin; at least one. Empty on the wire where `inputs_digest` names them."""
    limits: Limits = Limits()
    mode: str = "stdio"
    """`stdio`: the code is the program. `calls`: Python only; the code defines functions, the input is a batch of calls
    (see `call_harness`), and stdout is the batch's answer."""
    stop_after_timeouts: int = 0
    """Runs left after this many timeouts are not started. 0: all are."""
    inputs_digest: bytes = b""
    """The inputs' digest (`digest_inputs`) if they are worth keeping. The sandbox keeps inputs that come with a digest
    for a while; a request without inputs takes those that it keeps, or is answered with 404. Only for a sandbox that
    keeps some (`SandboxInfo.keep_mib`)."""


def digest_inputs(inputs: Iterable[bytes]) -> bytes:
    """Return the inputs' SHA-256: over each, after its length in 8 bytes, low first."""
    whole = hashlib.sha256()
    for data in inputs:
        whole.update(len(data).to_bytes(8, "little"))
        whole.update(data)
    return whole.digest()


QUIET_SLOWNESS = 1.15
"""Up to this slowness a machine counts as undisturbed: samples of the same work differ by as much."""

End = Literal["exited", "timeout", "memory_limit", "output_limit", "not_run"]


class ProgramRun(msgspec.Struct, frozen=True):
    """Facts about a run. The verdict is decided elsewhere."""

    end: End
    """`exited`: by itself or by a signal, see `exit_code`. `output_limit`: stdout or stderr passed the cap."""
    exit_code: int | None = None
    """Negative: ended by that signal. None where nothing ran, or where the run was stopped at a limit."""
    stdout: bytes = b""
    """Up to the cap."""
    stderr: bytes = b""
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_memory_mib: int = 0
    confirmed: bool = True
    """False: it passed its limit, and no run alone told whether by its own doing: the machine was slow, or busy. One
    that ended by itself counts as it ended."""
    measured: bool = True
    """False: by a server that stops programs by the wall clock and does not say what CPU time they took."""
    slowness: float = 0.0
    """Slowdown of the machine, relative to its best, beside the run alone that decided; 0.0 without such a run."""


class CompileResult(msgspec.Struct, frozen=True):
    """Result of compiling; for Python, of the interpreter's syntax check."""

    status: Literal["ok", "error", "timeout"]
    seconds: float = 0.0
    stderr: bytes = b""


class RunReply(msgspec.Struct, frozen=True):
    """The answer to a `RunRequest`."""

    compile: CompileResult
    runs: list[ProgramRun]
    """One an input, in order; all `not_run` where it did not compile."""
    level: Level
    """The containment under which it ran."""


class Busy(msgspec.Struct, frozen=True):
    """Every slot is taken: go elsewhere, or come back."""

    free: int
    retry_after_ms: int


class Refused(msgspec.Struct, frozen=True):
    """The request itself cannot be served."""

    message: str


class SandboxInfo(msgspec.Struct, frozen=True):
    """Identity and capabilities of a sandbox."""

    version: str
    level: Level
    slots: int
    languages: list[str]
    python_version: str
    missing: list[str] = []
    """Obstacles between this machine and a higher level, one line each."""
    keep_mib: int = 0
    """Memory for inputs that requests then name by digest; 0: none are kept."""
    calls_version: int = 1
    """The oldest wire version that it speaks: gateways built before `wire_versions` use no sandbox of another one."""
    wire_versions: list[int] = []
    """Every wire version that it speaks; empty from a sandbox that speaks `calls_version` alone."""

    def common_version(self, newest: int) -> int | None:
        """Return the newest wire version that a gateway with this newest version shares, or None."""
        spoken = {*(self.wire_versions or [self.calls_version])}
        return max(spoken.intersection(list_spoken_versions(newest)), default=None)
