"""The test of a sequential gate: decides as early as possible whether a mean is at least its bound. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np

from evalrun_results.metrics.figures import Mask
from evalrun_results.metrics.intervals import Floats
from evalrun_results.sequential.confidence_sequence import (
    ROUNDING,
    Bounds,
    Draws,
    Integers,
    confidence_sequence,
    first_time,
    log_capital_above,
)

Population = Literal["benchmark", "similar"]
"""benchmark: the mean of these very problems, drawn without replacement. similar: of those that they stand for."""


class MeanDecision(StrEnum):
    """Whether the mean reaches the bound."""

    AT_LEAST = "at least"
    BELOW = "below"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Values:
    """A value per problem, in drawing order, up to the first incomplete problem.

    lows, highs: between which each value lies: apart where something was not judged.
    floors, ceilings: between which each problem's value lay before it was drawn, for all problems in drawing order.
    bounds: of all values.
    """

    lows: Floats
    highs: Floats
    floors: Floats
    ceilings: Floats
    bounds: Bounds

    def draws(self, population: Population, count: int | None = None) -> Draws:
        """Return the first `count` of the values; None returns all complete values."""
        count = len(self.lows) if count is None else count
        return Draws(
            self.lows[:count],
            self.highs[:count],
            self.bounds,
            len(self.floors) if population == "benchmark" else None,
            float(self.floors[count:].sum()),
            float(self.ceilings[count:].sum()),
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a sequential test."""

    answer: MeanDecision
    decided_after: int | None
    """Number of problems; None while the test is open."""
    looked_at: int
    """Problems."""
    low: float
    high: float
    """Bound of the interval at the decision, else now. It holds however often the test was checked."""
    mean: float
    """Mean of the problems; a completion that was not judged counts half way between its bounds."""


def decide_mean(values: Values, min_mean: float, population: Population, confidence: float) -> Finding:
    """Test whether the mean is at least `min_mean`.

    The first decision stands: it depends only on the values in their order, not on when they are looked at. Each of the
    two answers is wrong with probability (1 - confidence) / 2 at most.
    """
    count = len(values.lows)
    after = int(count_until_decision(values, min_mean, population, (1 - confidence) / 2)) if count else 0
    answer = MeanDecision.OPEN if not after else MeanDecision.AT_LEAST if after > 0 else MeanDecision.BELOW
    count = abs(after) or count
    draws = values.draws(population, count)
    low, high = confidence_sequence(draws, confidence)
    if answer is MeanDecision.AT_LEAST:
        low, high = max(low, min_mean), max(high, min_mean)
    elif answer is MeanDecision.BELOW:
        low, high = min(low, min_mean), min(high, min_mean)
    mean = float((draws.lows + draws.highs).mean() / 2) if count else float("nan")
    return Finding(answer, abs(after) or None, count, low, high, mean)


def count_until_decision(values: Values, min_mean: float, population: Population, error: float) -> Integers:
    """Return the number of problems until the decision: negative if the mean is below `min_mean`, 0 while it is open.

    Args:
        values: the values of a run, or of many orders of a run, one row per order.
        min_mean: the smallest mean that passes.
        population: the problems whose mean is asked for.
        error: probability with which each answer may be wrong.
    """
    size = values.floors.shape[-1] if population == "benchmark" else None
    passed = first_time(log_capital_above(values.lows, min_mean, values.bounds, size), error)
    failed = first_time(log_capital_above(-values.highs, -min_mean, values.bounds.negate(), size), error)
    if size is not None:
        surely = _count_until_certain(values, min_mean)
        passed, failed = (_sooner(*each) for each in zip((passed, failed), surely, strict=True))
    passes = (passed > 0) & ((failed == 0) | (passed <= failed))
    found: Integers = np.where(passes, passed, -failed)
    return found


def _sooner(first: Integers, second: Integers) -> Integers:
    """Return the smaller of two times, 0 being never."""
    found: Integers = np.where((first == 0) | ((second > 0) & (second < first)), second, first)
    return found


def _count_until_certain(values: Values, min_mean: float) -> tuple[Integers, Integers]:
    """Return after how many problems the rest cannot change the answer any more: at least, and below; 0: not yet."""
    total, count = values.floors.shape[-1], values.lows.shape[-1]
    slack = ROUNDING * total
    worst = np.cumsum(values.lows, axis=-1) + _left(values.floors)[..., :count]
    best = np.cumsum(values.highs, axis=-1) + _left(values.ceilings)[..., :count]
    return _first(worst >= total * min_mean - slack), _first(best < total * min_mean - slack)


def _left(values: Floats) -> Floats:
    sums: Floats = values.sum(axis=-1, keepdims=True) - np.cumsum(values, axis=-1)
    return sums


def _first(reached: Mask) -> Integers:
    found: Integers = np.where(reached.any(axis=-1), reached.argmax(axis=-1) + 1, 0)
    return found
