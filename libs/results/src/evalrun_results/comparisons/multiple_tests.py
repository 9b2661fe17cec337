"""Tests of many differences at once: p-values, and Holm's correction that keeps the family-wise error. Pure."""

from collections.abc import Sequence
from typing import Final
from zlib import crc32

import numpy as np

from evalrun_results.comparisons.mcnemar import mcnemar_exact
from evalrun_results.metrics.accumulator import SEED
from evalrun_results.metrics.intervals import Floats

DRAWS: Final = 99_999
"""Number of random sign assignments: the smallest p-value is then 1 of 100,000."""
_DIGITS: Final = 9
"""Means of shares such as 1/3 differ by some 1e-16 by rounding: sizes that agree to this many digits are equal."""


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's step-down method (1979), in the order given.

    Calling differences real if their adjusted p is below 0.05 errs in at most 5 % of such families, however the tests
    depend on each other.
    """
    ordered = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(ordered):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def sign_flip_p(differences: Floats, *, seed: int = SEED) -> float:
    """Return the two-sided p-value of paired differences by the sign-flip permutation test.

    Under the null each problem's difference is as likely to have the other sign. If all differences other than 0 have
    the same size, as with one sample per problem, this is McNemar's exact test and computed as such. Otherwise the
    signs are drawn 99,999 times.

    Args:
        differences: one per problem.
        seed: of the draws.
    """
    rounded = np.round(differences, _DIGITS)
    sizes, counts = np.unique(np.abs(rounded[rounded != 0]), return_counts=True)
    if len(sizes) <= 1:
        return mcnemar_exact(int((rounded < 0).sum()), int((rounded > 0).sum()))
    rng = np.random.default_rng([seed, crc32(b"signs")])
    sums = np.zeros(DRAWS)
    # Signs of equal sizes sum to a binomial, which needs no matrix of signs.
    for size, count in zip(sizes, counts, strict=True):
        sums += size * (2.0 * rng.binomial(count, 0.5, DRAWS) - count)
    as_far = np.abs(sums) >= abs(float(rounded.sum())) - 10.0**-_DIGITS
    return float((1 + as_far.sum()) / (1 + DRAWS))
