"""Deadlines of runs."""

from collections.abc import Iterable
from datetime import datetime, timedelta


def deadline(started_at: datetime, resumed_at: Iterable[datetime], seconds: int | None) -> datetime | None:
    """Return the deadline of a run that is not suspended; None if it has no deadline.

    As with a Job, resuming restarts the clock: a run does not fail because of time that it spent suspended or in a
    queue.
    """
    if seconds is None:
        return None
    return max([started_at, *resumed_at]) + timedelta(seconds=seconds)
