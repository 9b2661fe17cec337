"""The gateway's settings."""

from pathlib import Path
from typing import Literal, Self

from pydantic import DirectoryPath, Field, SecretStr, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from evalrun_executor.api import Level
from evalrun_judge.pool.discovery import host_and_port, parse_service
from evalrun_runtime.late_arguments import ON_STDIN
from evalrun_runtime.run_shares import RunPriorities, RunShares
from evalrun_runtime.settings import ServiceSettings


class JudgeSettings(ServiceSettings):
    """Judge gateway (gRPC): runs submissions in sandboxes, compares their outputs and returns verdicts."""

    model_config = SettingsConfigDict(env_prefix="EVALRUN_JUDGE_")

    sandbox: list[str] = Field(
        ...,
        min_length=1,
        max_length=1000,
        description="Address of sandboxes. http://host:port: one sandbox. dns:///host:port: every address of the "
        "name, e.g. of a headless Service. k8s:///namespace/service:port: the ready pods of a Service, from the "
        "Kubernetes API; the pod's account needs access to EndpointSlices. stdin: the URL that follows on stdin, a "
        "pipe. May be repeated.",
    )
    backend: Literal["Evalrun", "SandboxFusion"] = Field(
        "Evalrun",
        description="Type of the sandboxes. Evalrun: evalrun-sandbox. SandboxFusion: a stock SandboxFusion server, "
        "with or without the slot proxy; a harness on the server contains each program.",
    )
    sandbox_token: SecretStr | None = Field(
        None, description="Bearer token of the sandboxes. Set it in the environment: flags are visible in ps."
    )
    sandbox_token_file: Path | None = Field(
        None,
        description="File with the sandboxes' token, on its first line; read again when it changes. Instead of "
        "sandbox_token.",
    )
    sandbox_tls_folder: Path | None = Field(
        None,
        description="Directory with tls.crt, tls.key and ca.crt, read again when they change: what the sandboxes are "
        "shown and checked by. Default: plain text.",
    )
    share: RunShares
    priority: RunPriorities
    queue_limit: int = Field(
        1024, ge=1, description="Maximum requests that wait for a slot; more get RESOURCE_EXHAUSTED."
    )
    queue_mib: int = Field(
        1024,
        ge=1,
        description="Maximum total size of admitted requests in MiB; more get RESOURCE_EXHAUSTED. A single larger "
        "request is admitted alone. A request needs about three times its size in memory.",
    )
    stream_concurrency: int = Field(
        256, ge=1, description="Maximum requests of one stream judged at once; further ones are not read yet."
    )
    stream_seconds: float = Field(
        120.0,
        gt=0,
        description="Age at which a stream is closed, once its requests are answered, to rebalance clients.",
    )
    drain_seconds: float = Field(
        600.0,
        ge=0,
        description="Seconds that verdicts in flight may take after SIGTERM, or after their connection is 60 s old. "
        "Set it above the slowest verdict; a verdict that takes longer is cut off at every retry.",
    )
    required_level: Level = Field(
        "full", description="Minimum containment level of sandboxes; seccomp suffices if a runtimeClass isolates them."
    )
    allow_uncontained: bool = Field(
        default=False, description="Run programs and assertions at any containment level. Trusted code only."
    )
    assertion_slots: int = Field(
        0, ge=0, description="Maximum assertion replays of function tests at once; 0: one per CPU."
    )
    package_dirs: list[DirectoryPath] = Field(
        default_factory=list,
        description="Directories of Python packages that tests may import, read-only; use the same as in the "
        "sandboxes.",
    )
    retry_attempts: int = Field(5, ge=1, description="Failed sandbox calls after which a request fails as UNAVAILABLE.")
    retry_ratio: float = Field(
        0.2,
        ge=0,
        le=10,
        description="Retry budget: retries and hedges per first call of the last 10 s, over all programs. Beyond it "
        "and a small constant, a failed call ends its request as UNAVAILABLE.",
    )
    retry_budget_seconds: float = Field(
        30.0,
        ge=0,
        description="Seconds that requests wait while no sandbox answers.",
    )

    health_seconds: float = Field(
        5.0,
        gt=0,
        description="Seconds between health checks of a sandbox that has work and does not answer; after three failed "
        "checks its programs run elsewhere.",
    )
    hedging: bool = Field(
        default=True,
        description="Hedge slow calls: if slots are idle, also send an unusually slow call to a second sandbox.",
    )

    cache_mib: int = Field(
        256,
        ge=0,
        description="Memory for cached verdicts in MiB: the same program on the same tests gets its earlier verdict, "
        "marked as cached. 0 disables the cache, including Redis.",
    )
    cache_redis: SecretStr | None = Field(
        None,
        description="Redis for a verdict cache shared by gateways, redis://[:password@]host:port/db. Anyone who can "
        "write to it can forge verdicts. Set it in the environment: flags are visible in ps.",
    )
    cache_redis_days: float = Field(30.0, gt=0, le=3650, description="Days that Redis keeps a verdict.")
    suite_mib: int = Field(
        256,
        ge=0,
        description="Cache for large test suites in MiB, which callers name by digest; 0 disables it.",
    )
    sandbox_image: str = Field(
        "", description="Image of the sandboxes, preferably with its digest. It is part of the cache key."
    )

    @model_validator(mode="after")
    def _tls_for_all(self) -> Self:
        plain = [target for target in self.sandbox if target.startswith("http://")]
        if self.sandbox_tls_folder is not None and plain:
            raise ValueError(f"sandbox: {plain[0]} is plain text although sandbox_tls_folder is set: write https://")
        return self

    @field_validator("sandbox")
    @classmethod
    def _targets(cls, targets: list[str]) -> list[str]:
        for target in targets:
            if target.startswith("dns:"):
                host_and_port(target)
            elif target.startswith("k8s:"):
                parse_service(target)
            elif target != ON_STDIN and not target.startswith(("http://", "https://")):
                raise ValueError(f"{target!r} is not a URL; write http://host:port or dns:///host:port")
        return targets

    @property
    def min_level(self) -> Level:
        """The level below which nothing is run."""
        return "none" if self.allow_uncontained else self.required_level
