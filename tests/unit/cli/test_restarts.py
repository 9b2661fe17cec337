"""When a child process is started again, and when it is given up."""

import pytest

from evalrun_cli.local.processes import Restarts


@pytest.mark.parametrize(
    ("ended_at", "now", "delay"),
    [
        ([100.0], 100.0, 0.1),
        ([99.0, 100.0], 100.0, 0.2),
        ([96.0, 97.0, 98.0, 99.0, 100.0], 100.0, 1.6),
        ([95.0, 96.0, 97.0, 98.0, 99.0, 100.0], 100.0, None),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 100.0], 100.0, 0.1),
    ],
    ids=["first end", "doubles", "the last start allowed", "too many in the window", "long ago does not count"],
)
def test_restart_delay_doubles_and_ends_after_too_many_restarts_in_the_window(
    ended_at: list[float], now: float, delay: float | None
) -> None:
    assert Restarts(limit=5, window_seconds=60.0, first_delay_seconds=0.1).delay(ended_at, now) == delay
