from evalrun_aggregator.finish.output_retry import OutputRetry


def test_pauses_double_up_to_a_minute_and_end_after_the_time_allowed() -> None:
    now, pauses = [100.0], list[float]()

    def pause(seconds: float) -> bool:
        pauses.append(seconds)
        now[0] += seconds
        return False

    retry = OutputRetry(300, lambda: now[0], pause)
    assert retry.trouble == ""
    while retry.wait("s3://bucket/x: the store is full"):
        pass
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert "s3://bucket/x: the store is full; tried again for up to 1 minutes" in retry.trouble


def test_stopped_process_does_not_retry() -> None:
    retry = OutputRetry(300, lambda: 0.0)
    retry.stop()
    assert not retry.wait("full")


def test_retry_time_of_zero_allows_no_second_attempt() -> None:
    assert not OutputRetry(0, lambda: 0.0).wait("full")
