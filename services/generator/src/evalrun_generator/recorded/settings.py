"""Settings of the recorded-completions endpoint."""

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from evalrun_generator.recorded.faults import Fault
from evalrun_runtime.settings import ServiceSettings


class RecordedSettings(ServiceSettings):
    """Serves recorded completions behind the OpenAI API. A token, where set, is the API key that callers must send."""

    model_config = SettingsConfigDict(env_prefix="EVALRUN_RECORDED_")

    problems: Annotated[list[str], NoDecode] = Field(
        [], description="File of problems in any accepted format; repeat the flag, or separate several by commas."
    )
    responses: Annotated[list[str], NoDecode] = Field(
        [], description="File of recorded completions (JSONL or Parquet); repeat the flag, or separate by commas."
    )
    echo_tokens: int | None = Field(
        None, ge=0, le=1_000_000, description="Answer every prompt with this many words instead, for load."
    )
    model: str = Field("recorded", min_length=1, description="Model id to serve under.")
    base_seed: int = Field(0, description="The run's seed: a request's seed minus this is the sample that answers it.")

    latency_seconds: float = Field(0.0, ge=0, description="Seconds that every answer takes.")
    latency_seconds_per_token: float = Field(0.0, ge=0, description="Seconds more for each output token.")
    max_concurrency: int = Field(0, ge=0, description="Requests answered at a time, others wait in line; 0: no limit.")
    fault_rate: float = Field(0.0, ge=0, le=1, description="Share of the requests that fail.")
    fault_kinds: Annotated[list[Fault], NoDecode] = Field(
        [Fault.ERROR, Fault.DROP, Fault.BUSY], min_length=1, description="How they fail: 500, drop, 429 or hang."
    )
    fault_seed: int = Field(0, description="Seed of the sequence of faults.")
    retry_after_seconds: float = Field(0.1, ge=0, description="What a 429 says in Retry-After.")

    @field_validator("problems", "responses", "fault_kinds", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list):
            return value
        return [part.strip() for entry in value for part in str(entry).split(",") if part.strip()]

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.echo_tokens is None and not (self.problems and self.responses):
            raise ValueError("give --problems and --responses, or --echo-tokens")
        if self.echo_tokens is not None and (self.problems or self.responses):
            raise ValueError("--echo-tokens answers every prompt: leave --problems and --responses out")
        return self
