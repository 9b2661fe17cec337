import pytest

from evalrun_runtime.backoff import backoff_seconds


@pytest.mark.parametrize(
    ("failures", "longest", "seconds"),
    [(1, 60, 0.5), (2, 60, 1.0), (3, 60, 2.0), (7, 60, 32), (8, 60, 60), (10**6, 60, 60)],
)
def test_each_failure_doubles_the_wait_up_to_the_longest(failures: int, longest: float, seconds: float) -> None:
    assert backoff_seconds(failures, 0.5, longest) == seconds


def test_backoff_without_a_maximum_stays_finite() -> None:
    assert backoff_seconds(10**6, 1.0) == 2.0**60
