"""Decides whether an item is judged again, from the judge's reply or its absence. Pure.

A verdict is stored. A failure of the judge is retried within bounds, then recorded as not judged with the reason, never
as a failure of the program. Outages do not count against items: a failed attempt counts only if the judge has judged
something else since the item was sent, or has only failed for `patience` seconds.
"""

import math
from dataclasses import dataclass

from evalrun_client.failure_codes import FailureCode, to_failure_code
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_runtime.backoff import backoff_seconds

MALFORMED = frozenset({FailureCode.INVALID_ARGUMENT, FailureCode.UNIMPLEMENTED})
REASON_LENGTH = 500


@dataclass(frozen=True)
class RetryPolicy:
    """Limits of retries; times in seconds."""

    attempts: int = 5
    """Maximum counted failures of an item before it is recorded as not judged."""
    losses: int = 20
    """Maximum broken streams and passed deadlines of an item before it is recorded as not judged. The limit is higher,
    because other items or a long queue usually cause them."""
    patience: float = 600.0
    """Seconds of failures without any verdict after which failures always count."""
    first_delay: float = 0.5
    max_delay: float = 30.0
    min_busy_delay: float = 0.05

    def delay(self, failures: int) -> float:
        """Return the wait before the next attempt, doubling."""
        return backoff_seconds(failures + 1, self.first_delay, self.max_delay)


@dataclass(frozen=True)
class ItemHistory:
    """An item's failures so far."""

    failures: int = 0
    """Counted failures before this failure."""
    losses: int = 0
    """Counted broken streams and passed deadlines before this failure."""
    uncounted: int = 0
    """Failures during an outage; they only lengthen the wait."""


@dataclass(frozen=True)
class Outage:
    """The judge's state when an item fails."""

    judged_meanwhile: bool
    """Whether the judge has judged something since this item was sent."""
    failing_seconds: float
    """Seconds since the judge's first failure after its last verdict. A judge without work gave no verdict either."""

    def counts(self, policy: RetryPolicy) -> bool:
        """Return whether the failure counts against the item."""
        return self.judged_meanwhile or self.failing_seconds >= policy.patience


@dataclass(frozen=True)
class Store:
    """Store the verdict as the item's."""


@dataclass(frozen=True)
class Retry:
    """Ask again after `delay` seconds, remembering `history`."""

    delay: float
    history: ItemHistory


@dataclass(frozen=True)
class NotJudged:
    """Record that the judge could not decide."""

    reason: str


Decision = Store | Retry | NotJudged


def decide_verdict(verdict: judge_pb2.Verdict, history: ItemHistory, outage: Outage, policy: RetryPolicy) -> Decision:
    """Decide about a verdict. A "not judged" verdict is a failure of the judge; after the last attempt it is stored.

    A permanent "not judged" verdict is stored at once: five more attempts held a run for ten minutes. A verdict with a
    number that is not finite also counts as a failure of the judge, because no output could be written with it.
    """
    if wrong := explain_not_finite(verdict):
        return _again(history, outage, policy) or NotJudged(f"INTERNAL: the judge's answer is malformed: {wrong}")
    if verdict.judged or verdict.permanent:
        return Store()
    again = _again(history, outage, policy)
    return Store() if again is None else again


def decide_failure(
    failure: judge_pb2.StreamFailure, history: ItemHistory, outage: Outage, policy: RetryPolicy
) -> Decision:
    """Decide about a request without a verdict."""
    code = to_failure_code(failure)
    reason = f"{code.name}: {failure.message}"[:REASON_LENGTH]
    if code in MALFORMED:
        return NotJudged(reason)
    if code is FailureCode.RESOURCE_EXHAUSTED:
        return Retry(max(policy.min_busy_delay, failure.retry_after_ms / 1000), history)
    if code is FailureCode.DEADLINE_EXCEEDED:
        return _again_after_loss(history, outage, policy) or NotJudged(reason)
    return _again(history, outage, policy) or NotJudged(reason)


def decide_loss(reason: str, history: ItemHistory, outage: Outage, policy: RetryPolicy) -> Decision:
    """Decide about an item whose stream ended before its reply. Sending it again is harmless: judging is idempotent."""
    again = _again_after_loss(history, outage, policy)
    return again or NotJudged(f"the judge's stream broke {history.losses + 1} times: {reason}"[:REASON_LENGTH])


def explain_not_finite(verdict: judge_pb2.Verdict) -> str:
    """Name the number of a verdict that is NaN or infinite; empty if all are finite."""
    for name in ("pass_ratio", "pass_ratio_high", "score", "queue_seconds"):
        if not math.isfinite(value := getattr(verdict, name)):
            return f"{name} is {value}"
    for test in verdict.tests:
        if not math.isfinite(test.duration + test.cpu_time + test.compile_duration):
            return f"duration, cpu_time or compile_duration of test {test.case_index} is not finite"
    return ""


def explain_not_judged(verdict: judge_pb2.Verdict) -> str:
    """Return the reason of a "not judged" verdict, in one line."""
    for test in verdict.tests:
        if test.status == judge_pb2.TEST_STATUS_API_ERROR and test.reason:
            return f"api_error: {test.reason}"[:REASON_LENGTH]
    return "api_error"


def make_not_judged_verdict() -> judge_pb2.Verdict:
    """Return the "not judged" verdict for a request to which the judge sent no verdict."""
    return judge_pb2.Verdict(final_status=judge_pb2.FINAL_STATUS_API_ERROR, judged=False, accepted=False)


def _again_after_loss(history: ItemHistory, outage: Outage, policy: RetryPolicy) -> Retry | None:
    if not outage.counts(policy):
        return Retry(0.0, history)
    losses = history.losses + 1
    return Retry(0.0, ItemHistory(history.failures, losses, history.uncounted)) if losses < policy.losses else None


def _again(history: ItemHistory, outage: Outage, policy: RetryPolicy) -> Retry | None:
    if not outage.counts(policy):
        tried = history.failures + history.uncounted
        return Retry(policy.delay(tried), ItemHistory(history.failures, history.losses, history.uncounted + 1))
    failures = history.failures + 1
    if failures >= policy.attempts:
        return None
    return Retry(policy.delay(failures - 1), ItemHistory(failures, history.losses, history.uncounted))
