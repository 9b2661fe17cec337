"""How a compiler that was killed is told from one that used up its time."""

import pytest

from evalrun_executor.contained.compiler import CPU_SECONDS, is_out_of_time

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
def test_time_is_told_from_a_kill(killed: bool, driver_seconds: float, all_seconds: float, expected: bool) -> None:
    assert is_out_of_time(killed, driver_seconds, all_seconds) is expected
