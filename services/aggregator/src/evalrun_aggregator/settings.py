"""The aggregator's settings."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from evalrun_runtime.settings import ServiceSettings


class AggregatorSettings(ServiceSettings):
    """Keeps a run's ledger: hands out prompts, takes completions, has them judged, writes the outputs."""

    model_config = SettingsConfigDict(env_prefix="EVALRUN_AGGREGATOR_")

    work_order: Path = Field(description="What to do: a work order (JSON or YAML).")
    ledger: Path = Field(description="The run's SQLite file, created if absent. Not on a network file system.")
    ledger_max_mib: int | None = Field(
        None, ge=1, description="Size of the ledger in MiB from which it counts as full; by default the disk's own."
    )
    judge: list[str] = Field(
        min_length=1, description="Judges, each grpc://HOST:PORT or dns:///NAME:PORT (several pods). Repeatable."
    )
    judge_token: SecretStr | None = Field(
        None, description="Bearer token that the judges ask for. Give it by environment, not by flag."
    )
    judge_in_flight: int = Field(
        64, ge=1, le=65536, description="Requests without an answer, over all judges: about twice their slots."
    )
    judge_streams: int = Field(
        4, ge=1, le=256, description="Streams a judge address; behind a name of several pods, at least the pods."
    )
    judge_stream_seconds: float = Field(
        50.0, gt=0, description="Seconds after which a stream is closed and reopened on the next pod."
    )
    judge_answer_seconds: float = Field(
        900.0,
        gt=0,
        description="Seconds without the answer to a request after which its judge counts as hung; nine tenths of it "
        "are the request's deadline.",
    )
    judge_attempts: int = Field(
        5, ge=1, description="Failures of the judge's own on an item after which it is recorded as not judged."
    )
    judge_patience_seconds: float = Field(
        600.0,
        ge=0,
        description="Seconds without any verdict during which such failures are an outage and held against no item.",
    )
    retry_not_judged: bool = Field(
        default=False,
        description="Open a run that has ended again and judge what was not judged. One that has not, always does.",
    )
    export_seconds: float = Field(
        90.0, gt=0, description="Seconds that an export to WandB or MLflow may take; it is ended and warned about then."
    )
    lease_seconds: float = Field(
        900.0, gt=0, description="Seconds after which work that a worker took and never answered goes to another one."
    )
