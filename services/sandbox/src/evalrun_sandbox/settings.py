"""Settings of the sandbox."""

from pathlib import Path

from pydantic import DirectoryPath, Field
from pydantic_settings import SettingsConfigDict

from evalrun_executor.api import Level
from evalrun_executor.cpus import usable_cpus
from evalrun_executor.executor import ExecutorPlan
from evalrun_runtime.settings import ServiceSettings


class SandboxSettings(ServiceSettings):
    """Runs one program on many inputs, contained, and returns its output and resource usage."""

    model_config = SettingsConfigDict(env_prefix="EVALRUN_SANDBOX_")

    slots: int = Field(
        default_factory=usable_cpus, ge=1, le=4096,
        description="Programs that run at the same time; more than CPUs slows them down. Default: number of CPUs.",
    )  # fmt: skip
    queue: int | None = Field(
        None, ge=0, description="Requests admitted beyond the slots, so that no slot idles. Default: as many as slots."
    )
    required_level: Level = Field("full", description="Minimum containment; below it the sandbox refuses to start.")
    allow_uncontained: bool = Field(
        default=False, description="Start without containment. Only for programs you trust with this machine."
    )
    python: str | None = Field(
        None, description="Interpreter for programs. Default: the first that works for an unprivileged user."
    )
    package_dirs: list[DirectoryPath] = Field(
        default_factory=list, description="Folders of Python packages that programs may import, read-only."
    )
    work_dir: Path | None = Field(
        None, description="Folder for the programs' private folders. Default: a temporary folder."
    )
    fusion_datasets: Path | None = Field(
        None,
        description="Folder of rows, one <dataset>.jsonl per dataset; may be empty. Enables SandboxFusion's /submit "
        "and dataset routes; /run_code is always enabled.",
    )
    keep_mib: int = Field(
        128,
        ge=0,
        le=65536,
        description="Cache for the inputs of large test suites, which gateways name by digest, in MiB; 0 disables it.",
    )
    max_request_mib: int = Field(
        512, ge=1, le=4096, description="Maximum request body in MiB; larger ones are answered with 413."
    )

    def plan(self) -> ExecutorPlan:
        """Return the executor's settings."""
        return ExecutorPlan(
            slots=self.slots, queue=self.queue, required=self.required_level, allow_uncontained=self.allow_uncontained,
            python=self.python, package_dirs=tuple(self.package_dirs), work_dir=self.work_dir,
        )  # fmt: skip
