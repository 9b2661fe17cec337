"""One table a policy."""

from datetime import UTC, datetime, timedelta

import pytest

from evalrun_operator.policies.deadline import deadline

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("resumed_after", "seconds", "ends_after"),
    [(None, None, None), (None, 60, 60), (100, 60, 160), (-100, 60, 60), (100, None, None)],
)
def test_the_deadline_counts_from_the_start_or_from_resuming(
    resumed_after: float | None, seconds: int | None, ends_after: float | None
) -> None:
    resumed = [] if resumed_after is None else [NOON + timedelta(seconds=resumed_after)]
    expected = None if ends_after is None else NOON + timedelta(seconds=ends_after)
    assert deadline(NOON, resumed, seconds) == expected
