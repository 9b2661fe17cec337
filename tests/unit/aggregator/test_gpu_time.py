"""How reports of replicas become GPU seconds."""

from collections.abc import Sequence

import pytest

from evalrun_aggregator.gpu_time import held_seconds, merge_seconds
from evalrun_proto.ledger.v1 import ledger_pb2


def replica(name: str, gpus: int, started: float, released: float = 0.0) -> ledger_pb2.Replica:
    return ledger_pb2.Replica(name=name, gpus=gpus, started_at=started, released_at=released)


@pytest.mark.parametrize(
    ("replicas", "beside", "reported_at", "total"),
    [
        ([], 0, 100, 0),
        ([], 42, 100, 42),
        ([replica("a", 2, 40)], 0, 100, 120),  # still held: up to the report
        ([replica("a", 2, 40, 70)], 0, 100, 60),  # released: up to then
        ([replica("a", 2, 40, 70), replica("b", 1, 90)], 5, 100, 75),
        ([replica("a", 0, 40)], 0, 100, 0),  # an endpoint that is not ours
        ([replica("a", 2, 0)], 0, 100, 0),  # it waits for its GPUs
        ([replica("a", 2, 140)], 0, 100, 0),  # a clock that went back costs nothing
        ([replica("a", 2, 40), replica("a", 2, 90)], 0, 100, 140),  # replaced under its name: two starts
    ],
)
def test_a_report_counts_from_start_to_release(
    replicas: Sequence[ledger_pb2.Replica], beside: float, reported_at: float, total: float
) -> None:
    assert sum(held_seconds("w", replicas, beside, reported_at).values()) == pytest.approx(total)


def test_gpu_seconds_of_a_restarted_worker_add_to_those_of_its_earlier_replicas() -> None:
    known: dict[str, float] = {}
    for replicas, reported_at in (
        ([replica("a", 2, 10)], 20.0),  # 20
        ([replica("a", 2, 10)], 30.0),  # 40, then it dies
        ([replica("a", 2, 50)], 55.0),  # 10
        ([replica("a", 2, 50, 60)], 65.0),  # 20
        ([replica("a", 2, 50)], 58.0),  # a report that was overtaken
    ):
        known = merge_seconds(known, held_seconds("w", replicas, 0.0, reported_at))
    assert sum(known.values()) == pytest.approx(60)


def test_gpu_seconds_of_equal_replica_names_of_two_workers_add_up() -> None:
    first, second = (held_seconds(worker, [replica("a", 1, 10)], 0.0, 20.0) for worker in ("v", "w"))
    assert sum(merge_seconds(first, second).values()) == pytest.approx(20)
