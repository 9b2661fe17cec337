"""Reads a metric of each problem, and the bounds between which it lies while answers are missing. Pure."""

from dataclasses import dataclass

import numpy as np

from evalrun_registry.metrics import is_share
from evalrun_results.metrics.accumulator import estimate_problems
from evalrun_results.metrics.estimators import count_missing_samples, value_bounds
from evalrun_results.metrics.figures import Mask
from evalrun_results.metrics.intervals import Floats
from evalrun_results.metrics.problem_columns import Counts, ProblemColumns


@dataclass(frozen=True, slots=True)
class Readings:
    """A metric of a run, by problem."""

    values: Floats
    """Values by the judged completions."""
    members: Mask
    """Problems that have a value."""
    lows: Floats
    highs: Floats
    """Bounds of the value once every completion is judged. For amounts both are the value."""
    possible: Mask
    """Problems that have a value then, or may have a value."""
    unknown: Counts
    """Number of each problem's completions that are missing for this metric."""
    judged: Mask
    """Problems with a judged completion."""


@dataclass(frozen=True, slots=True)
class PairedReadings:
    """A metric of two runs over the same problems."""

    baseline: Readings
    candidate: Readings

    @property
    def members(self) -> Mask:
        """Problems that have a value in both."""
        found: Mask = self.baseline.members & self.candidate.members
        return found

    @property
    def possible(self) -> Mask:
        """Problems that have a value in both runs, or may have a value once every completion is judged."""
        found: Mask = self.baseline.possible & self.candidate.possible
        return found

    @property
    def changes(self) -> Floats:
        """Candidate minus baseline, of the problems that have a value in both."""
        found: Floats = (self.candidate.values - self.baseline.values)[self.members]
        return found

    @property
    def not_judged(self) -> tuple[int, int]:
        """Answers that are missing in the baseline, and in the candidate."""
        possible = self.possible
        return int(self.baseline.unknown[possible].sum()), int(self.candidate.unknown[possible].sum())

    def extremes(self, least: float = -1.0, greatest: float = 1.0) -> tuple[Floats, Floats]:
        """Return the least and the greatest that each possible problem's change may be, between the given bounds.

        A problem that may turn out to have no value counts with the bounds themselves: neither its value nor its
        absence can then be worse.
        """
        lows = (self.candidate.lows - self.baseline.highs)[self.possible]
        highs = (self.candidate.highs - self.baseline.lows)[self.possible]
        return np.where(np.isnan(lows), least, lows), np.where(np.isnan(highs), greatest, highs)


def read_metric(metric: str, columns: ProblemColumns) -> Readings | None:
    """Return a metric's readings, or None if no problem has or may have a value.

    A missing answer may be worth any amount, so the values of an amount come from judged answers only.
    """
    found = estimate_problems(metric, columns)
    if found is None:
        return None
    values, members, judged = found.values, found.members, columns.judged > 0
    if not is_share(metric):
        nothing = np.zeros_like(columns.seen)
        return Readings(values, members, values, values, members, nothing, judged) if members.any() else None
    possible = columns.seen > 0 if found.possible is None else found.possible
    low, high = value_bounds(found, columns)
    unknown = count_missing_samples(found, columns)
    return Readings(values, members, low, high, possible, unknown, judged) if possible.any() else None
