"""Settings of the recorded-completions server."""

from typing import Self

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from evalrun_generator.recorded.faults import Fault
from evalrun_runtime.settings import CommaSeparated, ServiceSettings


class RecordedSettings(ServiceSettings):
    """Serves recorded completions through the OpenAI API. If --token is set, callers must send it as their API key."""

    model_config = SettingsConfigDict(env_prefix="EVALRUN_RECORDED_")

    problems: CommaSeparated[str] = Field(
        [], description="Problem file in any accepted format. Repeat the flag or separate several by commas."
    )
    responses: CommaSeparated[str] = Field(
        [], description="File of recorded completions (JSONL or Parquet). Repeat the flag or separate by commas."
    )
    echo_tokens: int | None = Field(
        None, ge=0, le=1_000_000, description="Answer every prompt with this many words, for load tests."
    )
    model: str = Field("recorded", min_length=1, description="Model id to serve.")
    base_seed: int = Field(0, description="The run's seed. A request's seed minus this selects the sample.")

    latency_seconds: float = Field(0.0, ge=0, description="Latency of every answer in seconds.")
    latency_seconds_per_token: float = Field(0.0, ge=0, description="Additional seconds per output token.")
    max_concurrency: int = Field(0, ge=0, description="Maximum requests answered at once; others wait. 0: no limit.")
    fault_rate: float = Field(0.0, ge=0, le=1, description="Fraction of requests that fail.")
    fault_kinds: CommaSeparated[Fault] = Field(
        [Fault.ERROR, Fault.DROP, Fault.BUSY], min_length=1, description="Kinds of failure: 500, drop, 429, hang."
    )
    fault_seed: int = Field(0, description="Seed of the fault sequence.")
    retry_after_seconds: float = Field(0.1, ge=0, description="Retry-After of a 429, in seconds.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.echo_tokens is None and not (self.problems and self.responses):
            raise ValueError("nothing to serve: pass --problems and --responses, or --echo-tokens")
        if self.echo_tokens is not None and (self.problems or self.responses):
            raise ValueError("--echo-tokens excludes --problems and --responses: remove one or the other")
        return self
