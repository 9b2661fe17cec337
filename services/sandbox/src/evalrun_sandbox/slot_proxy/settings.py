"""What the slot proxy can be told."""

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from evalrun_runtime.settings import ServiceSettings
from evalrun_sandbox.cpus import usable_cpus


class SlotProxySettings(ServiceSettings):
    """Stands before a stock SandboxFusion server and lets as many programs in as it has slots."""

    model_config = SettingsConfigDict(env_prefix="EVALRUN_SANDBOX_")

    upstream: str = Field("http://127.0.0.1:8081", description="URL of the SandboxFusion server, on this pod.")
    slots: int = Field(
        default_factory=usable_cpus, ge=1, le=4096, description="Programs that run at the same time. Default: CPUs."
    )
    upstream_seconds: float = Field(
        900.0, gt=0, description="Seconds after which the server counts as hung and the slot as free again."
    )

    @field_validator("upstream")
    @classmethod
    def _url(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{url!r} is not a URL; write http://host:port")
        return url.rstrip("/")
