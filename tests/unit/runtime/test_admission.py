"""The bounded queue."""

import pytest
from builders.judge.gateway import Time

from evalrun_runtime.admission import MAX_RETRY_SECONDS, MIN_RETRY_SECONDS, Admission, DrainingError, QueueFullError

MOST = 1000


def test_request_beyond_the_capacity_is_refused_with_a_retry_delay() -> None:
    admission = Admission(lambda: 2, Time().clock, max_bytes=MOST)
    first, second = admission.enter(), admission.enter()
    with pytest.raises(QueueFullError) as refused:
        admission.enter()
    assert MIN_RETRY_SECONDS <= refused.value.retry_after_seconds <= MAX_RETRY_SECONDS
    first.begin()
    with pytest.raises(QueueFullError):  # running still takes a place
        admission.enter()
    second.leave()
    admission.enter()
    assert (admission.inside, admission.waiting) == (2, 1)


def fill(admission: Admission, run: str) -> int:
    """Let in what may come in; gives how many."""
    number = 0
    while True:
        try:
            admission.enter(run)
        except QueueFullError:
            return number
        number += 1


def test_a_run_leaves_room_for_others_and_all_together_stay_within_the_capacity() -> None:
    admission = Admission(lambda: 1000, Time().clock, max_bytes=MOST)
    assert fill(admission, "big") == 800
    shares = [fill(admission, run) for run in ("b", "c", "d")]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] > 0
    assert admission.inside < 1000


def test_ticket_that_leaves_makes_room_once() -> None:
    admission = Admission(lambda: 5, Time().clock, max_bytes=MOST)
    tickets = [admission.enter("a") for _ in range(4)]
    with pytest.raises(QueueFullError):
        admission.enter("a")
    tickets[0].leave()
    tickets[0].leave()  # once is enough
    admission.enter("a")
    with pytest.raises(QueueFullError):
        admission.enter("a")


def test_large_requests_are_bounded_by_their_size_and_leave_room_for_other_runs() -> None:
    admission = Admission(lambda: 1000, Time().clock, max_bytes=MOST)
    tickets = [admission.enter("big", 400), admission.enter("big", 400)]
    for size in (1, 201):
        with pytest.raises(QueueFullError):
            admission.enter("big", size)
    admission.enter("small", 100)
    with pytest.raises(QueueFullError):  # more than is left
        admission.enter("another", 101)
    tickets[0].leave()
    admission.enter("another", 101)


def test_a_request_larger_than_all_that_may_be_here_is_let_in_alone() -> None:
    admission = Admission(lambda: 1000, Time().clock, max_bytes=MOST)
    small = admission.enter("a", 1)
    with pytest.raises(QueueFullError):
        admission.enter("a", MOST + 1)
    small.leave()
    large = admission.enter("a", MOST + 1)
    with pytest.raises(QueueFullError):
        admission.enter("b", 1)
    large.leave()
    admission.enter("b", 1)


def test_oldest_seconds_is_the_longest_current_wait() -> None:
    time = Time()
    admission = Admission(lambda: 9, time.clock, max_bytes=MOST)
    assert admission.oldest_seconds == 0.0
    first = admission.enter()
    time.now += 3
    second = admission.enter()
    time.now += 2
    assert admission.oldest_seconds == 5
    first.begin()
    first.begin()  # its second round
    assert (admission.oldest_seconds, first.queue_seconds) == (2, 5)
    second.leave()
    second.leave()
    assert (admission.waiting, admission.inside) == (0, 1)


def test_retry_delay_grows_with_the_time_per_request() -> None:
    waits = []
    for seconds in (0.001, 5.0):
        time = Time()
        admission = Admission(lambda: 1, time.clock, max_bytes=MOST)
        for _ in range(100):
            ticket = admission.enter()
            time.now += seconds
            ticket.leave()
        admission.enter()
        with pytest.raises(QueueFullError) as refused:
            admission.enter()
        waits.append(refused.value.retry_after_seconds)
    assert waits[0] < waits[1]


def test_draining_refuses_new_requests() -> None:
    admission = Admission(lambda: 9, Time().clock, max_bytes=MOST)
    ticket = admission.enter()
    admission.drain()
    with pytest.raises(DrainingError):
        admission.enter()
    ticket.leave()
    assert admission.inside == 0
