"""Start times of a schedule: cron expressions in a time zone. Pure: the time is an argument.

A change of the clocks neither drops nor doubles a night: a skipped time comes right after the gap, and a repeated time
comes once (docs/decisions/0013). Expressions with `*` in minute or hour follow real time instead.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

MAX_COUNTED = 100
"""Maximum number of missed starts that are counted. A schedule of every minute has half a million starts in a year."""
MAX_SHIFT = timedelta(hours=3)
"""More than any change of the clocks. Backwards, cronsim follows other rules for the hours around a change."""


class InvalidScheduleError(Exception):
    """An expression or a time zone cannot be parsed. The message says what to write instead."""


@dataclass(frozen=True)
class Due:
    """The last start that is due."""

    time: datetime
    """Time at which the start was due, in UTC."""
    missed: int
    """Earlier starts that have not been handled, at most `MAX_COUNTED`."""


@dataclass(frozen=True)
class Cron:
    """An expression in a time zone."""

    expression: str
    zone: ZoneInfo

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first start after a moment, in UTC; None if there is none within 50 years."""
        try:
            return next(CronSim(self.expression, moment.astimezone(self.zone))).astimezone(UTC)
        except StopIteration:
            return None

    def last_due(self, after: datetime, now: datetime) -> Due | None:
        """Return the last start in (after, now], or None."""
        try:
            # Search backwards from just after `now`, because `now` itself may be a start.
            rough = next(CronSim(self.expression, (now + timedelta(minutes=1)).astimezone(self.zone), reverse=True))
        except StopIteration:
            return None
        # The backward search may be off near a change of the clocks, so the last start is found by going forwards from
        # before it.
        last, moment = None, max(after, rough.astimezone(UTC) - MAX_SHIFT)
        while (moment_or_none := self.next_after(moment)) is not None and moment_or_none <= now:
            last = moment = moment_or_none
        return None if last is None else Due(last, self._count(after, last))

    def compute_day(self, moment: datetime) -> str:
        """Return the day of a moment in the time zone, YYYY-MM-DD."""
        return moment.astimezone(self.zone).strftime("%Y-%m-%d")

    def render_moment(self, moment: datetime) -> str:
        """Return a moment in the time zone, as people read it: `2026-03-29 03:00 CEST`."""
        return moment.astimezone(self.zone).strftime("%Y-%m-%d %H:%M %Z")

    def _count(self, after: datetime, before: datetime) -> int:
        count, moment = 0, self.next_after(after)
        while moment is not None and moment < before and count < MAX_COUNTED:
            count, moment = count + 1, self.next_after(moment)
        return count


def parse_cron(expression: str, time_zone: str) -> Cron:
    """Return an expression in a time zone.

    Raises:
        InvalidScheduleError: the expression or the time zone cannot be read.
    """
    try:
        zone = ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidScheduleError(
            f"timeZone {time_zone!r} is not in the IANA time zone database: write e.g. Europe/Berlin or Etc/UTC"
        ) from error
    try:
        CronSim(expression, datetime(2026, 1, 1, tzinfo=zone))
    except CronSimError as error:
        raise InvalidScheduleError(
            f"schedule {expression!r}: {error}: write minute, hour, day, month and weekday, e.g. 0 3 * * *"
        ) from error
    return Cron(expression, zone)
