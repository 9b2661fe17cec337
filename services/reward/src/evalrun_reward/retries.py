"""Decides after a failure of the judge whether to ask again or to give up. Pure.

Judging is idempotent: asking again is harmless. A full queue is no failure of the sample and is never counted; the
request's deadline bounds everything.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from evalrun_client.failure_codes import FailureCode, to_failure_code
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_runtime.backoff import backoff_seconds

_REFUSED: Final = (FailureCode.INVALID_ARGUMENT, FailureCode.UNIMPLEMENTED)

FIRST_DELAY_SECONDS: Final = 0.1
MAX_DELAY_SECONDS: Final = 10.0
MIN_BUSY_SECONDS: Final = 0.05
PATIENCE_SECONDS: Final = 60.0
"""Seconds since a sample's first failure before which the sample is not given up: a gateway that restarts, or is rolled
out, is back within this time."""


class Cause(StrEnum):
    """Reason for asking the judge again; a metric's label."""

    BUSY = "busy"
    TESTS = "tests"
    """The gateway does not hold the tests that were named by digest."""
    FAILED = "failed"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Ask again after `delay` seconds."""

    cause: Cause
    delay: float = 0.0
    with_tests: bool = False


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No verdict will come."""

    reason: str
    invalid: bool = False
    """Whether the judge refuses the request itself."""


@dataclass(frozen=True, slots=True)
class History:
    """Failures of a sample until now, and the form of its last request."""

    failures: int
    """Failures of this sample, including the present one."""
    seconds: float
    """Seconds since the first failure."""
    sent_tests: bool
    """Whether the last request held the tests, instead of naming them by digest."""


def decide_after_failure(failure: judge_pb2.StreamFailure, history: History, attempts: int) -> RetryAfter | GiveUp:
    """Decide on a request without a verdict; after `attempts` failures and PATIENCE_SECONDS it is given up."""
    code = to_failure_code(failure)
    if code in _REFUSED:
        return GiveUp(failure.message, invalid=True)
    if code is FailureCode.NOT_FOUND and not history.sent_tests:
        return RetryAfter(Cause.TESTS, with_tests=True)
    if code is FailureCode.RESOURCE_EXHAUSTED:
        return RetryAfter(Cause.BUSY, max(MIN_BUSY_SECONDS, failure.retry_after_ms / 1000))
    if history.failures >= attempts and history.seconds >= PATIENCE_SECONDS:
        return GiveUp(f"the judge failed {history.failures} times: {failure.message}")
    return RetryAfter(Cause.FAILED, _delay(history.failures))


def decide_after_verdict(verdict: judge_pb2.Verdict, failures: int, attempts: int) -> RetryAfter | None:
    """Return when to judge again after a "not judged" verdict, or None if the verdict is final."""
    if verdict.judged or verdict.permanent or failures >= attempts:
        return None
    return RetryAfter(Cause.UNDECIDED, _delay(failures))


def _delay(failures: int) -> float:
    return backoff_seconds(failures, FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS)
