"""Settings of the slot proxy."""

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from evalrun_executor.cpus import usable_cpus
from evalrun_runtime.settings import ServiceSettings


class SlotProxySettings(ServiceSettings):
    """Limits the simultaneous programs of a stock SandboxFusion server to its slots."""

    model_config = SettingsConfigDict(env_prefix="EVALRUN_SANDBOX_")

    upstream: str = Field("http://127.0.0.1:8081", description="URL of the SandboxFusion server in this pod.")
    slots: int = Field(
        default_factory=usable_cpus, ge=1, le=4096, description="Programs that run at the same time. Default: CPUs."
    )
    upstream_seconds: float = Field(
        900.0, gt=0, description="Seconds after which the server counts as hung and its slot is freed."
    )

    @field_validator("upstream")
    @classmethod
    def _url(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{url!r} is not a URL: write http://HOST:PORT")
        return url.rstrip("/")
