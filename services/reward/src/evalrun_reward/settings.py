"""The reward service's settings."""

from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from evalrun_runtime.settings import CommaSeparated, ServiceSettings


class RewardSettings(ServiceSettings):
    """Rewards for trainers over HTTP: answers and their tests in, the judge's verdicts as numbers out."""

    model_config = SettingsConfigDict(env_prefix="EVALRUN_REWARD_")

    judge: str = Field(
        ...,
        min_length=1,
        description="The judge gateway: grpc://host:port, or dns:///name:port for every gateway behind a name.",
    )
    judge_token: SecretStr | None = Field(
        None, description="Bearer token that the judge asks for. Give it by environment, not by flag."
    )
    problems: CommaSeparated[str] = Field(
        default_factory=list,
        description="Files of problems that samples may name by dataset and problem_id instead of bringing tests: "
        "what `evalrun judge --problems` reads. May be repeated.",
    )
    grader: list[str] = Field(
        default_factory=list,
        description="DATA_SOURCE=FILE: answers of this data source are scored by compute_score of a Python file, in a "
        "sandbox and in a run of its own; what it imports must be among the sandbox's packages. May be repeated.",
    )
    comparator: Literal["exact", "verl", "sandbox-fusion", "tokens", "standard"] | None = Field(
        None, description="What decides for stdin/stdout tests. Default: standard, or the problem's own."
    )
    time_limit: float | None = Field(
        None,
        ge=0.1,
        le=600,
        description="CPU seconds a test where the problem sets none. Default: 30, or 10 for calls.",
    )
    in_flight: int = Field(
        256, ge=1, le=65536, description="Samples at the judge at once; trainers share these places fairly."
    )
    queue_limit: int = Field(
        16384, ge=1, description="Samples that may be here at once, waiting ones included; more get 429."
    )
    queue_mib: int = Field(1024, ge=1, description="Size of the requests that may be here at once; more get 429.")
    max_samples: int = Field(4096, ge=1, description="Most samples of one request; beyond it 413.")
    max_request_mib: int = Field(256, ge=1, le=4096, description="Largest request body, MiB; beyond it 413.")
    deadline_seconds: float = Field(
        900.0, gt=0, description="Seconds after which a sample is given up, for requests that name no shorter time."
    )
    attempts: int = Field(
        4, ge=1, le=100, description="Times that the judge is asked about a sample that it cannot decide."
    )
    cache_mib: int = Field(256, ge=1, description="Memory for tests that were parsed, so that a group shares them.")
    not_judged_reward: float | None = Field(
        None,
        description="Reward that /get_reward returns for what the judge could not decide. Default: it answers 503, and "
        "OpenRLHF asks again; a number is a decision of yours that the trainer cannot tell from a verdict.",
    )
