"""The gateway's settings."""

from typing import Literal

from pydantic import DirectoryPath, Field, SecretStr, field_validator
from pydantic_settings import SettingsConfigDict

from evalrun_executor.api import Level
from evalrun_judge.pool.discovery import host_and_port
from evalrun_judge.pool.endpoint_slices import service_of
from evalrun_runtime.settings import ServiceSettings


class JudgeSettings(ServiceSettings):
    """The judge gateway: takes submissions and their tests, gives verdicts (gRPC)."""

    model_config = SettingsConfigDict(env_prefix="EVALRUN_JUDGE_")

    sandbox: list[str] = Field(
        ...,
        min_length=1,
        max_length=1000,
        description="Where sandboxes are: http://host:port, one "
        "sandbox; dns:///host:port, every address behind the name, a headless Service's say; "
        "k8s:///namespace/service:port, a Service's ready pods by the Kubernetes API, which the pod's account must be "
        "allowed to ask. May be repeated.",
    )
    backend: Literal["Evalrun", "SandboxFusion"] = Field(
        "Evalrun",
        description="What the sandboxes are. Evalrun: evalrun-sandbox. SandboxFusion: a stock SandboxFusion server, "
        "the slot proxy before it or not; tests go through a harness that confines each program itself.",
    )
    sandbox_token: SecretStr | None = Field(
        None, description="Bearer token that the sandboxes ask for. Give it by environment, not by flag."
    )
    queue_limit: int = Field(
        1024, ge=1, description="Requests that may wait beyond the sandboxes' slots; more get RESOURCE_EXHAUSTED."
    )
    queue_mib: int = Field(
        1024,
        ge=1,
        description="Size of the requests, as they came, that may be here at once; more get RESOURCE_EXHAUSTED. A "
        "larger one is let in alone. A request that is here takes about three times its size.",
    )
    stream_concurrency: int = Field(
        256, ge=1, description="Requests of one stream judged at once; the stream is not read further meanwhile."
    )
    stream_seconds: float = Field(
        120.0, gt=0, description="Age at which a stream ends once its requests are answered, so that clients spread."
    )
    drain_seconds: float = Field(
        600.0,
        ge=0,
        description="Seconds that verdicts in flight get after SIGTERM, or once their connection is old (60 s): more "
        "than the longest verdict takes, or it is cut off, and again when it is asked for again.",
    )
    required_level: Level = Field(
        "full", description="Least containment level of a sandbox that is used; seccomp where a runtimeClass isolates."
    )
    allow_uncontained: bool = Field(
        default=False, description="Use sandboxes, and replay assertions, at any containment level. Trusted code only."
    )
    assertion_slots: int = Field(
        0, ge=0, description="Assertion replays of function tests run at once; 0: as many as this machine has CPUs."
    )
    package_dirs: list[DirectoryPath] = Field(
        default_factory=list,
        description="Folders of Python packages that tests may import, read-only: the same as the sandboxes have.",
    )
    retry_attempts: int = Field(5, ge=1, description="Failed sandbox calls after which a program is given up.")
    retry_ratio: float = Field(
        0.2,
        ge=0,
        le=10,
        description="Sandbox calls made again, retries and hedges, for each first call of the last 10 s, over all "
        "programs; beyond that and a small floor a failed call ends its request as UNAVAILABLE.",
    )
    retry_budget_seconds: float = Field(
        30.0,
        ge=0,
        description="Seconds that requests wait while no sandbox at all answers.",
    )

    health_seconds: float = Field(
        5.0,
        gt=0,
        description="Seconds between two looks at a sandbox that has work and answers nothing; after three in vain its "
        "programs run elsewhere.",
    )
    hedging: bool = Field(
        default=True,
        description="Send a call that takes much longer than most to a second sandbox too, where slots are idle.",
    )

    cache_mib: int = Field(
        256,
        ge=0,
        description="Memory for verdicts that the same program on the same tests gets again, marked as cached; 0: none "
        "are kept, in Redis neither.",
    )
    cache_redis: SecretStr | None = Field(
        None,
        description="A Redis that gateways share verdicts through, redis://[:password@]host:port/db; whoever can write "
        "to it can forge verdicts. Give it by environment, not by flag.",
    )
    cache_redis_days: float = Field(30.0, gt=0, le=3650, description="How long Redis keeps a verdict.")
    suite_mib: int = Field(
        256, ge=0, description="Memory for large test suites, which callers then name by digest; 0: none are kept."
    )
    sandbox_image: str = Field(
        "", description="Image of the sandboxes, best with its digest: cached verdicts of another image do not count."
    )

    @field_validator("sandbox")
    @classmethod
    def _targets(cls, targets: list[str]) -> list[str]:
        for target in targets:
            if target.startswith("dns:"):
                host_and_port(target)
            elif target.startswith("k8s:"):
                service_of(target)
            elif not target.startswith(("http://", "https://")):
                raise ValueError(f"{target!r} is not a URL; write http://host:port or dns:///host:port")
        return targets

    @property
    def least_level(self) -> Level:
        """The level below which nothing is run."""
        return "none" if self.allow_uncontained else self.required_level
