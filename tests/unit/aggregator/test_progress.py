"""In which state a run is."""

import pytest

from evalrun_aggregator.progress import Progress, may_write_outputs, run_state
from evalrun_aggregator.service import retry_milliseconds
from evalrun_proto.ledger.v1 import ledger_pb2


def progress(
    *, started: bool = True, remaining: int = 0, unjudged: int = 0, not_judged: int = 0, written: bool = False,
    failure: str | None = None, early: bool = False,
) -> Progress:  # fmt: skip
    return Progress(started, remaining, unjudged, not_judged, written, failure, early)


@pytest.mark.parametrize(
    ("given", "state", "may_write"),
    [
        (progress(started=False, remaining=5), ledger_pb2.RUN_STATE_PREPARING, False),
        (progress(remaining=5), ledger_pb2.RUN_STATE_GENERATING, False),
        (progress(remaining=1, unjudged=7, not_judged=1), ledger_pb2.RUN_STATE_GENERATING, False),
        (progress(unjudged=7, not_judged=1), ledger_pb2.RUN_STATE_JUDGING, False),
        (progress(not_judged=1), ledger_pb2.RUN_STATE_JUDGING, True),
        (progress(written=True), ledger_pb2.RUN_STATE_SUCCEEDED, False),
        (progress(not_judged=1, written=True), ledger_pb2.RUN_STATE_DEGRADED, False),
        (progress(remaining=5, unjudged=2, early=True), ledger_pb2.RUN_STATE_JUDGING, True),
        (progress(remaining=5, early=True, written=True), ledger_pb2.RUN_STATE_DEGRADED, False),
        (progress(remaining=5, early=True, failure="disk"), ledger_pb2.RUN_STATE_FAILED, False),
        (progress(failure="disk"), ledger_pb2.RUN_STATE_FAILED, False),
        (progress(remaining=3, unjudged=3, failure="disk"), ledger_pb2.RUN_STATE_FAILED, False),
    ],
)
def test_run_state_follows_from_the_counts_of_progress(given: Progress, state: int, may_write: bool) -> None:
    assert (run_state(given), may_write_outputs(given)) == (state, may_write)


@pytest.mark.parametrize(
    ("remaining", "taken", "may_follow", "milliseconds"),
    [
        (0, 0, 0, 0),  # nothing is left
        (5, 2, 0, 0),  # there is work
        (5, 0, 0, 500),  # others hold it
        (5, 0, 3, 50),  # a verdict may open more any moment
        (5, 2, 3, 0),
    ],
)
def test_a_worker_asks_again_sooner_where_a_verdict_may_open_a_turn(
    remaining: int, taken: int, may_follow: int, milliseconds: int
) -> None:
    assert retry_milliseconds(remaining, taken, may_follow) == milliseconds
