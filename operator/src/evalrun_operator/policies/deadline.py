"""Deadlines of runs."""

from collections.abc import Iterable
from datetime import datetime, timedelta


def deadline(started_at: datetime, resumed_at: Iterable[datetime], seconds: int | None) -> datetime | None:
    """Return when a run that is not suspended is over; None where it has no deadline.

    As with a Job, resuming restarts the clock: a run is not failed for the time that it was told to wait,
    or spent in a queue.
    """
    if seconds is None:
        return None
    return max([started_at, *resumed_at]) + timedelta(seconds=seconds)
