"""The reward service's settings."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from evalrun_api.api_model import Choice
from evalrun_registry.comparators import COMPUTED
from evalrun_registry.limits import CONTEST_LIMITS, DEFAULT_LIMITS
from evalrun_runtime.run_shares import RunPriorities, RunShares
from evalrun_runtime.settings import CommaSeparated, ServiceSettings


class RewardSettings(ServiceSettings):
    """Reward service for trainers (HTTP): judges answers and returns the verdicts as numbers."""

    model_config = SettingsConfigDict(env_prefix="EVALRUN_REWARD_")

    judge: str = Field(
        ...,
        min_length=1,
        description="Judge gateway: grpc://host:port, or dns:///name:port for several gateways behind a name.",
    )
    judge_token: SecretStr | None = Field(
        None, description="Bearer token of the judge. Set it in the environment: flags are visible in ps."
    )
    judge_token_file: Path | None = Field(
        None,
        description="File with the judge's token, on its first line; read again when it changes. Instead of "
        "judge_token.",
    )
    judge_tls_folder: Path | None = Field(
        None,
        description="Directory with tls.crt, tls.key and ca.crt, read again when they change: what the judges are "
        "shown and checked by, and live sandboxes with https. Default: plain text.",
    )
    problems: CommaSeparated[str] = Field(
        default_factory=list,
        description="Problem file, in any format of `evalrun judge --problems`. Samples can name its problems by "
        "dataset and problem_id instead of sending tests. May be repeated.",
    )
    grader: list[str] = Field(
        default_factory=list,
        description="DATA_SOURCE=FILE: score answers of this data source with compute_score of a Python file. It runs "
        "in the sandbox, once per answer, and can import the sandbox's packages. * is any other data source; "
        "builtin:verl instead of a file is verl's own routing, except for code. May be repeated.",
    )
    comparator: Annotated[str, Choice(COMPUTED)] | None = Field(
        None, description="Comparator of stdin/stdout tests. Default: the problem's own, or standard."
    )
    time_limit: float | None = Field(
        None,
        ge=0.1,
        le=600,
        description=f"CPU seconds per test, for tests without a limit. Default: {DEFAULT_LIMITS.time_seconds:g}, or "
        f"{CONTEST_LIMITS.time_seconds:g} for stdin/stdout problems of --problems.",
    )
    callers_file: Path | None = Field(
        None,
        description="File with a line per caller, RUN TOKEN, read again when it changes: who sends this token is that "
        "run, whatever its requests say. Beside it the service's own token, if there is one, may name any other run.",
    )
    share: RunShares
    priority: RunPriorities
    in_flight: int = Field(
        256, ge=1, le=65536, description="Maximum samples at the judge at once, shared fairly between runs."
    )
    queue_limit: int = Field(
        16384, ge=1, description="Maximum samples in the service, waiting ones included; more get 429."
    )
    queue_mib: int = Field(1024, ge=1, description="Maximum total size of requests in MiB; more get 429.")
    max_samples: int = Field(4096, ge=1, description="Maximum samples per request; more get 413.")
    max_request_mib: int = Field(256, ge=1, le=4096, description="Maximum request body in MiB; larger ones get 413.")
    deadline_seconds: float = Field(
        900.0, gt=0, description="Maximum seconds per sample; a request can set a shorter time."
    )
    attempts: int = Field(4, ge=1, le=100, description="Maximum attempts per sample that the judge cannot decide.")
    cache_mib: int = Field(256, ge=1, description="Memory for parsed tests in MiB, which the samples of a group share.")
    not_judged_reward: float | None = Field(
        None,
        description="Reward that /get_reward returns for samples that were not judged. Default: none; it answers 503, "
        "and OpenRLHF retries. The trainer cannot tell such a number from a verdict.",
    )
    session_store: SecretStr | None = Field(
        None,
        description="Where multi-turn sessions live: a SQLite file's path for one machine, or "
        "redis://[:password@]host:port/db for several replicas; whoever can write there can forge rewards. `evalrun "
        "serve reward` takes a file in the user's state directory by default; the images have no sessions by default.",
    )
    live_sandbox: CommaSeparated[str] = Field(
        default_factory=list,
        description="Address of a sandbox with --max-sessions: sessions with the action live keep their Python "
        "interpreter there. May be repeated; each address must lead to one sandbox. `evalrun serve reward` takes own, "
        "for the sandbox that it starts.",
    )
    live_sandbox_token: SecretStr | None = Field(
        None, description="Bearer token of these sandboxes. Set it in the environment: flags are visible in ps."
    )
    live_sandbox_token_file: Path | None = Field(
        None, description="File with that token, on its first line; read again when it changes."
    )
    live_sandbox_tls_name: str | None = Field(
        None,
        min_length=1,
        description="Name that the certificates of these sandboxes must have. Default: the host of each address.",
    )
    max_sessions: int = Field(
        10_000, ge=1, description="Sessions that may be open at once, over all replicas; beyond it 429."
    )
    max_turns: int = Field(32, ge=1, le=1024, description="Actions of a session; beyond it 413.")
    max_session_characters: int = Field(
        1_000_000, ge=10_000, description="Characters of a session's actions and observations; beyond it 413."
    )
    max_observation_characters: int = Field(
        8192, ge=256, description="Characters of an observation; the middle of a longer one is left out."
    )
    session_idle_seconds: float = Field(
        3600.0, gt=0, description="Seconds without progress after which a session is gone."
    )

    @model_validator(mode="after")
    def _live_sandboxes_with_a_name_show_certificates(self) -> Self:
        plain = [url for url in self.live_sandbox if not url.startswith("https://")]
        if self.live_sandbox_tls_name is not None and plain:
            raise ValueError(
                f"live_sandbox: {plain[0]} is plain text although live_sandbox_tls_name is set: write https://"
            )
        return self

    @model_validator(mode="after")
    def _sessions_outlive_their_calls(self) -> Self:
        if self.session_idle_seconds < self.deadline_seconds:
            raise ValueError(
                "session_idle_seconds: a session would expire during a call: write at least deadline_seconds "
                f"({self.deadline_seconds:g})"
            )
        return self
