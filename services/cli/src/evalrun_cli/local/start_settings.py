"""The settings with which a local run was started besides its run configuration, so that `evalrun resume DIR` needs
no flags."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from evalrun_cli.gpu_host.options import NO_GPU_OPTIONS, GpuOptions
from evalrun_cli.local.options import LocalOptions
from evalrun_cli.local.workspace import START_SETTINGS
from evalrun_generator.gpu_host.kept_ray import KEPT
from evalrun_runtime.atomic_files import write_atomically
from evalrun_runtime.exits import BadInputError


class StartSettings(BaseModel):
    """Flags of the command that started a run, as far as a later command must repeat them."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    endpoints: tuple[str, ...] = ()
    request_seconds: float | None = None
    slots: int | None = None
    allow_uncontained: bool = False
    sandbox_fusion: str | None = None
    packages: tuple[Path, ...] = ()
    gpus: str | None = None
    replicas: int | None = None
    gpu_python: Path | None = None
    ray_address: str | None = None

    @classmethod
    def from_options(
        cls,
        options: LocalOptions,
        endpoints: tuple[str, ...] = (),
        request_seconds: float | None = None,
        gpu_options: GpuOptions = NO_GPU_OPTIONS,
    ) -> "StartSettings":
        """Return the settings of a command."""
        return cls(
            endpoints=endpoints,
            request_seconds=request_seconds,
            slots=options.slots,
            allow_uncontained=options.allow_uncontained,
            sandbox_fusion=options.sandbox_fusion,
            packages=tuple(directory.resolve() for directory in options.packages),
            gpus=gpu_options.gpus,
            replicas=gpu_options.replicas,
            gpu_python=None if gpu_options.gpu_python is None else gpu_options.gpu_python.expanduser().absolute(),
            ray_address=gpu_options.ray_address,
        )

    @property
    def options(self) -> LocalOptions:
        """Options for judging programs."""
        return LocalOptions(self.slots, self.allow_uncontained, self.sandbox_fusion, self.packages)

    @property
    def gpu_options(self) -> GpuOptions:
        """Options for starting replicas on this machine."""
        return GpuOptions(self.gpus, self.replicas, self.gpu_python, self.ray_address)

    def write(self, directory: Path) -> None:
        """Store the settings in a run's directory."""
        ends_with_command = (self.ray_address or "").startswith(KEPT)
        stored = self.model_copy(update={"ray_address": None}) if ends_with_command else self
        write_atomically(directory / START_SETTINGS, stored.model_dump_json(indent=2).encode() + b"\n")


def read_start_settings(directory: Path) -> StartSettings:
    """Return the settings of the run in a directory; an earlier version left none. Raises BadInputError."""
    path = directory / START_SETTINGS
    try:
        return StartSettings.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return StartSettings()
    except (OSError, ValidationError) as error:
        raise BadInputError(f"{path}: cannot be used: {' '.join(str(error).split())[:200]}: delete it") from error
