"""Betting confidence sequences for a mean: intervals that hold at every look at once. Pure.

Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting" (JRSS B 2023), section 4, and for
sampling without replacement "Confidence sequences for sampling without replacement" (NeurIPS 2020), section 3. For each
possible mean m, a gambler bets on every value before seeing it, at odds that are fair if m is the true mean. By Ville's
inequality the probability that a fair game ever multiplies the stake by 1 / a is at most a. So a mean against which the
capital ever reached 1 / a is rejected, however often the values were looked at.

Ours to choose are the stakes, which decide how soon, never whether, a decision is right: an equal share on each of
`STAKES`, and without replacement growing with N / (N - t), as the edge of whoever is right does: the less is left,
the further its mean is from the one that is refuted. No stake depends on m except for `MAX_AT_RISK`, so the capital
falls as m rises and the means that are left form an interval.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from evalrun_results.metrics.figures import Mask
from evalrun_results.metrics.intervals import Floats

STAKES: Final = tuple(float(stake) for stake in np.geomspace(0.1, 2.0, 6))
"""Per unit of the values' range. The best one is about the distance from m over the variance."""
MAX_AT_RISK: Final = 0.9
"""Maximum share of the capital in a bet, so that the capital is never lost altogether."""
ROUNDING: Final = 1e-9
"""Sums of fractions such as 0.1 are off by less: a mean that is the bound on paper must count as such."""
BISECTIONS: Final = 40
MAX_LOG: Final = 700.0
SMALLEST: Final = 1e-300
"""Capitals beyond are as good as these two: no number overflows."""

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of every value."""

    low: float
    high: float

    def negate(self) -> "Bounds":
        """Return the bounds of the negated values."""
        return Bounds(-self.high, -self.low)


DIFFERENCE: Final = Bounds(-1.0, 1.0)
SHARE: Final = Bounds(0.0, 1.0)


def log_capital_above(values: Floats, mean: float, bounds: Bounds, population: int | None) -> Floats:
    """Return the logarithm of the capital won against "the mean is at most `mean`", after each value.

    For an unknown value the caller gives the least that it may be: the capital is then at most the true capital.

    Args:
        values: games x values, in the order drawn, or one game.
        mean: that is bet against.
        bounds: of the values.
        population: number of values to draw from without replacement; None if they are drawn with replacement.

    Returns:
        Same shape as `values`; inf as soon as the remaining values cannot bring the mean down to `mean`.
    """
    count = values.shape[-1]
    drawn = np.arange(count)
    if population is None:
        fair = np.full(values.shape, mean)
        growth = np.ones(count)
    else:
        left = population - drawn
        before = np.cumsum(values, axis=-1) - values
        fair = (population * mean - before) / left
        growth = population / left
    # This is the maximum loss of a stake of 1.
    room = fair - bounds.low
    sure = np.logical_or.accumulate(room < -ROUNDING, axis=-1)
    room = np.maximum(room, ROUNDING)
    won = values - fair
    total = np.zeros(values.shape)
    for stake in STAKES:
        bet = np.minimum(stake / (bounds.high - bounds.low) * growth, MAX_AT_RISK / room)
        logs = np.cumsum(np.log1p(np.maximum(bet * won, -MAX_AT_RISK)), axis=-1)
        total += np.exp(np.minimum(logs, MAX_LOG))
    return np.where(sure, np.inf, np.log(np.maximum(total / len(STAKES), SMALLEST)))


def first_time(capital: Floats, error: float) -> Integers:
    """Return after how many values, from 1, the capital reached 1 / `error`; 0 where it never did."""
    reached: Mask = capital >= -math.log(error)
    found: Integers = np.where(reached.any(axis=-1), reached.argmax(axis=-1) + 1, 0)
    return found


@dataclass(frozen=True, slots=True)
class Draws:
    """Known values in drawing order.

    lows, highs: between which each lies; equal where it is known.
    bounds: of every value.
    population: number of values to draw from without replacement; None with replacement.
    left_low, left_high: bounds of the sum of the values not drawn yet, if tighter than `bounds`; else None.
    """

    lows: Floats
    highs: Floats
    bounds: Bounds
    population: int | None
    left_low: float | None = None
    left_high: float | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing is left to draw."""
        return self.population is not None and len(self.lows) >= self.population

    def logical(self) -> tuple[float, float]:
        """Return deterministic bounds of the mean, valid for all possible remaining values."""
        if self.population is None or self.population == 0:
            return self.bounds.low, self.bounds.high
        left = self.population - len(self.lows)
        least = left * self.bounds.low if self.left_low is None else self.left_low
        most = left * self.bounds.high if self.left_high is None else self.left_high
        return (float(self.lows.sum()) + least) / self.population, (float(self.highs.sum()) + most) / self.population


def confidence_sequence(draws: Draws, confidence: float) -> tuple[float, float]:
    """Return the interval of the mean: with probability `confidence` it holds at every look at once.

    It combines all looks so far: a mean that an earlier look excluded stays excluded.
    """
    error = (1 - confidence) / 2
    least, most = draws.logical()
    if draws.complete:
        # No random values are left.
        return least, most
    low = max(least, _lowest_left(draws.lows, draws.bounds, draws.population, error))
    high = min(most, -_lowest_left(-draws.highs, draws.bounds.negate(), draws.population, error))
    return min(low, high), max(low, high)


def _lowest_left(values: Floats, bounds: Bounds, population: int | None, error: float) -> float:
    """Return the smallest mean that was never rejected by bets on a larger mean."""
    low, high = bounds.low, bounds.high
    if len(values) == 0:
        return low
    limit = -math.log(error)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if log_capital_above(values, middle, bounds, population).max() >= limit:
            low = middle
        else:
            high = middle
    return low
