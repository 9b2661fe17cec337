"""The service's Prometheus metrics; every label set exists from the start."""

from collections.abc import Callable
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from evalrun_reward.retries import Cause
from evalrun_reward.wire import Outcome

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""Seconds."""


class ReplyKind(StrEnum):
    """Outcome of a request."""

    DONE = "done"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    QUEUE_FULL = "queue_full"
    DRAINING = "draining"
    NOT_JUDGED = "not_judged"
    """A remote reward model's caller got no reward."""
    NO_SESSION = "no_session"
    """It names none that is there."""
    CONFLICT = "conflict"
    """A session's turn is taken, or it takes no more."""
    STORE_DOWN = "store_down"
    """The store of sessions does not answer."""
    CANCELLED = "cancelled"


class Step(StrEnum):
    """State that a session has reached. A session that was started and gets no reward was abandoned."""

    STARTED = "started"
    REWARDED = "rewarded"


class RewardMetrics:
    """Prometheus metrics of the service."""

    def __init__(self, registry: CollectorRegistry) -> None:
        seconds = Histogram(
            "evalrun_reward_request_seconds", "Seconds from a request's arrival to its answer.", ["reply"],
            buckets=BUCKETS, registry=registry,
        )  # fmt: skip
        samples = Counter("evalrun_reward_samples", "Samples, by what became of them.", ["outcome"], registry=registry)
        retries = Counter(
            "evalrun_reward_judge_retries", "Samples about which the judge is asked again.", ["cause"],
            registry=registry,
        )  # fmt: skip
        sessions = Counter("evalrun_reward_sessions", "Sessions, by step.", ["step"], registry=registry)
        self._sessions = {step: sessions.labels(step.value) for step in Step}
        self._waiting = Gauge("evalrun_reward_waiting", "Samples that wait for the judge.", registry=registry)
        self._in_flight = Gauge("evalrun_reward_inflight", "Samples at the judge.", registry=registry)
        self._seconds = {reply: seconds.labels(reply.value) for reply in ReplyKind}
        self._samples = {outcome: samples.labels(outcome.value) for outcome in Outcome}
        self._retries = {cause: retries.labels(cause.value) for cause in Cause}

    def watch(self, waiting: Callable[[], float], in_flight: Callable[[], float]) -> None:
        """Read the gauges from these whenever somebody asks."""
        self._waiting.set_function(waiting)
        self._in_flight.set_function(in_flight)

    def observe_request(self, reply: ReplyKind, seconds: float) -> None:
        """Count a request that ended."""
        self._seconds[reply].observe(seconds)

    def count_sample(self, outcome: Outcome) -> None:
        """Count a sample."""
        self._samples[outcome].inc()

    def count_retry(self, cause: Cause) -> None:
        """Count a sample about which the judge is asked again."""
        self._retries[cause].inc()

    def count_session(self, step: Step) -> None:
        """Count a session that has come so far."""
        self._sessions[step].inc()
