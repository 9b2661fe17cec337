"""Bounds of a mean of bounded values that are valid for any number of values and any skew. Pure.

Gaffke's bound ("Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative variable",
Mathematical Methods of Statistics 14, 2005; Learned-Miller and Thomas, arXiv:1905.06208): the worst possible value is
added to the observed values, and the bound is a quantile of their mean with weights drawn uniformly (Dirichlet with
every parameter 1). For values of two kinds the bound is Clopper and Pearson's, which is exact. For other distributions
no proof is known, and no violation either: the unit tests enumerate the level in 25 settings. The bound rises with each
value, so values that are not known can be replaced by the least that they may be.

Nothing is drawn: weights are shares of exponential variables, and the chance that a sum of them is negative is one
integral in the complex plane, along the line through its saddle point (Rice 1980), where it falls off fast.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from evalrun_results.metrics.intervals import Floats

POINTS: Final = 192
"""Points of the integral: its error is then below 1e-5 of the probability for 20 to 4,000 values, against Clopper and
Pearson's."""
NEWTON_STEPS: Final = 60
NEAREST_POLE: Final = 0.5
"""Distance of the line from the pole at 0, in units of the integrand's width."""
DIGITS: Final = 12
"""Values that agree to this many digits are one value."""
MAX_STEPS: Final = 100
PRECISION: Final = 1e-9

Complexes = NDArray[np.complex128]


@dataclass(frozen=True, slots=True)
class Tally:
    """Different values, and how often each occurs."""

    values: Floats
    counts: Floats

    @classmethod
    def of(cls, values: Floats) -> "Tally":
        """Count values."""
        found, counts = np.unique(np.round(values, DIGITS), return_counts=True)
        return cls(found, counts.astype(np.float64))


def mean_interval(lows: Floats, highs: Floats, least: float, greatest: float, confidence: float) -> tuple[float, float]:
    """Return the two-sided interval of the mean of values that are only known to lie between `lows` and `highs`.

    Args:
        lows, highs: bounds of each value; equal if the value is known.
        least, greatest: bounds of every value, including values that were not drawn.
        confidence: of the interval; each side errs with half of the rest.

    Raises:
        ValueError: there are no values, or a value is out of bounds.
    """
    slack = 10.0**-DIGITS
    if len(lows) == 0 or lows.min() < least - slack or highs.max() > greatest + slack:
        raise ValueError(f"values from {least} to {greatest} are needed, at least one")
    error = (1 - confidence) / 2
    return lower_bound(lows, least, error), -lower_bound(-highs, -greatest, error)


def lower_bound(values: Floats, least: float, error: float) -> float:
    """Return a number below which the mean lies with a chance of at most `error`.

    Args:
        values: drawn independently.
        least: that any value may be.
        error: above 0 and below 1.
    """
    tally = Tally.of(np.maximum(values, least))
    low, high = least, float(tally.values[-1])
    if high - low <= PRECISION:
        return least
    # False position on the logarithm of the chance (Illinois): it is monotone, and nearly straight near the bound.
    at_low, at_high = -math.inf, -math.log(error)
    middle = max((low + high) / 2, float(np.average(tally.values, weights=tally.counts)) - (high - low) / 4)
    for _ in range(MAX_STEPS):
        chance = float(chance_at_most(tally.values, tally.counts[np.newaxis], least, middle)[0])
        at_middle = math.log(max(chance, 1e-300) / error)
        if at_middle > 0:
            high, at_high, at_low = middle, at_middle, at_low / 2
        else:
            low, at_low, at_high = middle, at_middle, at_high / 2
        if high - low <= PRECISION or abs(at_middle) <= PRECISION:
            break
        share = 0.5 if math.isinf(at_low) else at_low / (at_low - at_high)
        middle = low + min(max(share, 0.01), 0.99) * (high - low)
    return low


def chance_at_most(values: Floats, counts: Floats, least: float, mean: float) -> Floats:
    """Return the chance that the randomly weighted mean of each sample and of `least` is at most `mean`.

    A sample whose chance is at most `error` has a lower bound of at least `mean`.

    Args:
        values: pairwise different.
        counts: samples x values: how often each value occurs.
        least: that any value may be.
        mean: that is asked about.
    """
    gaps = np.append(values, least) - mean
    many = np.hstack([counts, np.ones((len(counts), 1))])
    some = many > 0
    lowest = np.where(some, gaps, np.inf).min(axis=1)
    highest = np.where(some, gaps, -np.inf).max(axis=1)
    chances = np.where(highest <= 0, 1.0, 0.0)
    open_ = (lowest < 0) & (highest > 0)
    if open_.any():
        # A value that a sample lacks must not limit where its line may lie.
        present = np.where(some[open_], gaps, 0.0)
        chances[open_] = _chance_below_zero(present, many[open_], lowest[open_], highest[open_])
    return chances


def _chance_below_zero(gaps: Floats, counts: Floats, lowest: Floats, highest: Floats) -> Floats:
    """Return the chance that each sample's sum of gaps times Gamma(count) variables is negative."""
    at = _saddle_points(gaps, counts, 1 / lowest, 1 / highest)
    width = np.sqrt((counts * (gaps / (1 - at[:, np.newaxis] * gaps)) ** 2).sum(axis=1))
    near = np.abs(at) * width < NEAREST_POLE
    at = np.where(near, np.maximum(-NEAREST_POLE / width, NEAREST_POLE / lowest), at)
    tilted = gaps / (1 - at[:, np.newaxis] * gaps)
    height = -(counts * np.log1p(-at[:, np.newaxis] * gaps)).sum(axis=1)
    # A single large gap falls off slowly and many small gaps late: steps that grow geometrically serve both.
    reach = np.arcsinh(12 * np.sqrt(counts.sum(axis=1)))[:, np.newaxis]
    steps = (np.arange(POINTS) + 0.5) / POINTS * reach
    along = np.sinh(steps) / width[:, np.newaxis]
    weight = np.cosh(steps) / width[:, np.newaxis] * reach / POINTS
    turned = along[:, :, np.newaxis] * tilted[:, np.newaxis, :]
    size = -0.5 * np.einsum("rpv,rv->rp", np.log1p(turned**2), counts)
    angle = np.einsum("rpv,rv->rp", np.arctan(turned), counts)
    integrand: Complexes = np.exp(size + height[:, np.newaxis] + 1j * angle) / (at[:, np.newaxis] + 1j * along)
    area = (integrand.real * weight).sum(axis=1) / math.pi
    chance: Floats = np.clip(np.where(at < 0, -area, 1 - area), 0.0, 1.0)
    return chance


def _saddle_points(gaps: Floats, counts: Floats, low: Floats, high: Floats) -> Floats:
    """Return where the derivative of the logarithm of the moment generating function is 0, by guarded Newton steps."""
    at = np.zeros(len(counts))
    for _ in range(NEWTON_STEPS):
        tilted = gaps / (1 - at[:, np.newaxis] * gaps)
        slope = (counts * tilted).sum(axis=1)
        low, high = np.where(slope < 0, at, low), np.where(slope < 0, high, at)
        step = at - slope / (counts * tilted**2).sum(axis=1)
        better = np.where((step > low) & (step < high), step, (low + high) / 2)
        if np.abs(better - at).max(initial=0.0) <= PRECISION * np.abs(at).max(initial=1.0):
            break
        at = better
    return at
