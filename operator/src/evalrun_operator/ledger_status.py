"""An aggregator's report about its run, as plain data."""

from dataclasses import dataclass
from enum import StrEnum


class RunState(StrEnum):
    """The ledger's own view of the run."""

    PREPARING = "preparing"
    GENERATING = "generating"
    JUDGING = "judging"
    SUCCEEDED = "succeeded"
    DEGRADED = "degraded"
    FAILED = "failed"
    """The run cannot continue without help; `message` names the reason. The ledger is intact."""


class GateState(StrEnum):
    """The aggregator's decision about the gates."""

    PENDING = "pending"
    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    NO_BASELINE = "no_baseline"
    IMPLAUSIBLE = "implausible"


@dataclass(frozen=True)
class ReportedFigure:
    """A metric with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class DatasetCounts:
    """Counts of a dataset's completions."""

    name: str
    total: int
    generated: int = 0
    judged: int = 0
    """Completions with a verdict; `not_judged` are not among them."""
    accepted: int = 0
    not_judged: int = 0
    accepted_at_1: ReportedFigure | None = None
    """Set once the run has ended."""
    cancelled: int = 0
    """Completions that the gates made needless; in no other count."""


@dataclass(frozen=True)
class LedgerStatus:
    """The aggregator's reply to GetStatus."""

    state: RunState
    datasets: tuple[DatasetCounts, ...] = ()
    output_tokens: int = 0
    output_url: str = ""
    wandb_url: str = ""
    attested_by: str = ""
    """Id of the key that signed the outputs; empty if no key did."""
    message: str = ""
    gpu_seconds: float = 0.0
    gate: GateState = GateState.PENDING
    gate_message: str = ""
    stopped_early: str = ""
    """Progress of the run when its gates decided; empty if they did not stop it."""
    warnings: tuple[str, ...] = ()
    """Settings of the spec that leave GPUs idle, with a remedy."""
    replica_hosts: tuple[str, ...] | None = None
    """Hosts of the replicas that hold GPUs, empty for a replica without a host; None: nothing was ever reported."""
    ended_early: str = ""
    """Reason why the run was told to end before everything was decided; empty if it was not."""
    stopped_by_user: bool = False
    """Whether `evalrun ctl` ended the run."""
    paused: bool = False
    """Whether generation and judging pause until `evalrun ctl` resumes them."""
    generating_seconds: float = 0.0
    """Seconds in which at least one completion was being generated."""
    working_seconds: float = 0.0
    """Seconds in which any completion was being generated or judged."""

    @property
    def total(self) -> int:
        """Number of completions of the run."""
        return sum(dataset.total for dataset in self.datasets)

    @property
    def pending(self) -> int:
        """Number of completions that are still to be generated."""
        return sum(dataset.total - dataset.generated for dataset in self.datasets)

    @property
    def judged(self) -> int:
        """Number of completions with a verdict."""
        return sum(dataset.judged for dataset in self.datasets)

    @property
    def not_judged(self) -> int:
        """Number of completions that the judge could not decide."""
        return sum(dataset.not_judged for dataset in self.datasets)

    @property
    def accepted(self) -> int:
        """Number of accepted completions."""
        return sum(dataset.accepted for dataset in self.datasets)

    @property
    def ended(self) -> bool:
        """Whether the outputs are written."""
        return self.state in {RunState.SUCCEEDED, RunState.DEGRADED}

    @property
    def all_generated(self) -> bool:
        """Whether every completion is on disk."""
        if self.ended_early:
            return self.total > 0 and self.pending == 0
        return self.ended or self.state is RunState.JUDGING or (self.total > 0 and self.pending == 0)

    @property
    def some_missing(self) -> bool:
        """Whether completions are known to be missing. Always False while the ledger is still being read."""
        return self.total > 0 and self.pending > 0
