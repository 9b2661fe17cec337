"""Settings of the generator that launches its own replicas."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from evalrun_generator.settings import WorkSettings


class RolloutSettings(WorkSettings):
    """Launches the replicas of a work order in a Ray cluster, asks them for what the ledger lacks, and lets them go.

    Run it inside the cluster, on the head, e.g. as a Ray job's entrypoint. Started again after it was killed it takes
    the living replicas over.
    """

    model_config = SettingsConfigDict(env_prefix="EVALRUN_GENERATOR_")

    work_order: Path = Field(description="The run's work order, as the operator writes it.")
    ray_address: str = Field("auto", description="Ray cluster to join; auto: the one of this machine, or RAY_ADDRESS.")
    drain_seconds: float = Field(
        2.0, ge=0, description="Seconds that requests in flight get to end after SIGTERM; Ray kills a job after 3."
    )
    model_folder: str | None = Field(
        None,
        min_length=1,
        description="Folder, on every worker, to which model.path was fetched; unset: the engine reads model.path.",
    )
    concurrency: int | None = Field(
        None, ge=1, le=65536, description="Requests in flight a replica; unset: maxNumSeqs and an eighth more."
    )
    engine_env: Annotated[list[str], NoDecode] = Field(
        [], description="NAME=VALUE for the engine's processes; repeat the flag, or separate several by commas."
    )

    replica_start_seconds: float = Field(
        1800.0, gt=0, description="How long a replica may take from its start to serving, in seconds."
    )
    gpu_wait_seconds: float = Field(
        1800.0, gt=0, description="How long to wait for the first GPUs to appear, in seconds."
    )
    idle_seconds: float = Field(
        30.0, gt=0, description="Between minReplicas and maxReplicas: after how long without work a replica is ended."
    )
    quiet_seconds: float = Field(
        5.0, gt=0, description="After how long without a token a replica is asked for a tiny completion."
    )
    hang_seconds: float = Field(
        60.0, gt=0, description="How long that may take without any token before the replica is replaced."
    )
    tick_seconds: float = Field(1.0, gt=0, description="How often replicas are looked at.")

    @field_validator("engine_env", mode="before")
    @classmethod
    def _split_environment(cls, value: object) -> object:
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list):
            return value
        return [part.strip() for entry in value for part in str(entry).split(",") if part.strip()]

    @field_validator("engine_env", mode="after")
    @classmethod
    def _check_environment(cls, value: list[str]) -> list[str]:
        for entry in value:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*=.*", entry, re.DOTALL):
                raise ValueError(f"{entry!r}: write NAME=VALUE")
        return value

    @property
    def environment(self) -> dict[str, str]:
        """`engine_env` by name."""
        return {name: value for name, _, value in (entry.partition("=") for entry in self.engine_env)}
