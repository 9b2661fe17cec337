"""The time that a command shows: seconds since it began, from a clock that never runs backwards."""

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds since the command began. The run's own time stands in its outputs: it may have been resumed."""


def stopwatch(now: Callable[[], float] = time.monotonic) -> Clock:
    """Return a clock of the seconds from this call on."""
    started = now()
    return lambda: now() - started
