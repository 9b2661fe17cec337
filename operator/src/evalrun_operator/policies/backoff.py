"""How long to wait before a failed attempt is followed by another."""

from datetime import timedelta


def backoff(failures: int, first: float, longest: float) -> timedelta:
    """Give the wait after so many failures, at least one: it doubles with each.

    Args:
        failures: attempts that failed so far.
        first: seconds after the first.
        longest: most seconds.
    """
    return timedelta(seconds=min(longest, first * 2.0 ** min(failures - 1, 30)))
