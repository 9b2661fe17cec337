"""When a schedule is due: changes of the clocks, month ends, and starts that were missed."""

from datetime import UTC, datetime, timedelta

import pytest

from evalrun_operator.schedules.cron import MAX_COUNTED, InvalidScheduleError, parse_cron


def utc(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "zone", "after", "starts"),
    [
        ("30 2 * * *", "Etc/UTC", "2026-03-28 12:00", ["2026-03-29 02:30", "2026-03-30 02:30"]),
        # Spring: 02:30 does not exist; the night's start comes at 03:00, right after the gap.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28 12:00", ["2026-03-29 01:00", "2026-03-30 00:30"]),
        ("30 2 * * *", "America/New_York", "2026-03-07 12:00", ["2026-03-08 07:00", "2026-03-09 06:30"]),
        # Autumn: 02:30 comes twice, the start once.
        ("30 2 * * *", "Europe/Berlin", "2026-10-24 12:00", ["2026-10-25 00:30", "2026-10-26 01:30"]),
        ("30 1 * * *", "America/New_York", "2026-10-31 12:00", ["2026-11-01 05:30", "2026-11-02 06:30"]),
        # Half an hour, in the south.
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03 00:00", ["2026-10-03 15:30", "2026-10-04 15:15"]),
        # Every hour and every half hour follow real time through both.
        ("0 * * * *", "Europe/Berlin", "2026-03-29 00:30", ["2026-03-29 01:00", "2026-03-29 02:00"]),
        ("*/30 * * * *", "Europe/Berlin", "2026-10-25 00:15", [f"2026-10-25 0{h}:{m}" for h, m in
                                                              ((0, 30), (1, "00"), (1, 30), (2, "00"))]),
        # Month ends.
        ("0 3 31 * *", "Etc/UTC", "2026-01-31 04:00", ["2026-03-31 03:00", "2026-05-31 03:00"]),
        ("0 3 L * *", "Etc/UTC", "2026-01-31 04:00", ["2026-02-28 03:00", "2026-03-31 03:00"]),
        ("0 3 29 2 *", "Etc/UTC", "2026-01-01 00:00", ["2028-02-29 03:00", "2032-02-29 03:00"]),
        # Names, lists, weekdays.
        ("0 3 * * MON-FRI", "Etc/UTC", "2026-07-03 04:00", ["2026-07-06 03:00", "2026-07-07 03:00"]),
        ("0 3,15 1 JAN *", "Etc/UTC", "2026-06-01 00:00", ["2027-01-01 03:00", "2027-01-01 15:00"]),
    ],
)  # fmt: skip
def test_starts_follow_the_clock_of_the_zone(expression: str, zone: str, after: str, starts: list[str]) -> None:
    cron, moment = parse_cron(expression, zone), utc(after)
    for expected in starts:
        following = cron.next_after(moment)
        assert following == utc(expected)
        assert following is not None
        moment = following


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])
@pytest.mark.parametrize("expression", ["30 2 * * *", "0 3 * * *", "15 1 * * *", "59 23 * * *"])
def test_each_night_of_a_year_has_one_start(expression: str, zone: str) -> None:
    cron, moment = parse_cron(expression, zone), utc("2026-01-01 00:00")
    days: list[str] = []
    while (following := cron.next_after(moment)) is not None and len(days) < 365:
        days.append(cron.compute_day(following))
        moment = following
    assert len(set(days)) == 365


@pytest.mark.parametrize(
    ("expression", "zone", "after", "now", "due", "missed"),
    [
        ("0 3 * * *", "Etc/UTC", "2026-05-01 03:00", "2026-05-02 02:59", None, 0),
        ("0 3 * * *", "Etc/UTC", "2026-05-01 03:00", "2026-05-02 03:00", "2026-05-02 03:00", 0),
        ("0 3 * * *", "Etc/UTC", "2026-05-01 03:00", "2026-05-02 09:00", "2026-05-02 03:00", 0),
        ("0 3 * * *", "Etc/UTC", "2026-05-01 03:00", "2026-05-05 02:00", "2026-05-04 03:00", 2),
        ("* * * * *", "Etc/UTC", "2025-05-01 03:00", "2026-05-05 02:00", "2026-05-05 02:00", MAX_COUNTED),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24 00:30", "2026-10-25 00:29", None, 0),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24 00:30", "2026-10-25 00:31", "2026-10-25 00:30", 0),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25 00:30", "2026-10-25 01:31", None, 0),  # 02:30 for a second time
        ("30 2 * * *", "Europe/Berlin", "2026-03-28 01:30", "2026-03-29 00:59", None, 0),
        ("30 2 * * *", "Europe/Berlin", "2026-03-28 01:30", "2026-03-29 01:10", "2026-03-29 01:00", 0),
        ("0 3 29 2 *", "Etc/UTC", "2026-01-01 00:00", "2026-12-31 00:00", None, 0),
    ],
)
def test_the_last_start_is_due_and_earlier_ones_are_counted(
    expression: str, zone: str, after: str, now: str, due: str | None, missed: int
) -> None:
    found = parse_cron(expression, zone).last_due(utc(after), utc(now))
    assert (found and found.time, found.missed if found else 0) == (due and utc(due), missed)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_looking_every_ten_minutes_meets_the_same_starts_as_looking_ahead(zone: str) -> None:
    for month, day in ((3, 7), (3, 28), (10, 24), (10, 31)):
        cron = parse_cron("30 2 * * *", zone)
        begin = datetime(2026, month, day, tzinfo=UTC)
        ahead, moment = [], begin
        while (following := cron.next_after(moment)) is not None and following <= begin + timedelta(days=3):
            ahead.append(following)
            moment = following
        met, handled = [], begin
        for step in range(3 * 144 + 1):
            found = cron.last_due(handled, begin + timedelta(minutes=10 * step))
            if found is not None:
                assert found.missed == 0
                met.append(found.time)
                handled = found.time
        assert met == ahead


@pytest.mark.parametrize(
    ("expression", "zone", "says"),
    [
        ("61 3 * * *", "Etc/UTC", "Bad minute"),
        ("0 3 30 2 *", "Etc/UTC", "Bad day-of-month"),
        ("0 3 * *", "Etc/UTC", "e.g. 0 3 \\* \\* \\*"),
        ("0 3 * * *", "Europe/Atlantis", "write e.g. Europe/Berlin"),
        ("0 3 * * *", "../etc/passwd", "write e.g. Europe/Berlin"),
    ],
)
def test_invalid_expression_or_zone_is_refused_with_an_example(expression: str, zone: str, says: str) -> None:
    with pytest.raises(InvalidScheduleError, match=says):
        parse_cron(expression, zone)


def test_times_are_shown_in_the_zone() -> None:
    cron = parse_cron("0 3 * * *", "Europe/Berlin")
    assert cron.render_moment(utc("2026-03-29 01:00")) == "2026-03-29 03:00 CEST"
    assert cron.compute_day(utc("2026-03-28 23:30")) == "2026-03-29"
