"""Records how the judge has answered so far: its verdicts, and the failures since the last one."""

from collections.abc import Callable

from evalrun_aggregator.judging.retry_policy import Outage
from evalrun_aggregator.judging.work import Work

PATIENT_SECONDS = 60.0
"""Seconds of failures without any verdict after which they are told; shorter ones are a judge's everyday life."""


class JudgeHealth:
    """The judge's answers so far, over all lanes.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.verdicts = 0
        """Verdicts that decided, so far."""
        self._failing_since: float | None = None
        """Time of the first failure since the last verdict."""
        self._failure = ""
        """Message of the newest request that failed since then."""

    @property
    def trouble(self) -> str | None:
        """Reason why no verdict comes; None while verdicts come, or the failures are recent."""
        if not self._failure or (seconds := self._failing_seconds) < PATIENT_SECONDS:
            return None
        return f"no verdict for {seconds:.0f} s; it says: {self._failure}"

    def outage_of(self, work: Work) -> Outage:
        """Return the judge's state as an item's answer comes, or is lost. The first failure starts an outage."""
        if self._failing_since is None:
            self._failing_since = self._clock()
        return Outage(self.verdicts > work.verdicts_at_sending, self._failing_seconds)

    def record_failure(self, message: str) -> None:
        """Record the judge's answer to a request that it could not judge."""
        self._failure = message

    def record_verdict(self) -> None:
        """Record a verdict that decided: it ends an outage."""
        self._failing_since, self._failure = None, ""
        self.verdicts += 1

    @property
    def _failing_seconds(self) -> float:
        return 0.0 if self._failing_since is None else self._clock() - self._failing_since
