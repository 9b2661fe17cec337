"""Options of a run with replicas on this machine. Imported with every command, so it imports little."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ALL_GPUS: Final = "all"


@dataclass(frozen=True)
class GpuOptions:
    """The user's options for this machine's GPUs."""

    gpus: str | None = None
    """`all`, numbers with commas between them, or `cpu` or `cpu:N` for the CPU build; None: all."""
    replicas: int | None = None
    """None: as the file has it."""
    gpu_python: Path | None = None
    """Interpreter with verl; None: that of `evalrun setup gpu`."""
    ray_address: str | None = None
    """Ray cluster to join; None: one is started here."""

    @property
    def flags(self) -> dict[str, object]:
        """The given flags and their values, by name."""
        return {
            "--gpus": self.gpus,
            "--replicas": self.replicas,
            "--gpu-python": self.gpu_python,
            "--ray-address": self.ray_address,
        }


NO_GPU_OPTIONS: Final = GpuOptions()
