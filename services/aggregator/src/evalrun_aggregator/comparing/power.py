"""What a comparison of so many problems could have shown. Pure."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from evalrun_aggregator.intervals import Floats

POWER: Final = 0.8
FEWEST_FLIPS: Final = 6
"""With fewer problems that differ, all the same way, McNemar's test cannot reach p < 0.05: 2 / 2^5 is 0.0625."""


@dataclass(frozen=True, slots=True)
class PowerNote:
    """How small a difference these problems could show."""

    problems: int
    smallest_difference: float | None
    """A true difference of this size would be seen (95 % interval without 0) in 80 % of such comparisons; None where
    too few problems differ to say."""
    problems_needed: int | None
    """So that a true difference as large as the one measured would be; None where none was measured."""


def power_note(differences: Floats, confidence: float = 0.95) -> PowerNote:
    """Say what paired differences of this spread could have shown.

    The usual formula of a paired comparison, (z_(1+confidence)/2 + z_power) * s / sqrt(n), with s the standard
    deviation of the differences over problems (Miller 2024, "Adding Error Bars to Evals", arXiv:2411.00640, section 5).

    Args:
        differences: one a problem.
        confidence: of the two-sided interval.
    """
    count = len(differences)
    spread = float(np.std(differences, ddof=1)) if count > 1 else 0.0
    if spread == 0 or np.count_nonzero(differences) < 2:
        return PowerNote(count, None, None)
    normal = NormalDist()
    reach = (normal.inv_cdf((1 + confidence) / 2) + normal.inv_cdf(POWER)) * spread
    measured = abs(float(differences.mean()))
    needed = math.ceil((reach / measured) ** 2) if measured > 0 else None
    return PowerNote(count, reach / math.sqrt(count), needed)
