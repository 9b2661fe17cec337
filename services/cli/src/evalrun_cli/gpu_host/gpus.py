"""Finds this machine's GPUs, and those of them that a run may use."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from evalrun_cli.gpu_host.options import ALL_GPUS
from evalrun_runtime.exits import BadInputError

QUERY: Final = "index,uuid,name,memory.total,memory.used,driver_version"
SECONDS: Final = 60.0
"""The first call after a boot loads the driver."""


@dataclass(frozen=True)
class Gpu:
    """A GPU of this machine."""

    index: str
    uuid: str
    name: str
    memory_mib: int
    used_mib: int
    driver: str


@dataclass(frozen=True)
class ChosenGpus:
    """GPUs that a run may use: real GPUs, or a number of simulated GPUs for the CPU build."""

    gpus: Sequence[Gpu] = ()
    pretended: int = 0

    @property
    def count(self) -> int:
        """Number of GPUs."""
        return len(self.gpus) or self.pretended

    @property
    def indices(self) -> list[str]:
        """Numbers of the GPUs in nvidia-smi."""
        return [gpu.index for gpu in self.gpus]


def find_gpus() -> list[Gpu]:
    """Return this machine's NVIDIA GPUs; none without a driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_gpus(done.stdout) if done.returncode == 0 else []


def parse_gpus(text: str) -> list[Gpu]:
    """Return the GPUs of nvidia-smi's lines. Pure."""
    found = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 6 and parts[3].isdecimal():
            used = int(parts[4]) if parts[4].isdecimal() else 0
            found.append(Gpu(parts[0], parts[1], parts[2], int(parts[3]), used, parts[5]))
    return found


def choose_gpus(asked: str | None, found: Sequence[Gpu], environment: Mapping[str, str] = os.environ) -> ChosenGpus:
    """Return the GPUs that `--gpus` names.

    Args:
        asked: the flag's value; None: all.
        found: GPUs of this machine.
        environment: variables with CUDA_VISIBLE_DEVICES, which `all` obeys.

    Raises:
        BadInputError: there are no such GPUs.
    """
    if asked is not None and (pretended := re.fullmatch(r"cpu(?::([1-9][0-9]?))?", asked)) is not None:
        return ChosenGpus(pretended=int(pretended[1] or 1))
    if not found:
        raise BadInputError(
            "no GPU: nvidia-smi shows none on this machine. Name a server of the model with --endpoint URL; or, for a "
            "tiny model and the CPU build (`evalrun setup gpu --cpu`), write --gpus cpu"
        )
    by_name = {gpu.index: gpu for gpu in found} | {gpu.uuid: gpu for gpu in found}
    if asked in (None, ALL_GPUS):
        visible = environment.get("CUDA_VISIBLE_DEVICES", "")
        names = [name.strip() for name in visible.split(",") if name.strip()] or [gpu.index for gpu in found]
        where = f"CUDA_VISIBLE_DEVICES={visible}"
    else:
        names, where = [name.strip() for name in str(asked).split(",")], f"--gpus {asked}"
    if unknown := [name for name in names if name not in by_name]:
        here = ", ".join(gpu.index for gpu in found)
        raise BadInputError(
            f"{where}: no GPU {unknown[0]!r} here: this machine has {here}; write e.g. --gpus 0,1 or all"
        )
    return ChosenGpus(tuple(dict.fromkeys(by_name[name] for name in names)))


def check_free_memory(gpus: Sequence[Gpu], utilization: float) -> None:
    """Raise BadInputError if other processes hold the memory that the engine needs.

    Args:
        gpus: GPUs of the engine.
        utilization: share of a GPU's memory that the engine takes.
    """
    for gpu in gpus:
        free = gpu.memory_mib - gpu.used_mib
        if free < utilization * gpu.memory_mib:
            raise BadInputError(
                f"GPU {gpu.index}: {free / 1024:.0f} of {gpu.memory_mib / 1024:.0f} GiB are free, and the engine takes "
                f"{100 * utilization:.0f} %: end what uses it (nvidia-smi names it), choose others with --gpus, or "
                "write a lower rollout.gpuMemoryUtilization"
            )
