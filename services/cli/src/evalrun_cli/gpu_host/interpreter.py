"""Finds the interpreter with Ray, verl and the engine, and its missing packages."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evalrun_cli.gpu_host.environment import GpuEnvironment
from evalrun_runtime.exits import BadInputError

SECONDS: Final = 60.0
MIN_PYTHON: Final = (3, 11)

EXACT: Final[Mapping[str, str]] = {"verl": "0.9.1"}
"""Packages of which only one version works: verl changes the interfaces that start replicas with each release."""
NEEDED: Final[Mapping[str, str]] = {
    "aiohttp": "3.13", "grpcio": "1.80", "omegaconf": "2.3", "prometheus-client": "0.22", "protobuf": "6.31",
    "psutil": "5", "pydantic": "2.11", "pydantic-settings": "2.10", "pyyaml": "6.0", "ray": "2.49", "tensordict": "0.8",
    "torch": "2.6", "transformers": "4.57", "uvloop": "0.21",
}  # fmt: skip
"""Lowest versions: ours as in the extra `generator`, the others' as verl requires them."""
SCRIPT: Final = """
import importlib.metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps({"python": list(sys.version_info[:3]), "packages": found}))
"""


@dataclass(frozen=True)
class Interpreter:
    """An interpreter and its installed versions."""

    path: Path
    python: tuple[int, ...]
    packages: Mapping[str, str]

    def lacks(self, engine: str) -> list[str]:
        """Return the packages that replicas need and the interpreter lacks, as requirements for pip. Pure."""
        wanted = {name: f"{name}=={version}" for name, version in EXACT.items()}
        missing = [text for name, text in wanted.items() if self.packages.get(name) != EXACT[name]]
        for name, lowest in NEEDED.items():
            found = self.packages.get(name)
            if found is None or _numbers(found) < _numbers(lowest):
                missing.append(f"{name}>={lowest}")
        return missing if engine in self.packages else [*missing, engine]


def find_interpreter(given: Path | None, *, cpu: bool, environments: tuple[GpuEnvironment, ...]) -> Path:
    """Return the interpreter with verl: `given`, that of `evalrun setup gpu`, or this interpreter.

    Args:
        given: interpreter that --gpu-python names; None: the flag is absent.
        cpu: whether the CPU build is wanted.
        environments: environments that `evalrun setup gpu` installs.

    Raises:
        BadInputError: there is no such interpreter.
    """
    if given is not None:
        path = given.expanduser()
        if not path.is_file() or not os.access(path, os.X_OK):
            raise BadInputError(
                f"--gpu-python {given}: no such program: name an interpreter, e.g. /opt/verl/bin/python"
            )
        return path.absolute()
    for environment in environments:
        if environment.cpu == cpu and environment.is_complete:
            return environment.python
    own = Path(sys.executable)
    if not inspect_interpreter(own).lacks("vllm"):
        return own
    command = f"evalrun setup gpu{' --cpu' * cpu}"
    raise BadInputError(
        f"no interpreter with verl and vLLM is known here: run `{command}`, or name one with --gpu-python"
    )


def inspect_interpreter(path: Path) -> Interpreter:
    """Return an interpreter's version and packages. Raises BadInputError if it does not run."""
    names = [*EXACT, *NEEDED, "vllm", "sglang", "huggingface-hub"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            [str(path), "-c", SCRIPT, *names], capture_output=True, text=True, timeout=SECONDS, check=True, env=kept
        )
        found = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise BadInputError(f"--gpu-python {path}: it does not run: {' '.join(str(error).split())[:200]}") from error
    return Interpreter(path, tuple(found["python"]), found["packages"])


def check_interpreter(path: Path, engine: str) -> Interpreter:
    """Return an interpreter that can run replicas.

    Raises:
        BadInputError: the interpreter does not run, is too old, or lacks packages; the message names a remedy.
    """
    found = inspect_interpreter(path)
    if found.python[:2] < MIN_PYTHON:
        version = ".".join(map(str, found.python))
        raise BadInputError(f"--gpu-python {path}: it is Python {version}: 3.11 or newer is needed (evalrun setup gpu)")
    if missing := found.lacks(engine):
        install = shlex.join([str(path), "-m", "pip", "install", *missing])
        raise BadInputError(
            f"--gpu-python {path}: it lacks {', '.join(missing)}: run `evalrun setup gpu` for an environment with all "
            f"of them, or `{install}`"
        )
    return found


def _numbers(version: str) -> tuple[int, ...]:
    """Return a version's leading numbers, which is enough to compare releases."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[a-z+]", version, maxsplit=1)[0]))
