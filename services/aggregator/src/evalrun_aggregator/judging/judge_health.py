"""Records the judge's verdicts and the failures since the last verdict."""

from collections.abc import Callable

from evalrun_aggregator.judging.retry_policy import Outage
from evalrun_aggregator.judging.work import Work
from evalrun_proto.judge.v1 import judge_pb2

PATIENT_SECONDS = 60.0
"""Seconds of failures without any verdict after which they are reported. Shorter failures are normal."""


class JudgeHealth:
    """Counts the judge's replies of all stream workers.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.verdicts = 0
        """Number of verdicts that decided, so far."""
        self._failing_since: float | None = None
        """Time of the first failure since the last verdict."""
        self._failure: judge_pb2.StreamFailure | None = None
        """Failure of the newest request that failed since then."""

    @property
    def trouble(self) -> str | None:
        """Reason why no verdict comes; None while verdicts come, or the failures are recent."""
        if self._failure is None:
            return None
        # The gateway has waited for DNS already, and a policy that blocks DNS does not go away by itself.
        if self._failure.reason == judge_pb2.FAILURE_REASON_NO_DNS:
            return self._failure.message
        if (seconds := self._failing_seconds) < PATIENT_SECONDS:
            return None
        return f"no verdict for {seconds:.0f} s; it says: {self._failure.message}"

    def note_outage(self, work: Work) -> Outage:
        """Return the judge's state when an item's reply arrives, or is lost. The first failure starts an outage."""
        if self._failing_since is None:
            self._failing_since = self._clock()
        return Outage(self.verdicts > work.verdicts_at_sending, self._failing_seconds)

    def record_failure(self, failure: judge_pb2.StreamFailure) -> None:
        """Record the reply to a request that the judge could not judge."""
        self._failure = failure

    def record_verdict(self) -> None:
        """Record a verdict that decided: it ends an outage."""
        self._failing_since, self._failure = None, None
        self.verdicts += 1

    @property
    def _failing_seconds(self) -> float:
        return 0.0 if self._failing_since is None else self._clock() - self._failing_since
