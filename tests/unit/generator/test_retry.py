import json
import random
from datetime import UTC, datetime

import pytest

from evalrun_generator.endpoints.retry import (
    Backoff,
    Blame,
    RetryAction,
    classify_broken_off,
    error_message,
    from_status,
    retry_after,
    unreachable,
)

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def openai_error(message: str, **fields: object) -> bytes:
    return json.dumps({"error": {"message": message, **fields}}).encode()


@pytest.mark.parametrize(
    ("status", "body", "action", "blame", "counted"),
    [
        (500, b"boom", RetryAction.RETRY, Blame.SUSPECT, True),
        (502, b"<html>", RetryAction.RETRY, Blame.SUSPECT, True),
        (504, b"", RetryAction.RETRY, Blame.SUSPECT, True),
        (503, b"", RetryAction.RETRY, Blame.BUSY, False),
        (429, openai_error("slow down"), RetryAction.RETRY, Blame.BUSY, False),
        (408, b"", RetryAction.RETRY, Blame.NONE, True),
        (425, b"", RetryAction.RETRY, Blame.NONE, True),
        (400, openai_error("maximum context length is 4096"), RetryAction.REJECT, Blame.NONE, True),
        (413, b"", RetryAction.REJECT, Blame.NONE, True),
        (422, b"", RetryAction.REJECT, Blame.NONE, True),
        (401, openai_error("no key"), RetryAction.ABORT, Blame.NONE, True),
        (403, b"", RetryAction.ABORT, Blame.NONE, True),
        (302, b"", RetryAction.ABORT, Blame.NONE, True),
        (405, b"", RetryAction.ABORT, Blame.NONE, True),
        # vLLM, OpenAI, older vLLM, and a path that nobody serves
        (
            404,
            openai_error("The model `x` does not exist.", param="model", code=404),
            RetryAction.ABORT,
            Blame.NONE,
            True,
        ),
        (404, openai_error("gone", code="model_not_found"), RetryAction.ABORT, Blame.NONE, True),
        (404, b'{"object":"error","message":"The model `x` does not exist."}', RetryAction.ABORT, Blame.NONE, True),
        (404, b'{"detail":"Not Found"}', RetryAction.ABORT, Blame.NONE, True),
        # one prompt of a recording
        (404, openai_error("no completion is recorded for problem p"), RetryAction.REJECT, Blame.NONE, True),
    ],
)  # fmt: skip
def test_http_status_decides_action_and_blame(
    status: int, body: bytes, action: RetryAction, blame: Blame, counted: bool
) -> None:
    failure = from_status(status, {}, body, NOW)
    assert (failure.action, failure.blame, failure.counted) == (action, blame, counted)
    assert f"HTTP {status}" in failure.reason


def test_failure_before_a_server_worked_on_the_request_is_not_counted() -> None:
    assert not unreachable("refused").counted
    assert classify_broken_off("dropped").counted


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("3", 3.0),
        ("0.25", 0.25),
        ("-4", 0.0),
        ("86400", 600.0),
        ("nan", None),
        ("soon", None),
        ("Thu, 01 Jan 2026 12:00:20 GMT", 20.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
    ],
)
def test_retry_after_reads_seconds_and_dates_within_bounds(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, NOW) == seconds


def test_retry_after_reaches_the_failure() -> None:
    assert from_status(429, {"Retry-After": "7"}, b"", NOW).retry_after == 7.0


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (openai_error("a\nb"), "a b"),
        (b'{"error": "as a text"}', "as a text"),
        (b"plain\n text", "plain text"),
        (b"", "(empty body)"),
        (b"[1]", "[1]"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (rb'{"error": {"message": "cut in half: \ud83d"}}', "cut in half: \ufffd"),  # a report could not hold it
    ],
)
def test_error_messages_are_one_line(body: bytes, line: str) -> None:
    assert error_message(body) == line


def test_long_messages_are_cut() -> None:
    assert len(error_message(b"x" * 10_000)) == 300


def test_backoff_doubles_within_its_bounds() -> None:
    backoff = Backoff(first=0.1, max_wait=3.0)
    rng = random.Random(1)
    for attempt, full in [(1, 0.1), (2, 0.2), (3, 0.4), (5, 1.6), (6, 3.0), (5000, 3.0)]:
        delays = [backoff.delay(attempt, rng) for _ in range(200)]
        assert full / 2 <= min(delays)
        assert max(delays) <= full
        assert max(delays) - min(delays) > full / 4
