"""Limits repeated sandbox calls, for each program and for all programs together. Pure.

A bound for each program alone multiplies the load just when the sandboxes have least to give: where all of them fail,
five attempts are five times the work. So calls that are made again, retries and hedges alike, are a share of the first
calls in a sliding window, and a small floor for gateways that have little to do (Finagle's `RetryBudget`: 20 % on top
of a reserve, over 10 s, https://finagle.github.io/blog/2016/02/08/retry-budgets). In three things it differs:

- First calls that still run count however long ago they began (as Envoy's `retry_budget` counts active requests):
  programs take minutes, and a sandbox that dies takes those of before the window along too.
- The floor for retries holds the slots of the largest sandbox besides: what one lost sandbox had is all run again,
  however few sandboxes there are. Hedges have no part in that.
- In an outage there is no floor: a call in a window may always be made again, the others are the ratio's (gRPC's retry
  throttling too lets go of retries as successes stay away, gRFC A6).

Full sandboxes (429) are no failure and cost nothing here: a program that was not let in has run nowhere.
"""

from collections import deque
from dataclasses import dataclass

from evalrun_runtime.backoff import backoff_seconds

BUCKETS = 10
"""Of the window, which slides by one of them at a time."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits on retries of infrastructure errors."""

    attempts: int = 5
    """Calls of a sandbox that may fail for one program, full sandboxes not counted."""
    budget_seconds: float = 30.0
    """Maximum seconds that a request waits while no sandbox is usable."""
    first_delay: float = 0.05
    """Seconds before the first call again; doubled each time, and spread by up to half."""
    ratio: float = 0.2
    """Calls made again for each first call, over all programs."""
    min_retries: int = 10
    """Calls made again in a window that need no first call."""
    window_seconds: float = 10.0
    outage_seconds: float = 60.0
    """An outage is when calls have failed for so long and none was answered well: longer than most programs take."""

    def delay(self, failures: int, chance: float) -> float:
        """Return the seconds before the next call. `chance` in [0, 1) spreads the delays."""
        return backoff_seconds(failures, self.first_delay) * (1 + chance / 2)


class _Window:
    """Counts events of the last seconds."""

    def __init__(self, seconds: float) -> None:
        self._bucket_seconds = seconds / BUCKETS
        self._buckets: deque[tuple[int, int]] = deque()

    def add(self, now: float) -> None:
        number = int(now / self._bucket_seconds)
        count = 0
        if self._buckets and self._buckets[-1][0] == number:
            count = self._buckets.pop()[1]
        self._buckets.append((number, count + 1))
        self._forget(number)

    def count(self, now: float) -> int:
        self._forget(int(now / self._bucket_seconds))
        return sum(count for _, count in self._buckets)

    def _forget(self, number: int) -> None:
        while self._buckets and self._buckets[0][0] <= number - BUCKETS:
            self._buckets.popleft()


class RetryBudget:
    """Retry budget of all programs together; see the module. `now` is in seconds, monotonic."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._first = _Window(policy.window_seconds)
        self._again = _Window(policy.window_seconds)
        self._failing_since: float | None = None
        """Time of the first failed call since the last success."""

    def began(self, now: float) -> None:
        """Count a program's first call."""
        self._first.add(now)

    def record_success(self) -> None:
        """Record a call that was answered well."""
        self._failing_since = None

    def record_failure(self, now: float) -> None:
        """Record a call that failed."""
        if self._failing_since is None:
            self._failing_since = now

    def retry(self, now: float, *, running: int, max_slots: int) -> bool:
        """Return whether a failed call may be repeated, and count the repetition.

        Args:
            now: the time.
            running: calls that run.
            max_slots: slots of the largest sandbox.
        """
        return self._take(now, self._share(now, running) + (0 if self._outage(now) else max_slots))

    def hedge(self, now: float, *, running: int) -> bool:
        """Return whether a call that takes long may be made elsewhere too, and count it; see `retry`."""
        return self._take(now, self._share(now, running))

    def account(self, now: float) -> str:
        """Describe the use of the budget, for people."""
        return (
            f"{self._again.count(now)} calls made again for {self._first.count(now)} first ones in the last "
            f"{self._policy.window_seconds:g} s"
        )

    def _share(self, now: float, running: int) -> float:
        floor = 1 if self._outage(now) else self._policy.min_retries
        return floor + self._policy.ratio * max(self._first.count(now), running)

    def _outage(self, now: float) -> bool:
        since = self._failing_since
        return since is not None and now - since >= self._policy.outage_seconds

    def _take(self, now: float, allowed: float) -> bool:
        if self._again.count(now) + 1 > allowed:
            return False
        self._again.add(now)
        return True
