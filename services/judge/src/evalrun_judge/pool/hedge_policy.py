"""Rule for hedged calls: a slow call is also sent to a second sandbox if a slot is idle. Pure.

The first good reply counts and the other call is cancelled; judging is idempotent. Hedging shortens the end of a run
whose last programs are in a slow or hung sandbox. It uses only slots that nobody wants: no hedge begins while a request
waits.
"""

import math
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HedgePolicy:
    """Decides which calls are stragglers."""

    quantile: float = 0.95
    factor: float = 2.0
    """A call is a straggler after this many times the quantile of earlier calls."""
    min_seconds: float = 1.0
    min_known: int = 20
    """Calls that must have ended before any call counts as a straggler."""
    share: float = 0.25
    """Share of the slots that hedges may hold at once. A single hedge may always run."""

    def max_hedges(self, slots: int) -> int:
        """Return the largest number of simultaneous hedges."""
        return max(1, int(slots * self.share))


REMEMBERED = 512
RECKON_EVERY = 32


class CallTimes:
    """Durations of the last `REMEMBERED` calls."""

    def __init__(self, policy: HedgePolicy) -> None:
        self._policy = policy
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)
        self._since_reckoned = 0
        self._straggles_after: float | None = None

    def add(self, seconds: float) -> None:
        """Record the duration of a successful call."""
        self._seconds.append(seconds)
        self._since_reckoned += 1

    @property
    def straggles_after(self) -> float | None:
        """Seconds after which a call is a straggler; None while too few calls are known."""
        known = len(self._seconds)
        if known < self._policy.min_known:
            return None
        if self._straggles_after is None or self._since_reckoned >= RECKON_EVERY:
            self._since_reckoned = 0
            place = min(known - 1, math.ceil(known * self._policy.quantile) - 1)
            usual = sorted(self._seconds)[place]
            self._straggles_after = max(self._policy.min_seconds, self._policy.factor * usual)
        return self._straggles_after
