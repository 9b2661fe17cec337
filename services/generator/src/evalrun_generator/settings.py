"""Settings of the generator: endpoints, concurrency, retries, time limits."""

import os
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from evalrun_generator.endpoints.base_url import base_url
from evalrun_runtime.exits import BadInputError
from evalrun_runtime.settings import CommaSeparated, ServiceSettings


def openai_api_key() -> SecretStr | None:
    """Return the key that OpenAI's own clients would use."""
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    return SecretStr(key) if key else None


class WorkSettings(ServiceSettings):
    """Settings of every generator, with given endpoints or launched replicas. A generator is a job: it listens only on
    --metrics-port, if that is set.
    """

    ledger: str = Field(description="Address of the aggregator's ledger, e.g. grpc://127.0.0.1:50051.")
    ledger_token: SecretStr | None = Field(
        None, description="The ledger's bearer token. Set it in the environment: flags are visible in ps."
    )
    ledger_token_file: Path | None = Field(
        None,
        description="File with the ledger's token, on its first line; read again when it changes. Instead of "
        "ledger_token.",
    )
    ledger_tls_folder: Path | None = Field(
        None,
        description="Directory with tls.crt, tls.key and ca.crt, read again when they change: what the ledger is shown "
        "and checked by. Default: plain text.",
    )
    worker_id: str = Field(
        "generator", min_length=1, description="Name of this worker for its leases. Use the same name after a restart."
    )

    epoch: int = Field(
        0,
        ge=0,
        description="Number of this start among those of the run's generator. The ledger refuses a lower one than it "
        "has seen: a generator that another has replaced ends.",
    )

    tokenizer: str | None = Field(
        None,
        description="Directory or hub id of the model's tokenizer, to count the tokens of answers without usage. "
        "Loaded "
        "at the first such answer; without it their token count is missing.",
    )

    attempts: int = Field(
        8,
        ge=1,
        description="Failed requests after which an item is given up. The run continues without it and exits 1.",
    )
    backoff_seconds: float = Field(0.1, gt=0, description="First wait before a retry, in seconds; doubles.")
    max_backoff_seconds: float = Field(10.0, gt=0, description="Maximum wait before a retry, in seconds.")
    request_seconds: float = Field(
        120.0,
        gt=0,
        description="Minimum timeout of a request, in seconds. After 20 answers it falls to five times the slowest, at "
        "least 60 s; a request that timed out gets twice the time, at most four times.",
    )
    request_seconds_per_token: float = Field(
        0.2, ge=0, description="Timeout per token of max_tokens, in seconds; the larger of the two applies."
    )
    start_seconds: float = Field(
        60.0, ge=0, description="Seconds to wait at start for the ledger and the first endpoint."
    )
    outage_seconds: float = Field(
        120.0,
        ge=0,
        description="Seconds without any answer from any endpoint after which the run stops; it can be resumed.",
    )
    ledger_seconds: float = Field(
        600.0,
        ge=0,
        description="Seconds the ledger may be unreachable before the run stops; completions wait meanwhile.",
    )

    batch_size: int = Field(64, ge=1, le=4096, description="Maximum completions per call to the ledger.")
    batch_delay_seconds: float = Field(
        0.05, ge=0, description="Maximum seconds a completion waits for a batch; a kill may lose that much."
    )
    report_seconds: float = Field(5.0, gt=0, description="Seconds between two reports of the endpoints' state.")

    @model_validator(mode="after")
    def _order(self) -> Self:
        if self.max_backoff_seconds < self.backoff_seconds:
            raise ValueError("max_backoff_seconds is less than backoff_seconds: write at least the same value")
        return self

    def deadline_for(self, max_tokens: int) -> float:
        """Return the timeout in seconds of a request for `max_tokens` tokens."""
        return max(self.request_seconds, self.request_seconds_per_token * max_tokens)


class GeneratorSettings(WorkSettings):
    """Requests a run's missing completions from OpenAI-compatible endpoints, and exits when the ledger is complete.

    The generator is a job: it listens only on --metrics-port, if that is set.
    """

    model_config = SettingsConfigDict(env_prefix="EVALRUN_GENERATOR_")

    endpoint: CommaSeparated[str] = Field(
        min_length=1,
        description="Base URL of a server, with or without /v1. Repeat the flag or separate several by commas.",
    )
    model: str = Field(min_length=1, description="Model to request. Each endpoint must list it in /v1/models.")
    verify_model: bool = Field(
        default=True,
        description="Refuse endpoints whose /v1/models lacks the model. Disable only for servers without that list.",
    )
    api_key: SecretStr | None = Field(
        default_factory=openai_api_key,
        description="API key of the endpoints. Set it in the environment: flags are visible in ps. Default: "
        "OPENAI_API_KEY, as OpenAI's own clients read it.",
    )
    concurrency: CommaSeparated[Annotated[int, Field(ge=1, le=65536)]] = Field(
        [256],
        description="Requests in flight per endpoint: one number for all, or one for each endpoint in their order. "
        "Below the server's max_num_seqs a GPU is partly idle.",
    )

    @model_validator(mode="after")
    def _one_number_each(self) -> Self:
        if len(self.concurrency) not in (1, len(self.endpoint)):
            raise ValueError(
                f"concurrency has {len(self.concurrency)} numbers for {len(self.endpoint)} endpoints: write one for "
                "all, or one for each"
            )
        return self

    @property
    def slots(self) -> list[int]:
        """Requests in flight at each endpoint, in their order."""
        return self.concurrency * (1 if len(self.concurrency) > 1 else len(self.endpoint))

    @field_validator("endpoint", mode="after")
    @classmethod
    def _normalise_endpoints(cls, value: list[str]) -> list[str]:
        try:
            urls = [base_url(entry) for entry in value]
        except BadInputError as error:
            raise ValueError(str(error)) from error
        if len(set(urls)) < len(urls):
            raise ValueError("an endpoint is given twice: write each one once")
        return urls
