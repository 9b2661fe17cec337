"""The batch API of `evalrun-sandbox`: the types on the wire, as MessagePack. Texts are unchanged bytes.

`POST /v1/run` (`/v2/run`, ...: in that wire version) takes a `RunRequest`. The status of the reply is 200 with a
`RunReply`, 404 with a `Refused` if the request names inputs that are not cached, 429 with a `Busy` if every slot is
taken, 400 with a `Refused`, 426 with a `Refused` if the sandbox does not speak the version, and 504 with a `Refused` if
the caller's deadline (the header `evalrun-timeout-ms`) has passed. `GET /v1/info` returns `SandboxInfo` as JSON, `GET
/v1/ping` returns `"pong"`.
"""

import hashlib
from collections.abc import Iterable
from typing import Literal

import msgspec

from evalrun_registry.limits import BARE_OUTPUT_KIB, DEFAULT_LIMITS

Level = Literal["none", "limits", "seccomp", "full"]
"""Levels of containment, weakest first."""

LEVELS: tuple[Level, ...] = ("none", "limits", "seccomp", "full")

CONTENT_TYPE = "application/msgpack"

WIRE_VERSION = 1
"""Newest version of the messages between gateway and sandbox: the structs here, batches and replies of `call_harness`,
and the encoding of `values`. (`contained.frames` cross within one image, and a stock server's harness travels with each
program: neither has a version.) Gateway and sandbox are separate images. Raise the version with each change that an
older counterpart would misread: a misread value is a wrong verdict that nothing else would reveal. Each side also reads
and writes the version before (`list_spoken_versions`), so that either can be upgraded first; a request names its
version in its path."""

VERSION_REFUSED = 426
"""HTTP status of the reply to a request in a version that the sandbox does not speak; the body is a `Refused`."""


def list_spoken_versions(newest: int) -> list[int]:
    """Return the versions that a release with this newest version supports, oldest first."""
    return [version for version in (newest - 1, newest) if version >= 1]


UNKNOWN_LANGUAGE = "unknown_language"
"""The `cause` in the reply of an `evalrun-sandbox` to `/run_code`: it has no toolchain for the language, and never
will."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of a run."""

    time_seconds: float = DEFAULT_LIMITS.time_seconds
    """CPU seconds. The wall limit is twice as long plus 5 s."""
    memory_mib: int = DEFAULT_LIMITS.memory_mib
    output_kib: int = BARE_OUTPUT_KIB
    """Maximum KiB of stdout and of stderr, each."""


class RunRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A program that is compiled once and run on each input.

    Fields with their default are left out of the message, so that a sandbox that knows fewer fields still accepts it.
    """

    language: str
    """A name in `evalrun_registry.languages.LANGUAGES`."""
    code: str
    inputs: list[bytes]
    """Stdin of each run; at least one. Empty on the wire if `inputs_digest` names the inputs."""
    limits: Limits = Limits()
    mode: str = "stdio"
    """`stdio`: the code is the program. `calls`: Python only; the code defines functions, the input is a batch of calls
    (see `call_harness`), and stdout is the reply to the batch."""
    stop_after_timeouts: int = 0
    """Number of timeouts after which no further run is started. 0: all runs are started."""
    inputs_digest: bytes = b""
    """Digest of the inputs (`digest_inputs`) if they are worth caching. The sandbox caches inputs that come with a
    digest for a while. A request without inputs uses the cached inputs, or gets a 404. Only for a sandbox that has a
    cache (`SandboxInfo.keep_mib`)."""


def digest_inputs(inputs: Iterable[bytes]) -> bytes:
    """Return the SHA-256 of the inputs: over each input, after its length in 8 little-endian bytes."""
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
    """Negative: number of the signal that ended the program. None if nothing ran, or if a limit ended the run."""
    stdout: bytes = b""
    """Stdout up to the cap."""
    stderr: bytes = b""
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_memory_mib: int = 0
    confirmed: bool = True
    """False: the program passed its limit, and no run alone showed whether the program or a slow machine was the cause.
    A program that ended by itself counts as it ended."""
    measured: bool = True
    """False if a server stopped the program by the wall clock without reporting its CPU time."""
    slowness: float = 0.0
    """Slowdown of the machine, relative to its best, during the run alone that decided; 0.0 without such a run."""


class CompileResult(msgspec.Struct, frozen=True):
    """Result of compiling; for Python, of the interpreter's syntax check."""

    status: Literal["ok", "error", "timeout"]
    seconds: float = 0.0
    stderr: bytes = b""


class RunReply(msgspec.Struct, frozen=True):
    """The reply to a `RunRequest`."""

    compile: CompileResult
    runs: list[ProgramRun]
    """One run per input, in order; all `not_run` if the program did not compile."""
    level: Level
    """The containment level of the run."""


class Busy(msgspec.Struct, frozen=True):
    """Every slot is taken: ask another sandbox, or come back."""

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
    """Obstacles between this machine and a higher level, one per line."""
    keep_mib: int = 0
    """Memory of the cache of inputs that requests may name by digest; 0: there is no cache."""
    calls_version: int = 1
    """The oldest wire version that the sandbox speaks. Gateways built before `wire_versions` use only sandboxes of
    their own version."""
    wire_versions: list[int] = []
    """Every wire version that the sandbox speaks; empty from a sandbox that speaks `calls_version` only."""

    def common_version(self, newest: int) -> int | None:
        """Return the newest wire version that a gateway with this newest version shares, or None."""
        spoken = {*(self.wire_versions or [self.calls_version])}
        return max(spoken.intersection(list_spoken_versions(newest)), default=None)
