"""Options of judging on this machine. Imported with every command, so it imports little."""

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from evalrun_runtime.exits import BadInputError
from evalrun_runtime.host_system import explain_unfit_system


@dataclass(frozen=True)
class Printing:
    """Options for a run's output."""

    quiet: bool = False
    """No progress."""
    as_json: bool = False
    """Results as JSON."""
    view: bool = False
    """The page of samples is served meanwhile."""


PRINT_ALL: Final = Printing()


@dataclass(frozen=True)
class LocalOptions:
    """Options of judging on this machine."""

    slots: int | None = None
    allow_uncontained: bool = False
    sandbox_fusion: str | None = None
    """Address of a SandboxFusion server to judge with; None: a sandbox is started here."""
    packages: Sequence[Path] = ()
    """Directories of Python packages that programs and tests may import."""

    @property
    def flags(self) -> dict[str, object]:
        """The given flags and their values, by name."""
        return {
            "--slots": self.slots,
            "--allow-uncontained": self.allow_uncontained or None,
            "--sandbox-fusion": self.sandbox_fusion,
            "--packages": self.packages,
        }

    @property
    def containment_flags(self) -> list[str]:
        """The flags of sandbox and judge for programs that cannot be contained."""
        return ["--allow-uncontained"] if self.allow_uncontained else []

    @property
    def sandbox_flags(self) -> list[str]:
        """The flags of a sandbox that is started here."""
        slots = [] if self.slots is None else ["--slots", str(self.slots)]
        return [*slots, *self.package_flags, *self.containment_flags]

    @property
    def package_flags(self) -> list[str]:
        """The flags of sandbox and judge for the packages."""
        return [part for directory in self.packages for part in ("--package-dirs", str(directory.resolve()))]

    def check(self, spec: Mapping[str, Any]) -> None:
        """Raise BadInputError for options that exclude each other, or if this system can judge nothing.

        Args:
            spec: spec of an EvalRun, as JSON.
        """
        check_system()
        for directory in self.packages:
            if not directory.is_dir():
                raise BadInputError(f"--packages {directory}: no such directory: name what pip install --target made")
            if (closed := find_closed_directory(directory.resolve())) is not None and os.geteuid() == 0:
                raise BadInputError(
                    f"--packages {directory}: programs run as another user, who may not read {closed}: chmod o+rx it"
                )
        if self.sandbox_fusion is None:
            check_tls(os.environ)
            for index, dataset in enumerate(spec["datasets"]):
                if dataset.get("judgeMode") == "Submit":
                    raise BadInputError(
                        f"spec.datasets[{index}].judgeMode: Submit needs a SandboxFusion server, which has the tests: "
                        "add --sandbox-fusion URL, or write judgeMode: RunCode"
                    )
            return
        if self.packages:
            raise BadInputError("--packages: only for a sandbox that is started here: remove it, or --sandbox-fusion")
        if self.slots is not None:
            raise BadInputError("--slots: only for a sandbox that is started here: remove it, or --sandbox-fusion")
        try:
            address = urlsplit(self.sandbox_fusion)
            usable = address.scheme in ("http", "https") and address.hostname and address.port != 0
        # The text has an unclosed bracket, or a port that is no number.
        except ValueError:
            usable = False
        if not usable:
            raise BadInputError(f"--sandbox-fusion {self.sandbox_fusion}: write http://HOST:PORT")
        if address.username is not None or address.password is not None:
            raise BadInputError("--sandbox-fusion: give its token by EVALRUN_JUDGE_SANDBOX_TOKEN, not in the address")


def check_system() -> None:
    """Raise BadInputError on a system where no program can be judged."""
    host = os.uname()
    if reason := explain_unfit_system(host.sysname, host.release):
        raise BadInputError(reason)


def check_tls(environment: Mapping[str, str]) -> None:
    """Raise BadInputError if only one of judge and sandbox is configured for TLS."""
    ours, theirs = "EVALRUN_SANDBOX_TLS_FOLDER", "EVALRUN_JUDGE_SANDBOX_TLS_FOLDER"
    for name, other in ((ours, theirs), (theirs, ours)):
        if environment.get(name) and not environment.get(other):
            raise BadInputError(
                f"{name}: the sandbox that is started here would not be reached: unset it, or set {other} too"
            )


def find_closed_directory(directory: Path) -> Path | None:
    """Return the first directory on the path that other users may not enter, or None if they may enter all."""
    for place in [*reversed(directory.parents), directory]:
        needed = stat.S_IXOTH | (stat.S_IROTH if place == directory else 0)
        if place.stat().st_mode & needed != needed:
            return place
    return None
