"""The machine's slowness: the median of a probe's samples beside the least of all."""

from collections.abc import Iterable, Iterator

import pytest

from evalrun_executor.machine import FRESH_SECONDS, Machine, work


def clock_of(samples: Iterable[float]) -> Iterator[float]:
    now = 0.0
    for sample in samples:
        yield now
        now += sample
        yield now


@pytest.mark.parametrize(
    ("probes", "slowness"),
    [
        ([[1] * 7], [1.0]),
        ([[1] * 7, [2] * 7], [1.0, 2.0]),
        ([[2] * 7, [1] * 7, [2] * 7], [1.0, 1.0, 2.0]),
        ([[2, 2, 2, 2, 2, 2, 1]], [2.0]),
        ([[1, 1, 1, 1, 9, 9, 9]], [1.0]),
    ],
)
def test_slowness_is_relative_to_the_best_probe_so_far(probes: list[list[float]], slowness: list[float]) -> None:
    machine = Machine(clock_of(sample for probe in probes for sample in probe).__next__, lambda: 0.0)
    assert [machine.probe() for _ in probes] == slowness


def test_recent_slowness_expires_after_its_time() -> None:
    now = 0.0
    machine = Machine(clock_of([1] * 7 + [3] * 7).__next__, lambda: now)
    assert machine.recent == 1.0
    machine.probe()
    machine.probe()
    assert machine.recent == 3.0
    now = FRESH_SECONDS
    assert machine.recent == 1.0


def test_probe_work_gives_the_same_result_each_time() -> None:
    assert work() == work() > 0
