"""95 % intervals, with the number of problems from which each is reliable. Pure.

Proportions use Wilson's interval. Means and ratios over many problems use the percentile bootstrap. Over few problems,
means of shares use `plus_four`, and means of their differences `plus_two`. Percentiles use order statistics. Samples of
a problem are never taken apart: they are clustered, and Wilson's interval over 164 x 10 of them covers 53 %, not 95 %.
The bootstrap over few problems is as bad: with 10 samples of each and a mean of 0.05 it covers 41 to 74 % at 5 problems
(`tests/unit/results/metrics/test_coverage.py`).
"""

import math
from statistics import NormalDist
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Bounds: TypeAlias = tuple[float | None, float | None]

CONFIDENCE: Final = 0.95
DRAWS: Final = 10_000
MIN_PROBLEMS: Final = 30
"""Below it the percentile bootstrap is too narrow for any metric."""
MIN_ON_A_SIDE: Final = 10
"""The bootstrap of a share needs so many problems' worth of hits, and of misses; of a difference, so many that differ.
Simulated at a mean of 0.05: it covers 88 % at 50 problems (2.5 worth), 94 % at 164 (8 worth)."""
_CHUNK_CELLS: Final = 1 << 16
"""Problems x draws that are held at a time: 512 KiB an array. It stays in the processor's own cache, which took half
the time of 8 MiB (13,000 problems, 15 columns: 1.6 s of CPU against 3.4 s)."""


def wilson(successes: int, trials: int, confidence: float = CONFIDENCE) -> Bounds:
    """Return Wilson's score interval of a proportion (Wilson 1927); (None, None) without trials.

    Raises:
        ValueError: not 0 <= successes <= trials.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials")
    if trials == 0:
        return None, None
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / trials
    scale = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == trials else centre + half
    return low, high


def bootstrap_ratios(
    numerators: Floats,
    denominators: Floats,
    rng: np.random.Generator,
    draws: int = DRAWS,
    confidence: float = CONFIDENCE,
) -> list[Bounds]:
    """Return the percentile interval of each ratio sum(numerator) / sum(denominator).

    A mean over a subset of the problems is such a ratio, with an indicator as its denominator. All ratios share the
    draws. A resample with denominator 0 counts as infinite if its numerator is not 0 (nothing solved, at a cost), and
    is left out if both are 0. A bound that is infinite is None.

    Args:
        numerators, denominators: problems x ratios; denominators at least 0.
        rng: consumed by the draws only.
        draws: how many resamples.
        confidence: of the two-sided interval.
    """
    problems, ratios = numerators.shape
    if problems == 0 or ratios == 0:
        return [(None, None)] * ratios
    columns, places = _distinct_columns(np.hstack([numerators, denominators]))
    sums = np.empty((draws, columns.shape[1]))
    chunk = max(1, _CHUNK_CELLS // problems)
    for start in range(0, draws, chunk):
        rows = min(chunk, draws - start)
        picks = rng.integers(0, problems, size=(rows, problems))
        picks += np.arange(rows)[:, np.newaxis] * problems
        times_drawn = np.bincount(picks.ravel(), minlength=rows * problems).reshape(rows, problems)
        np.matmul(times_drawn.astype(np.float64), columns, out=sums[start : start + rows])
    bounds: list[Bounds] = []
    for ratio in range(ratios):
        above, below = sums[:, places[ratio]], sums[:, places[ratios + ratio]]
        outcomes = np.full(draws, np.inf)
        np.divide(above, below, out=outcomes, where=below > 0)
        bounds.append(_compute_bounds(outcomes[(below > 0) | (above > 0)], confidence))
    return bounds


def plus_four(values: Floats) -> tuple[float, float]:
    """Return the 95 % interval of the mean of values from 0 to 1, one per problem, for any number of problems.

    Agresti and Coull's "plus four" (1998), over problems: two more problems at 0 and two at 1 join the sample, and the
    usual interval of a mean follows. So the interval has a positive width even for a single problem, or a mean of 0 or
    1. The samples of a problem form a single value, because only the spread between problems counts.

    Raises:
        ValueError: there are no values, or a value is not between 0 and 1.
    """
    if len(values) == 0 or values.min() < 0 or values.max() > 1:
        raise ValueError("plus_four takes shares from 0 to 1, at least one")
    low, high = _normal_interval(np.append(values, [0.0, 0.0, 1.0, 1.0]), CONFIDENCE)
    return max(0.0, low), min(1.0, high)


def plus_two(differences: Floats, confidence: float = CONFIDENCE) -> Bounds:
    """Return the interval of the mean of paired differences from -1 to 1, one per problem, for any number of problems.

    Bonett and Price's interval (2012), over problems: one won and one lost problem join the sample. So runs that agree
    on every problem are not taken as equal for certain: what was not seen in n problems may still happen.

    Raises:
        ValueError: there are no differences, or a difference is not between -1 and 1.
    """
    if len(differences) == 0 or np.abs(differences).max() > 1:
        raise ValueError("plus_two takes differences from -1 to 1, at least one")
    low, high = _normal_interval(np.append(differences, [-1.0, 1.0]), confidence)
    return max(-1.0, low), min(1.0, high)


def _normal_interval(values: Floats, confidence: float) -> tuple[float, float]:
    mean = float(values.mean())
    half = NormalDist().inv_cdf((1 + confidence) / 2) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return mean - half, mean + half


def order_statistics(values: Floats, percentile: float, confidence: float = CONFIDENCE) -> Bounds:
    """Return the interval of a percentile between two of the sorted values (David & Nagaraja, section 7.1).

    The number of values below the true percentile is binomial for any distribution, so the interval holds for any n,
    without resampling. A bound is None if too few values lie on that side, e.g. above the 95th of 50.

    Args:
        values: one per problem.
        percentile: above 0 and below 100.
        confidence: of the two-sided interval.
    """
    count, share = len(values), percentile / 100
    if count == 0:
        return None, None
    steps = np.arange(1, count + 1)
    logarithms = np.cumsum(np.log((count + 1 - steps) / steps) + math.log(share / (1 - share)))
    chances = np.exp(np.append(0.0, logarithms) + count * math.log1p(-share))
    at_most = np.cumsum(chances)
    """Chance that at most k of them lie below the percentile."""
    tail = (1 - confidence) / 2
    # This counts the values of k that may be ruled out as too few.
    below = int(np.searchsorted(at_most, tail, side="right"))
    above = int(np.searchsorted(at_most, 1 - tail, side="left")) + 1
    ordered = np.sort(values)
    return (
        float(ordered[below - 1]) if below >= 1 else None,
        float(ordered[above - 1]) if above <= count else None,
    )


def _distinct_columns(matrix: Floats) -> tuple[Floats, list[int]]:
    """Return the columns once each (most ratios share a denominator), and where each column went."""
    seen: dict[bytes, int] = {}
    places = [seen.setdefault(column.tobytes(), len(seen)) for column in matrix.T]
    first = [places.index(place) for place in range(len(seen))]
    return np.ascontiguousarray(matrix[:, first]), places


def _compute_bounds(outcomes: Floats, confidence: float) -> Bounds:
    if len(outcomes) == 0:
        return None, None
    outcomes.sort()
    tail = (1 - confidence) / 2
    return _linear_quantile(outcomes, tail), _linear_quantile(outcomes, 1 - tail)


def _linear_quantile(ordered: Floats, share: float) -> float | None:
    """Return numpy's linear quantile, or None if it is infinite (numpy returns nan between two infinities)."""
    position = (len(ordered) - 1) * share
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    if np.isinf(ordered[above]):
        return None
    return float(ordered[below] + (position - below) * (ordered[above] - ordered[below]))
