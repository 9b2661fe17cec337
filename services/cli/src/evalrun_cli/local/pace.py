"""Measures a run's pace and estimates its end. Pure: the time is an argument."""

from collections import deque
from dataclasses import dataclass
from typing import Final

from evalrun_proto.ledger.v1 import ledger_pb2

WINDOW_SECONDS: Final = 60.0
"""Time over which the pace is measured: the first completions of a run take longest."""
STEADY_ANSWERS: Final = 10
"""Number of completions over which the end is estimated if fewer arrived in the last minute: two in a minute say
little."""
FIRST_ESTIMATE_SECONDS: Final = 5.0
FIRST_ESTIMATE_ANSWERS: Final = 5
"""Minimum number of decided completions before an end is estimated."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of a run."""

    tokens_per_second: float = 0.0
    seconds_left: float | None = None
    """None if nothing can be estimated yet."""


@dataclass(frozen=True, slots=True)
class _Reading:
    at: float
    tokens: int
    decided: int


class PaceMeter:
    """Computes a run's pace from readings of its status."""

    def __init__(self) -> None:
        self._readings: deque[_Reading] = deque()
        self._arrivals: deque[_Reading] = deque()
        """Readings at which more was decided than before."""

    def read(self, status: ledger_pb2.GetStatusResponse, now: float) -> Pace:
        """Take a status and return the pace.

        Args:
            status: the newest status.
            now: seconds of a clock that never runs backwards.
        """
        decided = sum(each.judged + each.not_judged for each in status.datasets)
        total = sum(each.total for each in status.datasets)
        self._readings.append(_Reading(now, status.output_tokens, decided))
        while len(self._readings) > 1 and now - self._readings[1].at >= WINDOW_SECONDS:
            self._readings.popleft()
        self._note_arrival(self._readings[-1])
        first = self._readings[0]
        elapsed = now - first.at
        if elapsed <= 0:
            return Pace()
        tokens = (status.output_tokens - first.tokens) / elapsed
        return Pace(tokens, None if decided >= total else self._seconds_left(total - decided, now))

    def _note_arrival(self, reading: _Reading) -> None:
        """Keep the arrivals of the last minute, and as many before it as an estimate needs."""
        kept = self._arrivals
        if kept and reading.decided < kept[-1].decided:
            # Completions were requeued, so earlier measurements do not apply to them.
            kept.clear()
        if not kept or reading.decided > kept[-1].decided:
            kept.append(reading)
        while (
            len(kept) > 2
            and reading.at - kept[1].at >= WINDOW_SECONDS
            and kept[-1].decided - kept[1].decided >= STEADY_ANSWERS
        ):
            kept.popleft()

    def _seconds_left(self, answers: int, now: float) -> float | None:
        first, last = self._arrivals[0], self._arrivals[-1]
        done = last.decided - first.decided
        if now - first.at < FIRST_ESTIMATE_SECONDS or done < FIRST_ESTIMATE_ANSWERS:
            return None
        # Completions are decided in bursts. Between two bursts the pace stays, until the next burst is late.
        burst = done / (len(self._arrivals) - 1)
        return answers * max((last.at - first.at) / done, (now - first.at) / (done + burst))


@dataclass(frozen=True, slots=True)
class OpenRequests:
    """Requests in flight at the endpoints."""

    count: int = 0
    oldest_seconds: float = 0.0
    limit_seconds: float = 0.0
    """Age at which the oldest request times out; 0 if unknown."""

    @classmethod
    def from_status(cls, status: ledger_pb2.GetStatusResponse, unix_now: float) -> "OpenRequests":
        """Return the open requests in a status."""
        count = sum(replica.in_flight for replica in status.replicas)
        sent = [replica for replica in status.replicas if replica.oldest_request_at]
        if not count or not sent:
            return cls(count)
        oldest = min(sent, key=lambda replica: replica.oldest_request_at)
        age = max(0.0, unix_now - oldest.oldest_request_at)
        return cls(count, age, oldest.oldest_request_limit_seconds)

    def text(self) -> str:
        """Describe the open requests in a phrase; empty if none is open."""
        if not self.count:
            return ""
        many = f"{self.count} request{'' if self.count == 1 else 's'} open"
        return many + (
            f", the oldest {self.oldest_seconds:.0f} of {self.limit_seconds:.0f} s" if self.limit_seconds else ""
        )


def duration(seconds: float) -> str:
    """Return a duration for people, such as `40 s`, `12 min` or `3 h 5 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
