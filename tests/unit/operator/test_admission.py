"""Which runs may start: a table, and thirty at once on a cluster that holds three."""

from dataclasses import replace
from datetime import timedelta

import pytest
from builders.operator.world import START

from evalrun_operator.policies.admission import QueuedRun, QueuePosition, find_position


def run(
    number: int, *, active: bool = False, created: int | None = None, namespace: str = "evals", stalled: bool = False
) -> QueuedRun:
    seconds = number if created is None else created
    name = f"{namespace}/run-{number:02}"
    return QueuedRun(f"uid-{number}", START + timedelta(seconds=seconds), name, active, stalled)


@pytest.mark.parametrize(
    ("contenders", "asked", "max_active", "admitted", "place"),
    [
        ([run(1)], 1, 0, (), QueuePosition(0, 0)),  # no limit
        ([run(1)], 1, 1, (), QueuePosition(0, 0)),
        ([run(1, active=True), run(2)], 2, 1, (), QueuePosition(1, 1)),
        ([run(1, active=True), run(2)], 1, 1, (), QueuePosition(0, 1)),  # who is in, stays in
        ([run(1, active=True), run(2), run(3)], 3, 2, (), QueuePosition(1, 1)),  # the free place is the older one's
        ([run(1, active=True), run(3), run(2)], 2, 2, (), QueuePosition(0, 1)),
        ([run(2, active=True), run(1)], 1, 1, (), QueuePosition(1, 1)),  # an older one that came late drives nobody out
        ([run(1), run(2)], 2, 1, ("uid-1",), QueuePosition(1, 1)),  # admitted just now, before its status says so
        ([run(1), run(2)], 1, 1, ("uid-2",), QueuePosition(1, 1)),
        ([run(n, active=True) for n in (1, 2, 3)] + [run(4)], 4, 2, (), QueuePosition(1, 3)),  # the limit was lowered
        ([run(2, created=5), run(1, created=5)], 2, 1, (), QueuePosition(1, 0)),  # same second: by name
        ([run(1), run(2), run(3, namespace="b")], 3, 2, (), QueuePosition(0, 0)),  # each namespace has one first
        ([run(1), run(2), run(3, namespace="b")], 2, 2, (), QueuePosition(1, 0)),
        ([run(1, active=True), run(2), run(3, namespace="b")], 3, 2, (), QueuePosition(0, 1)),  # b has none yet
        ([run(1, active=True), run(2), run(3, namespace="b")], 2, 2, (), QueuePosition(1, 1)),
        ([run(1, stalled=True), run(2)], 2, 2, (), QueuePosition(0, 0)),  # a run that cannot start holds no place
        ([run(1, stalled=True), run(2), run(3, namespace="b")], 3, 1, (), QueuePosition(0, 0)),
        ([run(1, stalled=True), run(2)], 2, 1, (), QueuePosition(1, 0)),  # but its namespace has its share
    ],
)
def test_find_position_counts_the_runs_ahead(
    contenders: list[QueuedRun], asked: int, max_active: int, admitted: tuple[str, ...], place: QueuePosition
) -> None:
    assert find_position(f"uid-{asked}", contenders, max_active, admitted) == place


def test_thirty_runs_at_once_are_admitted_three_at_a_time_in_order() -> None:
    runs = {number: run(number) for number in range(30)}
    order: list[int] = []
    while runs:
        admitted = [n for n in runs if find_position(f"uid-{n}", runs.values(), 3).position == 0]
        assert len(admitted) == min(3, len(runs))
        runs |= {number: run(number, active=True) for number in admitted}
        order.append(min(admitted))
        del runs[min(admitted)]
    assert order == list(range(30))


def test_passes_that_overlap_admit_no_more_than_the_limit() -> None:
    runs = [run(number) for number in range(10)]
    admitted: set[str] = set()
    for one in reversed(runs):  # nobody's status is written yet
        if find_position(one.uid, runs, 3, admitted).position == 0:
            admitted.add(one.uid)
    assert admitted == {"uid-0", "uid-1", "uid-2"}


def test_place_of_a_run_among_hundreds_of_another_namespace_is_the_first() -> None:
    crowd = [run(number, namespace="crowd") for number in range(300)]
    alone = run(999, namespace="alone")
    contenders = [*(replace(one, active=True) for one in crowd[:4]), *crowd[4:], alone]
    assert find_position(alone.uid, contenders, 4) == QueuePosition(1, 4)
    assert find_position(crowd[4].uid, contenders, 4) == QueuePosition(2, 4)
