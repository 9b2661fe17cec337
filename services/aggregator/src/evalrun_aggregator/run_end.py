"""The end of a run, as shared by its ledger, its service and the writer of its outputs. Pure."""

from dataclasses import dataclass
from typing import Protocol


class OutputError(Exception):
    """The outputs could not be written; the ledger is whole, starting again writes them."""


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class DecidedGate:
    """Decision of the run's gate."""

    reason: str
    """Of the condition GatePassed: NoRegression, Regression, Inconclusive, BaselineNotFound or Implausible."""
    message: str
    """One line for people."""


@dataclass(frozen=True)
class RunEnd:
    """End of a run: the facts that are known once its outputs are written."""

    finished_at: float
    """Unix seconds."""
    output_url: str
    accepted_at_1: dict[str, Interval]
    """By dataset."""
    gate: DecidedGate | None = None
    """None where the run has no gate."""
    wandb_url: str = ""
    """The run at Weights & Biases; empty where it is not there."""
    warnings: tuple[str, ...] = ()
    """Problems that did not affect the results, one line each."""
    attested_by: str = ""
    """Id of the key that signed the outputs; empty if none did."""
    notices: tuple[str, ...] = ()
    """Reasons why the figures can mislead, one line each."""


class Outputs(Protocol):
    """Writer of the run's outputs and of its end."""

    @property
    def trouble(self) -> str:
        """The error that prevents writing the outputs, in one line; empty without an error."""
        ...

    async def finish(self, partial: str) -> RunEnd:
        """Write the outputs, then record and return the end.

        Args:
            partial: why the run ends before everything was decided; empty for any other.

        Raises:
            OutputError: they could not be written; starting again writes them.
            LedgerError: the disk failed or is full.
        """
        ...
