"""Stored contents of the ledger, as plain records. `row` is `items.pack_row`'s number.

What there is of each answer is a named tuple: made in a fifth of the time of a frozen dataclass, a million times a run.
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
    """A `SubmissionMode` of judge.proto, where the answer was made elsewhere; 0: auto."""
    language: str = ""
    """The answer's own language, where it was made elsewhere; empty: the problem's."""
    log_probs: tuple[float, ...] = ()
    """Of each token; empty where none were asked for or given."""


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
    """One line: why it could not be judged."""
    feedback: str = ""
    """Message to the model about the answer, which opens its sample's next turn. Empty: no turn follows."""


class StoredSample(NamedTuple):
    """A completion with its verdict; None where none was reached yet."""

    completion: StoredCompletion
    verdict: StoredVerdict | None
    feedback: str = ""
    """As it was sent with the sample's next turn; empty where none opened."""


class Recorded(NamedTuple):
    """Which verdict was stored when."""

    row: int
    judged: bool
    recorded_at: float
    """Unix seconds."""


class StoredEvent(NamedTuple):
    """Something that was done to the run from outside."""

    at: float
    """Unix seconds."""
    act: str
    """pause, resume, requeue-not-judged, set, stop, or end."""
    detail: str = ""
    """One line for people; empty where the act says everything."""


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
