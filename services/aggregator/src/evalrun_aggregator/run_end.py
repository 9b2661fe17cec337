"""End of a run, in the one form that its ledger, its service and the writer of its outputs share. Pure."""

from dataclasses import dataclass


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
    notices: tuple[str, ...] = ()
    """Reasons why the figures can mislead, one line each."""
