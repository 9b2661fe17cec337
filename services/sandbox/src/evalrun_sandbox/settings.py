"""Settings of the sandbox."""

from pathlib import Path

from pydantic import DirectoryPath, Field
from pydantic_settings import SettingsConfigDict

from evalrun_executor.api import Level
from evalrun_executor.cpus import usable_cpus
from evalrun_executor.executor import ExecutorPlan
from evalrun_runtime.settings import ServiceSettings
from evalrun_sandbox.sessions.policy import Budget
from evalrun_sandbox.sessions.sessions import SessionLimits


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
        default_factory=list, description="Directories of Python packages that programs may import, read-only."
    )
    work_dir: Path | None = Field(
        None, description="Directory for the programs' private directories. Default: a temporary directory."
    )
    fusion_datasets: Path | None = Field(
        None,
        description="Directory of rows, one <dataset>.jsonl per dataset; may be empty. Enables SandboxFusion's /submit "
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

    max_sessions: int = Field(
        0, ge=0, le=2000, description="Maximum open live sessions. 0 disables their routes and /run_jupyter."
    )
    session_idle_seconds: float = Field(
        600.0, gt=0, le=86400, description="A live session ends after so many seconds without an execution."
    )
    session_memory_mib: int = Field(256, ge=16, le=65536, description="Memory limit of one live session, in MiB.")
    session_budget_mib: int = Field(
        2048,
        ge=16,
        description="What all idle live sessions may hold together, in MiB; beyond it the largest one ends.",
    )

    def session_limits(self) -> SessionLimits:
        """Return the limits of live sessions."""
        budget = Budget(self.session_idle_seconds, self.session_budget_mib << 20)
        return SessionLimits(self.max_sessions, self.session_memory_mib, budget)

    def plan(self) -> ExecutorPlan:
        """Return the executor's settings."""
        return ExecutorPlan(
            slots=self.slots, queue=self.queue, required=self.required_level, allow_uncontained=self.allow_uncontained,
            python=self.python, package_dirs=tuple(self.package_dirs), work_dir=self.work_dir,
        )  # fmt: skip
