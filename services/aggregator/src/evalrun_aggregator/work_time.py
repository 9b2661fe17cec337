"""Time during which a run was at work: without waits for GPUs, endpoints or a judge, and without suspension.

It is derived from the ledger's contents, so a restart of the aggregator changes nothing.
"""

from collections.abc import Iterable

from evalrun_results.metrics.activity import ActiveTime

JUDGED_WITHIN_SECONDS = 10.0
"""Maximum seconds before its verdict for which a completion counts as being judged: the ledger stores no start."""


class WorkTime:
    """Counts each completion and each verdict once, in any order. Times are Unix seconds."""

    def __init__(self) -> None:
        self._generating = ActiveTime()
        self._working = ActiveTime()

    def record_completion(self, started_at: float, seconds: float) -> None:
        """Record the time of a completion, unless the completion was made elsewhere."""
        if started_at:
            self._generating.add(started_at, started_at + seconds)
            self._working.add(started_at, started_at + seconds)

    def record_verdict(self, recorded_at: float) -> None:
        """Record the time of a verdict."""
        self._working.add(recorded_at - JUDGED_WITHIN_SECONDS, recorded_at)

    def restore(self, completions: Iterable[tuple[float, float]], verdicts: Iterable[float]) -> None:
        """Restore the times of a ledger: (started at, seconds) of each completion, and the time of each verdict."""
        for started_at, seconds in completions:
            self.record_completion(started_at, seconds)
        for recorded_at in verdicts:
            self.record_verdict(recorded_at)

    @property
    def generating_seconds(self) -> float:
        """Seconds during which at least one completion was being generated."""
        return self._generating.seconds

    @property
    def working_seconds(self) -> float:
        """Seconds during which any completion was being generated or judged."""
        return self._working.seconds
