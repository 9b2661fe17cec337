"""When a run has taken too long."""

from datetime import datetime, timedelta


def deadline(started_at: datetime, resumed_at: datetime | None, seconds: int | None) -> datetime | None:
    """Give when a run that is not suspended is over; None where it has no deadline.

    As with a Job, resuming starts the clock anew: a run is not failed for the time that it was told to wait.
    """
    if seconds is None:
        return None
    return max(started_at, resumed_at or started_at) + timedelta(seconds=seconds)
