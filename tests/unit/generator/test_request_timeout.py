"""Time limits that follow what servers have shown."""

import pytest

from evalrun_generator.endpoints.request_timeout import LEARNT_ANSWERS, RequestTimeout


def limit_after(answers: int, seconds: float, tokens: int | None, *, timeouts: int = 0) -> float:
    timeout = RequestTimeout(lambda max_tokens: max(120.0, 0.2 * max_tokens))
    for _ in range(answers):
        timeout.note_answer(seconds, tokens)
    return timeout.limit(2048, timeouts)


@pytest.mark.parametrize(
    ("answers", "seconds", "tokens", "timeouts", "limit"),
    [
        (0, 0.0, None, 0, 409.6),
        (LEARNT_ANSWERS - 1, 2.0, 200, 0, 409.6),
        (LEARNT_ANSWERS, 2.0, 200, 0, 5 * 20.48),
        (LEARNT_ANSWERS, 0.1, 200, 0, 60.0),
        (LEARNT_ANSWERS, 30.0, None, 0, 150.0),
        (LEARNT_ANSWERS, 100.0, 200, 0, 409.6),
        (0, 0.0, None, 1, 819.2),
        (0, 0.0, None, 2, 1638.4),
        (0, 0.0, None, 7, 1638.4),
    ],
)
def test_limit_falls_with_fast_answers_and_grows_with_timeouts(
    answers: int, seconds: float, tokens: int | None, timeouts: int, limit: float
) -> None:
    assert limit_after(answers, seconds, tokens, timeouts=timeouts) == pytest.approx(limit)
