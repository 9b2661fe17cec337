"""Settings of the generator: what is asked of whom, how hard, and for how long."""

from typing import Annotated, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from evalrun_generator.endpoints import base_url
from evalrun_runtime.exits import BadInputError
from evalrun_runtime.settings import ServiceSettings


class WorkSettings(ServiceSettings):
    """How a run's ledger is worked off, whoever answers. A generator is a job: it listens on nothing but
    --metrics-port, where that is given.
    """

    ledger: str = Field(description="Address of the aggregator's ledger, e.g. grpc://127.0.0.1:50051.")
    ledger_token: SecretStr | None = Field(
        None, description="The ledger's bearer token. Give it by environment, not by flag: flags show in ps."
    )
    worker_id: str = Field(
        "generator", min_length=1, description="Name under which work is leased; keep it over restarts."
    )

    tokenizer: str | None = Field(
        None,
        description="Folder or hub id of the model's tokenizer: counts the tokens of answers whose server gives no "
        "usage. Loaded when the first such answer comes; without it they stay without a count.",
    )

    attempts: int = Field(
        8, ge=1, description="Failed requests after which an item is given up. The run goes on without it and exits 1."
    )
    backoff_seconds: float = Field(0.1, gt=0, description="First wait before an item is asked for again; doubles.")
    longest_backoff_seconds: float = Field(10.0, gt=0, description="Longest such wait.")
    request_seconds: float = Field(120.0, gt=0, description="Least time that a request gets, in seconds.")
    request_seconds_per_token: float = Field(
        0.2, ge=0, description="Time that a request gets a token of max_tokens, where that comes to more; in seconds."
    )
    start_seconds: float = Field(
        60.0, ge=0, description="How long to wait for the first endpoint, and for the ledger, to answer at start."
    )
    outage_seconds: float = Field(
        120.0, ge=0, description="How long every endpoint may fail without one answer before the run stops, resumable."
    )
    ledger_seconds: float = Field(
        600.0, ge=0, description="How long the ledger may be away before the run stops; completions wait meanwhile."
    )

    batch_size: int = Field(64, ge=1, le=4096, description="Most completions sent to the ledger in one call.")
    batch_delay_seconds: float = Field(
        0.05, ge=0, description="Longest that a completion waits for others to join its call; what a kill may lose."
    )
    report_seconds: float = Field(5.0, gt=0, description="How often the endpoints' state is reported to the ledger.")

    @model_validator(mode="after")
    def _order(self) -> Self:
        if self.longest_backoff_seconds < self.backoff_seconds:
            raise ValueError("longest_backoff_seconds is less than backoff_seconds")
        return self

    def deadline_for(self, max_tokens: int) -> float:
        """Give the seconds that a request for `max_tokens` tokens may take."""
        return max(self.request_seconds, self.request_seconds_per_token * max_tokens)


class GeneratorSettings(WorkSettings):
    """Asks OpenAI-compatible endpoints for the completions that a run's ledger lacks, and ends when it lacks none.

    The generator is a job: it listens on nothing but --metrics-port, where that is given.
    """

    model_config = SettingsConfigDict(env_prefix="EVALRUN_GENERATOR_")

    endpoint: Annotated[list[str], NoDecode] = Field(
        min_length=1,
        description="Base URL of a server, with or without /v1; repeat the flag, or separate several by commas.",
    )
    model: str = Field(min_length=1, description="Model to ask for; each endpoint must list it in /v1/models.")
    verify_model: bool = Field(
        default=True,
        description="Refuse endpoints whose /v1/models lacks the model. Only off for servers without it.",
    )
    api_key: SecretStr | None = Field(
        None, description="Key of the endpoints. Give it by environment, not by flag: flags show in ps."
    )
    concurrency: int = Field(
        256, ge=1, le=65536,
        description="Requests in flight an endpoint. Below the server's max_num_seqs most of a GPU idles.",
    )  # fmt: skip

    @field_validator("endpoint", mode="before")
    @classmethod
    def _split_endpoints(cls, value: object) -> object:
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list):
            return value
        return [part.strip() for entry in value for part in str(entry).split(",") if part.strip()]

    @field_validator("endpoint", mode="after")
    @classmethod
    def _normalise_endpoints(cls, value: list[str]) -> list[str]:
        try:
            urls = [base_url(entry) for entry in value]
        except BadInputError as error:
            raise ValueError(str(error)) from error
        if len(set(urls)) < len(urls):
            raise ValueError("an endpoint is given twice: give each one once")
        return urls
