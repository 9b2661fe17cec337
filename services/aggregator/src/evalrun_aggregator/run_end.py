"""The end of a run, shared by its ledger, its service and the writer of its outputs. Pure."""

from dataclasses import dataclass
from typing import Protocol


class OutputError(Exception):
    """The outputs could not be written. The ledger is complete, and a restart writes them."""


@dataclass(frozen=True)
class Interval:
    """A metric with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class DecidedGate:
    """Decision of the run's gate."""

    reason: str
    """Reason of the condition GatePassed: NoRegression, Regression, Inconclusive, BaselineNotFound or Implausible."""
    message: str
    """One line for people."""


@dataclass(frozen=True)
class RunEnd:
    """End of a run: the facts that are known once its outputs are written."""

    finished_at: float
    """Unix seconds."""
    output_url: str
    accepted_at_1: dict[str, Interval]
    """`accepted_at_1` by dataset."""
    gate: DecidedGate | None = None
    """Decision of the gate; None if the run has no gate."""
    wandb_url: str = ""
    """URL of the run at Weights & Biases; empty if it was not sent there."""
    warnings: tuple[str, ...] = ()
    """Problems that did not affect the results, one line each."""
    attested_by: str = ""
    """Id of the key that signed the outputs; empty if no key did."""
    notices: tuple[str, ...] = ()
    """Reasons why the metrics can mislead, one per line."""


class Outputs(Protocol):
    """Writer of the run's outputs and of its end."""

    @property
    def trouble(self) -> str:
        """The error that prevents writing the outputs, in one line; empty without an error."""
        ...

    async def finish(self, partial: str) -> RunEnd:
        """Write the outputs, then record and return the end.

        Args:
            partial: why the run ends before everything was decided; empty for any other run.

        Raises:
            OutputError: the outputs could not be written; a restart writes them.
            LedgerError: the disk failed or is full.
        """
        ...
