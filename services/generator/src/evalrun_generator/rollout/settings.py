"""Settings of the generator that launches its own replicas."""

import re
from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from evalrun_generator.settings import WorkSettings
from evalrun_runtime.settings import CommaSeparated


class RolloutSettings(WorkSettings):
    """Launches the replicas of a run configuration in a Ray cluster, generates the missing completions, ends the
    replicas.

    Run it inside the cluster, on the head, e.g. as a Ray job's entrypoint. After a kill, the next start takes over the
    living replicas.
    """

    model_config = SettingsConfigDict(env_prefix="EVALRUN_GENERATOR_")

    work_order: Path = Field(description="File with the run configuration, as written by the operator.")
    ray_address: str = Field("auto", description="Ray cluster to join; auto: RAY_ADDRESS, or this machine's.")
    ray_join: str | None = Field(
        None,
        pattern=r"^[^:\s]+:[0-9]+$",
        description="HOST:PORT of the head of a Ray cluster that this process joins as a node of its own, without "
        "resources; it stands in place of --ray-address.",
    )
    ray_node_ip: str | None = Field(
        None, min_length=1, description="With --ray-join: address of that node; unset: Ray chooses."
    )
    drain_seconds: float = Field(
        2.0, ge=0, description="Seconds to wait for requests in flight after SIGTERM; Ray kills a job after 3."
    )
    model_folder: str | None = Field(
        None,
        min_length=1,
        description="Directory of the fetched model on every worker; unset: the engine reads model.path.",
    )
    adapter_folder: str | None = Field(
        None,
        min_length=1,
        description="Directory of the fetched LoRA adapter on every worker; unset: the engine reads model.adapter.",
    )
    end_replicas: bool = Field(
        default=False,
        description="End the replicas also after a signal or a temporary error, instead of leaving them to the next "
        "attempt.",
    )
    abandon_seconds: float | None = Field(
        None,
        gt=0,
        description="Seconds without a generator after which the replicas end by themselves; unset: they wait for the "
        "next attempt.",
    )
    keep_replicas: str | None = Field(
        None,
        min_length=1,
        description="Name of replicas that outlive the run: wait for the turn on them, and have them take this run's "
        "checkpoint. Needs --model-folder.",
    )
    concurrency: int | None = Field(
        None, ge=1, le=65536, description="Requests in flight per replica; unset: maxNumSeqs plus an eighth."
    )
    engine_env: CommaSeparated[str] = Field(
        [], description="NAME=VALUE for the engine's processes. Repeat the flag or separate several by commas."
    )

    replica_start_seconds: float = Field(
        1800.0, gt=0, description="Seconds a replica may take from its start to serving."
    )
    gpu_wait_seconds: float = Field(1800.0, gt=0, description="Seconds to wait for the first GPUs.")
    idle_seconds: float = Field(
        30.0, gt=0, description="Idle seconds after which a replica beyond minReplicas is ended."
    )
    quiet_seconds: float = Field(
        5.0, gt=0, description="Seconds without a token after which a replica is probed with a tiny completion."
    )
    hang_seconds: float = Field(
        60.0, gt=0, description="Seconds the probe may take without any token before the replica is replaced."
    )
    tick_seconds: float = Field(1.0, gt=0, description="Seconds between two observations of the replicas.")

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
