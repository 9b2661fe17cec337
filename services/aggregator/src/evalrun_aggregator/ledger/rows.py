"""What the ledger stores, as plain records. `row` is `items.pack_row`'s number."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StoredCompletion:
    """One answer. Seconds; `started_at` is Unix seconds. Token counts are None where nobody counted them."""

    row: int
    text: str
    finish_reason: str = "stop"
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    generation_seconds: float = 0.0
    started_at: float = 0.0
    replica: str = ""
    model: str = ""
    attempts: int = 1
    mode: int = 0
    """A `SubmissionMode` of judge.proto, where the answer was made elsewhere; 0: auto."""
    language: str = ""
    """The answer's own language, where it was made elsewhere; empty: the problem's."""


@dataclass(frozen=True, slots=True)
class StoredVerdict:
    """One verdict, or the reason why there is none (`judged` False)."""

    row: int
    verdict: bytes
    """A serialised `evalrun.judge.v1.Verdict`."""
    final_status: int
    """A `FinalStatus` of judge.proto."""
    judged: bool
    accepted: bool
    recorded_at: float
    """Unix seconds."""
    attempts: int = 1
    reason: str = ""
    """One line: why it could not be judged."""


@dataclass(frozen=True, slots=True)
class StoredSample:
    """A completion with its verdict; None where none was reached yet."""

    completion: StoredCompletion
    verdict: StoredVerdict | None


@dataclass(frozen=True, slots=True)
class StoredReplica:
    """What a worker last said of one of its replicas, as run_info keeps it."""

    name: str
    address: str
    models: Sequence[str]
    error: str
    load_format: str = ""
    engine: Mapping[str, str] = field(default_factory=dict)
    """What it computes with, as its machine said."""
    """How its engine says that it loaded the weights; empty where it does not say."""


@dataclass(frozen=True, slots=True)
class CompletionTally:
    """How many completions of one dataset ended in one way."""

    finish_reason: str
    count: int
    output_tokens: int
