"""Limits repeated sandbox calls, for each program and for all programs together. Pure.

A limit per program alone multiplies the load just when the sandboxes can do least: where all of them fail, five
attempts are five times the work. Therefore repeated calls, which are retries and hedges, are limited to a share of the
first calls in a sliding window plus a small floor for idle gateways (Finagle's `RetryBudget`: 20 % on top of a reserve,
over 10 s, https://finagle.github.io/blog/2016/02/08/retry-budgets). Three rules differ from Finagle's:

- A first call that still runs counts however long ago it began, as Envoy's `retry_budget` counts active requests.
  Programs take minutes, and the failure of a sandbox ends calls that began before the window.
- The floor for retries also holds the slots of the largest sandbox, because all programs of one lost sandbox run again,
  however few sandboxes there are. The floor for hedges does not.
- In an outage the floor is one call per window, and the ratio allows the others. gRPC's retry throttling (gRFC A6) also
  permits fewer retries while successes stay away.

Full sandboxes (429) are no failure and take nothing from the budget: the program has run nowhere.
"""

from collections import deque
from dataclasses import dataclass

from evalrun_runtime.backoff import backoff_seconds

BUCKETS = 10
"""Buckets of the window, which slides by one bucket at a time."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits on retries of infrastructure errors."""

    attempts: int = 5
    """Calls of a sandbox that may fail for a single program. Refusals of full sandboxes do not count."""
    budget_seconds: float = 30.0
    """Maximum seconds that a request waits while no sandbox is usable."""
    first_delay: float = 0.05
    """Seconds before the first retry. The delay doubles each time, and is spread by up to half."""
    ratio: float = 0.2
    """Repeated calls allowed for each first call, over all programs."""
    min_retries: int = 10
    """Repeated calls allowed in each window without any first call."""
    window_seconds: float = 10.0
    outage_seconds: float = 60.0
    """Seconds of failing calls, without any success, after which an outage begins: longer than most programs take."""

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
    """The retry budget of all programs together; see the module. `now` is in seconds, monotonic."""

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
        self._failing_since = None

    def record_failure(self, now: float) -> None:
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
        """Return whether a slow call may also be made elsewhere, and count it; see `retry`."""
        return self._take(now, self._share(now, running))

    def account(self, now: float) -> str:
        """Describe the use of the budget in a message for people."""
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
