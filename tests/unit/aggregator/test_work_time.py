"""How long a run was at work: waiting and suspension are not in it."""

from evalrun_aggregator.work_time import JUDGED_WITHIN_SECONDS, WorkTime


def test_requests_that_overlap_count_once_and_a_pause_counts_not_at_all() -> None:
    work = WorkTime()
    work.record_completion(1000.0, 10.0)
    work.record_completion(1005.0, 10.0)
    work.record_completion(90_000.0, 5.0)  # a day of suspension later
    assert work.generating_seconds == 20.0
    assert work.working_seconds == 20.0


def test_verdict_counts_a_bounded_time_before_its_arrival_as_work() -> None:
    work = WorkTime()
    work.record_completion(1000.0, 10.0)
    work.record_verdict(1012.0)
    assert (work.generating_seconds, work.working_seconds) == (10.0, 12.0)
    work.record_verdict(5000.0)
    assert work.working_seconds == 12.0 + JUDGED_WITHIN_SECONDS


def test_an_answer_that_was_made_elsewhere_took_no_time() -> None:
    work = WorkTime()
    work.record_completion(0.0, 0.0)
    assert (work.generating_seconds, work.working_seconds) == (0.0, 0.0)


def test_work_time_is_the_same_after_a_restart() -> None:
    first, second = WorkTime(), WorkTime()
    first.record_completion(1000.0, 2.0)
    first.record_verdict(1100.0)
    second.restore([(1000.0, 2.0)], [1100.0])
    assert (second.generating_seconds, second.working_seconds) == (first.generating_seconds, first.working_seconds)
