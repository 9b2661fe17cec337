"""Exponential backoff: how long to wait after failures in a row. Pure."""

import math

MAX_DOUBLINGS = 60
"""Bounds the power, which would overflow a float after 1,023."""


def backoff_seconds(failures: int, first: float, max_seconds: float = math.inf) -> float:
    """Return the seconds to wait after so many failures in a row: `first`, doubled for each further failure.

    Args:
        failures: in a row, at least 1.
        first: seconds after the first.
        max_seconds: maximum seconds.
    """
    return min(max_seconds, first * 2.0 ** min(failures - 1, MAX_DOUBLINGS))
