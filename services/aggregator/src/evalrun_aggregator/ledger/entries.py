"""The stored contents of the ledger as plain records. `row` is `items.pack_row`'s number.

The records of each completion are named tuples: creating a named tuple takes a fifth of the time of a frozen dataclass,
and a run creates a million.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class StoredCompletion(NamedTuple):
    """A completion. Durations are in seconds, `started_at` in Unix seconds. Unknown token counts are None."""

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
    """A `SubmissionMode` of judge.proto, if the completion was made elsewhere; 0: auto."""
    language: str = ""
    """The completion's own language, if it was made elsewhere; empty: that of the problem."""
    log_probs: tuple[float, ...] = ()
    """Log-probability of each token; empty if none were requested or given."""


class StoredVerdict(NamedTuple):
    """A verdict, or the reason why there is none (`judged` False)."""

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
    """Reason why the completion could not be judged, in one line."""
    feedback: str = ""
    """Message to the model about the completion, which opens its sample's next turn. Empty: no turn follows."""


class StoredSample(NamedTuple):
    """A completion with its verdict; the verdict is None until it is reached."""

    completion: StoredCompletion
    verdict: StoredVerdict | None
    feedback: str = ""
    """Feedback that was sent with the sample's next turn; empty if no turn opened."""


class Recorded(NamedTuple):
    """Time at which a verdict was stored."""

    row: int
    judged: bool
    recorded_at: float
    """Unix seconds."""


class StoredEvent(NamedTuple):
    """An act on the run from outside."""

    at: float
    """Unix seconds."""
    act: str
    """pause, resume, requeue-not-judged, set, stop, or end."""
    detail: str = ""
    """A line for people; empty if the act itself says everything."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """An earlier completion of a sample with the feedback that the model got about it."""

    answer: str
    feedback: str


@dataclass(frozen=True, slots=True)
class StoredReplica:
    """A worker's last report about one of its replicas, as run_info stores it."""

    name: str
    address: str
    models: Sequence[str]
    error: str
    load_format: str = ""
    """Format in which its engine loaded the weights; empty if it does not report that."""
    engine: Mapping[str, str] = field(default_factory=dict)
    """Versions, hardware and precision of its engine, as its machine reported them."""


@dataclass(frozen=True, slots=True)
class CompletionTally:
    """Number of completions of a dataset with the same way of ending."""

    finish_reason: str
    count: int
    output_tokens: int
