"""How a compiler that was killed or starved is told from one that used up its time."""

import pytest

from evalrun_executor.compile_stage import is_starved
from evalrun_executor.contained.compiler import CPU_SECONDS, WALL_SECONDS, is_held_up, is_out_of_time
from evalrun_executor.contained.frames import NOT_STOPPED, STOPPED_OTHER, STOPPED_OUTPUT, STOPPED_TIME

FULL = float(CPU_SECONDS)


@pytest.mark.parametrize(
    ("killed", "driver_seconds", "all_seconds", "expected"),
    [
        (False, 1.0, 1.0, False),
        (False, FULL, FULL, True),
        (True, 1.0, 1.0, False),
        (True, 0.1, FULL + 1, True),  # Go's compiler ignores SIGXCPU, and its driver is killed with it
        (False, 0.1, FULL + 1, False),  # several stages at once, none of which took too long
    ],
)
def test_is_out_of_time_distinguishes_an_expired_limit_from_a_kill(
    killed: bool, driver_seconds: float, all_seconds: float, expected: bool
) -> None:
    assert is_out_of_time(killed, driver_seconds, all_seconds, CPU_SECONDS) is expected


@pytest.mark.parametrize(
    ("stopped", "all_seconds", "expected"),
    [
        (STOPPED_TIME, 0.0, True),
        (STOPPED_TIME, FULL - 1, True),
        (STOPPED_TIME, FULL, False),  # by its stages: they used the time, whatever they waited for
        (NOT_STOPPED, 1.0, False),
        (STOPPED_OUTPUT, 1.0, False),
        (STOPPED_OTHER, 1.0, False),
    ],
)
def test_is_held_up_is_true_only_below_the_cpu_limit(stopped: int, all_seconds: float, expected: bool) -> None:
    assert is_held_up(stopped, all_seconds, CPU_SECONDS) is expected


@pytest.mark.parametrize(
    ("queued_seconds", "expected"),
    [
        (0.0, False),  # it slept, or this machine does not tell
        (FULL - 1, False),  # what stages below the limit can make each other wait: it slept the rest
        (WALL_SECONDS - FULL, False),
        (WALL_SECONDS - FULL + 1, True),
        (WALL_SECONDS - 1.0, True),
    ],
)
def test_is_starved_only_where_waits_leave_less_than_the_cpu_limit(queued_seconds: float, expected: bool) -> None:
    assert is_starved(queued_seconds, CPU_SECONDS) is expected
