"""Pace, estimated end and open requests of a run."""

import pytest

from evalrun_cli.local.pace import OpenRequests, Pace, PaceMeter, duration
from evalrun_proto.ledger.v1 import ledger_pb2


def status(decided: int, tokens: int = 0, total: int = 100) -> ledger_pb2.GetStatusResponse:
    dataset = ledger_pb2.DatasetStatus(name="demo", total=total, generated=decided, judged=decided)
    return ledger_pb2.GetStatusResponse(output_tokens=tokens, datasets=[dataset])


def test_pace_is_that_of_the_last_minute() -> None:
    meter = PaceMeter()
    assert meter.read(status(0), 0.0) == Pace()
    assert meter.read(status(2, 100), 2.0) == Pace(50.0)
    assert meter.read(status(10, 1000), 10.0) == Pace(100.0, 90.0)
    for second in range(20, 130, 10):
        last = meter.read(status(10 + (second - 10) // 10, 1000 + 2 * second), float(second))
    assert last.tokens_per_second == pytest.approx(2.0)
    assert last.seconds_left == pytest.approx(790.0)
    assert meter.read(status(100, 2000), 130.0).seconds_left is None


def test_estimate_is_stable_between_bursts_and_grows_without_answers() -> None:
    """Twelve answers a minute, four at a time every 20 s."""
    meter = PaceMeter()
    estimates = {}
    for second in range(0, 401, 2):
        decided = 4 * (second // 20)
        pace = meter.read(status(decided, total=1080), float(second))
        if pace.seconds_left is not None:
            estimates[second] = pace.seconds_left / (1080 - decided)
    assert min(estimates) == 40  # when eight have come
    assert {seconds for second, seconds in estimates.items() if second >= 200} == {5.0}
    stalled = meter.read(status(80, total=1080), 1000.0).seconds_left
    assert stalled is not None
    assert stalled > 3 * 5000


def test_estimate_after_a_requeue_uses_only_later_answers() -> None:
    """Ten answers per second, 5,000 of which are requeued at 600 s."""
    meter = PaceMeter()
    for second in range(0, 601, 2):
        meter.read(status(10 * second, total=10_000), float(second))
    for second in range(602, 662, 2):
        pace = meter.read(status(10 * second - 5000, total=10_000), float(second))
    assert pace.seconds_left == pytest.approx((15_000 - 6600) / 10, rel=0.05)


def test_open_requests_name_the_oldest_and_its_limit() -> None:
    replicas = [
        ledger_pb2.Replica(in_flight=3, oldest_request_at=1000.0, oldest_request_limit_seconds=410.0),
        ledger_pb2.Replica(in_flight=9, oldest_request_at=1030.0, oldest_request_limit_seconds=60.0),
    ]
    found = OpenRequests.from_status(ledger_pb2.GetStatusResponse(replicas=replicas), 1045.0)
    assert found.text() == "12 requests open, the oldest 45 of 410 s"
    of_rollout = ledger_pb2.GetStatusResponse(replicas=[ledger_pb2.Replica(in_flight=1)])
    assert OpenRequests.from_status(of_rollout, 1.0).text() == "1 request open"
    assert OpenRequests.from_status(ledger_pb2.GetStatusResponse(), 1.0).text() == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(40.4, "40 s"), (89.0, "89 s"), (700.0, "12 min"), (11_100.0, "3 h 5 min")]
)
def test_durations_are_rounded_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text
