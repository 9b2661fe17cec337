"""The share of their time that replicas waited."""

import pytest

from evalrun_aggregator.turns.idleness import PAUSE_SECONDS, idle_share

T = 1_000_000.0


@pytest.mark.parametrize(
    ("requests", "busy", "idle"),
    [
        ([], 0.0, 0.0),
        ([("a", T, 10.0)], 10.0, 0.0),
        ([("a", T, 10.0), ("a", T + 5, 10.0)], 15.0, 0.0),  # two at once
        ([("a", T, 10.0), ("a", T + 2, 3.0), ("a", T + 12, 8.0)], 18.0, 2.0),  # one within another, then a wait
        ([("a", T, 10.0), ("b", T + 1, 4.0), ("a", T + 15, 5.0)], 19.0, 5.0),  # each replica by itself
        ([("a", T, 10.0), ("a", T + 10 + PAUSE_SECONDS + 1, 10.0)], 20.0, 0.0),  # suspended meanwhile
        ([("", T, 10.0), ("a", 0.0, 10.0)], 0.0, 0.0),  # made elsewhere
    ],
)
def test_waits_count_between_the_requests_of_a_replica(
    requests: list[tuple[str, float, float]], busy: float, idle: float
) -> None:
    found = idle_share(requests)
    assert (found["busy_seconds"], found["idle_seconds"]) == (busy, idle)
    assert found["idle_share"] == (idle / (busy + idle) if busy else None)
