from collections.abc import Mapping
from pathlib import Path

import pytest

from evalrun_executor.run_queues import QueuedTime, RunQueues, compute_growth


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({}, {}, 0.0),
        ({}, {7: 2.0}, 2.0),
        ({7: 2.0}, {7: 5.0}, 3.0),
        ({7: 2.0}, {7: 5.0, 8: 1.0}, 3.0),  # at the same time: not their sum
        ({7: 2.0}, {8: 1.0}, 1.0),  # the next stage, after the first one's end
        ({7: 2.0}, {}, 0.0),
    ],
)
def test_compute_growth_is_that_of_the_thread_that_waited_most(
    before: Mapping[int, float], now: Mapping[int, float], expected: float
) -> None:
    assert compute_growth(before, now) == expected


def write_thread(proc: Path, pid: int, thread: int, schedstat: str | None, children: str = "") -> None:
    place = proc / str(pid) / "task" / str(thread)
    place.mkdir(parents=True, exist_ok=True)
    (place / "children").write_text(children)
    if schedstat is not None:
        (place / "schedstat").write_text(schedstat)


def test_read_waits_reads_all_threads_of_a_process_and_its_descendants(tmp_path: Path) -> None:
    write_thread(tmp_path, 10, 10, "5000000000 250000000 9\n")
    write_thread(tmp_path, 10, 11, "5000000000 1000000000 9\n", "20 30 ")
    write_thread(tmp_path, 20, 20, "1 4000000000 1\n")
    write_thread(tmp_path, 40, 40, "1 9000000000 1\n")
    assert RunQueues(tmp_path).read_waits(10) == {10: 0.25, 11: 1.0, 20: 4.0}


@pytest.mark.parametrize("schedstat", [None, "", "12\n"])
def test_read_waits_is_empty_without_schedstat(schedstat: str | None, tmp_path: Path) -> None:
    write_thread(tmp_path, 10, 10, schedstat)
    assert RunQueues(tmp_path).read_waits(10) == {}
    assert RunQueues(tmp_path / "absent").read_waits(10) == {}


def test_queued_time_adds_up_stages_one_after_the_other(tmp_path: Path) -> None:
    queued = QueuedTime(RunQueues(tmp_path), 10)
    for schedstat in ("0 1000000000 1", "0 3000000000 1", "0 3000000000 1"):
        write_thread(tmp_path, 10, 10, schedstat)
        queued.look()
    write_thread(tmp_path, 10, 10, "0 3000000000 1", "20")
    write_thread(tmp_path, 20, 20, "0 500000000 1")
    queued.look()
    assert queued.seconds == 3.5
