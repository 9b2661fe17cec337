"""The aggregator's settings."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from evalrun_runtime.settings import ServiceSettings


class AggregatorSettings(ServiceSettings):
    """Stores a run's ledger: leases prompts, stores completions, sends them to the judge, writes the outputs."""

    model_config = SettingsConfigDict(env_prefix="EVALRUN_AGGREGATOR_")

    work_order: Path = Field(description="The run configuration, a JSON or YAML file.")
    ledger: Path = Field(description="The run's SQLite file, created if absent. Not on a network file system.")
    ledger_max_mib: int | None = Field(
        None, ge=1, description="Maximum size of the ledger in MiB. Default: the disk's free space."
    )
    judge: list[str] = Field(
        min_length=1, description="Judge: grpc://HOST:PORT, or dns:///NAME:PORT for several pods. May be repeated."
    )
    judge_token: SecretStr | None = Field(
        None, description="Bearer token of the judges. Set it in the environment: flags are visible in ps."
    )
    judge_token_file: Path | None = Field(
        None,
        description="File with the judges' token, on its first line; read again when it changes. Instead of "
        "judge_token.",
    )
    judge_tls_folder: Path | None = Field(
        None,
        description="Directory with tls.crt, tls.key and ca.crt, read again when they change: what the judges are "
        "shown "
        "and checked by. Default: plain text.",
    )
    operator_token: SecretStr | None = Field(
        None,
        description="Bearer token that GetStatus and EndRun require instead of the other. Set it in the environment: "
        "flags are visible in ps.",
    )
    operator_token_file: Path | None = Field(
        None, description="File with it, as --token-file: workers, which have the other token, cannot end the run."
    )
    judge_in_flight: int = Field(
        64, ge=1, le=65536, description="Maximum requests in flight over all judges; use about twice their slots."
    )
    judge_streams: int = Field(
        4, ge=1, le=256, description="Streams per judge address; for a name with several pods, at least one per pod."
    )
    judge_stream_seconds: float = Field(
        50.0,
        gt=0,
        description="Seconds after which a stream is closed and reopened on the next pod.",
    )
    judge_answer_seconds: float = Field(
        900.0,
        gt=0,
        description="Seconds to wait for an answer before the judge counts as hung. A request's deadline is nine "
        "tenths of it.",
    )
    judge_attempts: int = Field(
        5, ge=1, description="Infrastructure failures after which an item is recorded as not judged."
    )
    judge_patience_seconds: float = Field(
        600.0,
        ge=0,
        description="Maximum seconds of an outage, from its first failure: while no verdict arrives, failures are not "
        "counted against items.",
    )
    retry_not_judged: bool = Field(
        default=False,
        description="Reopen a finished run and judge the items that were not judged. An unfinished run always does.",
    )
    lift_pause: bool = Field(
        default=False, description="Go on with a run that was paused. Default: it stays paused over restarts."
    )
    attest_key: SecretStr | None = Field(
        None,
        description="Ed25519 key as PEM that signs the outputs. Set it in the environment: flags are visible in ps.",
    )
    samples_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port on 127.0.0.1 that shows samples to `evalrun view er/NAME`, over a port-forward. 0: any "
        "free one. Default: none; in the image: 9092.",
    )
    export_seconds: float = Field(
        90.0, gt=0, description="Maximum seconds of an export to WandB or MLflow; then it is stopped with a warning."
    )
    output_retry_seconds: float = Field(
        1800.0,
        ge=0,
        description="Maximum seconds for which writing outputs to an object store is tried again. Then the run fails; "
        "its ledger stays, and the next start goes on.",
    )
    storage_seconds: float | None = Field(
        None,
        gt=0,
        description="Seconds for which the disk may be full before the run fails, to be resumed. Default: it waits.",
    )
    lease_seconds: float = Field(
        900.0, gt=0, description="Seconds after which unanswered work is leased to another worker."
    )
