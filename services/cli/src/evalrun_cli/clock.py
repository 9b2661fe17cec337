"""The time that a command shows: seconds since it began, from a clock that never runs backwards."""

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds since the command began. The outputs contain the time of the run, which differs if the run was resumed."""


def stopwatch(now: Callable[[], float] = time.monotonic) -> Clock:
    """Return a clock of the seconds from this call on."""
    started = now()
    return lambda: now() - started
