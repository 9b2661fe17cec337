"""What becomes of an item after the judge answered, or did not. Pure.

A verdict is stored. What the judge could not tell is asked again, within bounds, and then recorded as not judged with
the reason: never as a failure of the program. An outage of the judge is not held against the items that meet it: an
attempt counts only where the judge judged something else since, or where it has judged nothing for long enough.
"""

from dataclasses import dataclass

import grpc

from evalrun.judge.v1 import judge_pb2
from evalrun_runtime.backoff import backoff_seconds

MALFORMED = frozenset({grpc.StatusCode.INVALID_ARGUMENT.value[0], grpc.StatusCode.UNIMPLEMENTED.value[0]})
EXPIRED = grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
BUSY = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
CODE_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}
REASON_LENGTH = 500


@dataclass(frozen=True)
class RetryPolicy:
    """How long the judge is asked again. Seconds."""

    attempts: int = 5
    """Counted failures of an item after which it is not judged."""
    losses: int = 20
    """The same for streams that broke while the item was on them, and for deadlines that passed: most often somebody
    else's fault, or a queue that is too long for what is asked."""
    patience: float = 600.0
    """After so long without any verdict failures count whatever the judge does for other items."""
    first_delay: float = 0.5
    longest_delay: float = 30.0
    least_busy_delay: float = 0.05

    def delay(self, failures: int) -> float:
        """Return the wait before the next attempt, doubling."""
        return backoff_seconds(failures + 1, self.first_delay, self.longest_delay)


@dataclass(frozen=True)
class History:
    """What is known of an item when it fails once more."""

    failures: int = 0
    """Counted ones, before this."""
    losses: int = 0
    """Counted broken streams and passed deadlines, before this."""
    uncounted: int = 0
    """Failures during an outage; they lengthen the wait only."""


@dataclass(frozen=True)
class Outage:
    """How the judge does otherwise, when an item fails."""

    judged_meanwhile: bool
    """It judged something since this item was sent."""
    seconds_without_verdict: float

    def counts(self, policy: RetryPolicy) -> bool:
        """Return whether the failure is held against the item."""
        return self.judged_meanwhile or self.seconds_without_verdict > policy.patience


@dataclass(frozen=True)
class Store:
    """The verdict is the item's."""


@dataclass(frozen=True)
class Again:
    """Ask again after `delay` seconds, remembering `history`."""

    delay: float
    history: History


@dataclass(frozen=True)
class NotJudged:
    """Record that the judge could not tell."""

    reason: str


Decision = Store | Again | NotJudged


def decide_verdict(verdict: judge_pb2.Verdict, history: History, outage: Outage, policy: RetryPolicy) -> Decision:
    """Decide on a verdict. One that says "could not tell" is a failure of the judge's; the last one is stored.

    One that says that no other attempt would tell is stored at once: five more of them held a run for ten minutes.
    """
    if verdict.judged or verdict.permanent:
        return Store()
    again = _again(history, outage, policy)
    return Store() if again is None else again


def decide_failure(failure: judge_pb2.StreamFailure, history: History, outage: Outage, policy: RetryPolicy) -> Decision:
    """Decide on a request that has no verdict."""
    reason = f"{CODE_NAMES.get(failure.code, failure.code)}: {failure.message}"[:REASON_LENGTH]
    if failure.code in MALFORMED:
        return NotJudged(reason)
    if failure.code == BUSY:
        return Again(max(policy.least_busy_delay, failure.retry_after_ms / 1000), history)
    if failure.code == EXPIRED:
        return _again_after_loss(history, outage, policy) or NotJudged(reason)
    return _again(history, outage, policy) or NotJudged(reason)


def decide_loss(reason: str, history: History, outage: Outage, policy: RetryPolicy) -> Decision:
    """Decide on an item whose stream ended before its answer. Sending it again is harmless: judging is idempotent."""
    again = _again_after_loss(history, outage, policy)
    return again or NotJudged(f"the judge's stream broke {history.losses + 1} times: {reason}"[:REASON_LENGTH])


def reason_of(verdict: judge_pb2.Verdict) -> str:
    """Return why a verdict says "could not tell", in one line."""
    for test in verdict.tests:
        if test.status == judge_pb2.TEST_STATUS_API_ERROR and test.reason:
            return f"api_error: {test.reason}"[:REASON_LENGTH]
    return "api_error"


def not_judged_verdict() -> judge_pb2.Verdict:
    """Return the verdict that stands for "the judge could not tell" where it sent none."""
    return judge_pb2.Verdict(final_status=judge_pb2.FINAL_STATUS_API_ERROR, judged=False, accepted=False)


def _again_after_loss(history: History, outage: Outage, policy: RetryPolicy) -> Again | None:
    if not outage.counts(policy):
        return Again(0.0, history)
    losses = history.losses + 1
    return Again(0.0, History(history.failures, losses, history.uncounted)) if losses < policy.losses else None


def _again(history: History, outage: Outage, policy: RetryPolicy) -> Again | None:
    if not outage.counts(policy):
        tried = history.failures + history.uncounted
        return Again(policy.delay(tried), History(history.failures, history.losses, history.uncounted + 1))
    failures = history.failures + 1
    if failures >= policy.attempts:
        return None
    return Again(policy.delay(failures - 1), History(failures, history.losses, history.uncounted))
