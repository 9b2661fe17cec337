"""What the sandbox can be told."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from evalrun_runtime.settings import ServiceSettings
from evalrun_sandbox.api import Level
from evalrun_sandbox.cpus import usable_cpus
from evalrun_sandbox.executor import ExecutorPlan


class SandboxSettings(ServiceSettings):
    """Runs one program on many inputs, contained, and gives back what it printed and used."""

    model_config = SettingsConfigDict(env_prefix="EVALRUN_SANDBOX_")

    slots: int = Field(
        default_factory=usable_cpus, ge=1, le=4096,
        description="Programs that run at the same time; more than CPUs makes them wait for each other. Default: CPUs.",
    )  # fmt: skip
    queue: int | None = Field(
        None, ge=0, description="Requests admitted beyond the slots, so that none idles between two. Default: as slots."
    )
    required_level: Level = Field("full", description="Least containment; below it the sandbox refuses to start.")
    allow_uncontained: bool = Field(
        default=False, description="Start whatever the containment. For programs that you trust with this machine."
    )
    python: str | None = Field(
        None, description="Interpreter for candidates. Default: the first that works for an unprivileged user."
    )
    package_dirs: list[Path] = Field(
        default_factory=list, description="Folders of Python packages that candidates may import, read-only."
    )
    work_dir: Path | None = Field(None, description="Where private folders lie. Default: a temporary folder.")
    fusion_datasets: Path | None = Field(
        None,
        description="Turns SandboxFusion's /submit and dataset routes on: a folder of rows, <dataset>.jsonl each; "
        "it may be empty. /run_code is always on.",
    )
    keep_mib: int = Field(
        128,
        ge=0,
        le=65536,
        description="Memory for the inputs of large test suites, which gateways then name by digest; 0: none are kept.",
    )
    max_request_mib: int = Field(512, ge=1, le=4096, description="Largest request body, MiB; beyond it 413.")

    def plan(self) -> ExecutorPlan:
        """Give the executor's own settings."""
        return ExecutorPlan(
            slots=self.slots, queue=self.queue, required=self.required_level, allow_uncontained=self.allow_uncontained,
            python=self.python, package_dirs=tuple(self.package_dirs), work_dir=self.work_dir,
        )  # fmt: skip
