"""The gateway's Prometheus metrics; every label set exists from the start."""

from collections.abc import Callable
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from evalrun_judge.sandboxes import REASONS
from evalrun_judge.status import TestStatus

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""Buckets in seconds."""


class RequestOutcome(StrEnum):
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    NOT_JUDGED = "not_judged"
    INVALID = "invalid"
    QUEUE_FULL = "queue_full"
    UNAVAILABLE = "unavailable"
    EXPIRED = "expired"
    """The caller's deadline passed."""
    CANCELLED = "cancelled"


class CacheResult(StrEnum):
    """Result of a request's lookup in the verdict cache."""

    HIT = "hit"
    MISS = "miss"
    ERROR = "error"
    """The cache could not be read; the request was judged without it."""


class JudgeMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.request_seconds = Histogram(
            "evalrun_judge_request_seconds",
            "Seconds from a request's arrival to its verdict or failure.",
            ["outcome"],
            buckets=BUCKETS,
            registry=registry,
        )
        self.queue_seconds = Histogram(
            "evalrun_judge_queue_seconds",
            "Seconds that a request waited before its first work began.",
            buckets=BUCKETS,
            registry=registry,
        )
        self.sandbox_seconds = Histogram(
            "evalrun_judge_sandbox_seconds",
            "Seconds of one call of a sandbox, from the slot that it was given to the answer or failure.",
            buckets=BUCKETS,
            registry=registry,
        )
        self.queue_depth = Gauge("evalrun_judge_queue_depth", "Requests that wait.", registry=registry)
        self.queue_oldest = Gauge(
            "evalrun_judge_queue_oldest_seconds", "Seconds that the oldest request has waited.", registry=registry
        )
        self.inflight = Gauge("evalrun_judge_inflight", "Requests whose work has begun.", registry=registry)
        self.sandbox_slots = Gauge(
            "evalrun_judge_sandbox_slots",
            "Programs that the sandboxes which this gateway reaches can run at once, for whomever: "
            "use max over gateways.",
            registry=registry,
        )
        self.sandbox_inflight = Gauge(
            "evalrun_judge_sandbox_inflight",
            "Programs that run now for this gateway: use sum over gateways.",
            registry=registry,
        )
        self.cache = Counter(
            "evalrun_judge_cache", "Requests by what the verdict cache said; 0 without a cache.", ["result"],
            registry=registry,
        )  # fmt: skip
        self.tests = Counter("evalrun_judge_tests", "Tests judged.", ["status"], registry=registry)
        self.retries = Counter("evalrun_judge_retries", "Sandbox calls made again.", ["reason"], registry=registry)
        self.hedges = Counter(
            "evalrun_judge_hedges",
            "Calls of a second sandbox for a straggler, by whether they answered first.",
            ["won"],
            registry=registry,
        )
        self._hedges = {won: self.hedges.labels(str(won).lower()) for won in (False, True)}
        self._seconds = {outcome: self.request_seconds.labels(outcome.value) for outcome in RequestOutcome}
        self._tests = {status: self.tests.labels(status.value) for status in TestStatus}
        self._retries = {reason: self.retries.labels(reason) for reason in REASONS}
        self._cache = {result: self.cache.labels(result.value) for result in CacheResult}

    def watch_queue(
        self, waiting: Callable[[], float], oldest_seconds: Callable[[], float], begun: Callable[[], float]
    ) -> None:
        """Read the queue's gauges from these functions at each scrape."""
        self.queue_depth.set_function(waiting)
        self.queue_oldest.set_function(oldest_seconds)
        self.inflight.set_function(begun)

    def watch_sandboxes(self, slots: Callable[[], float], running: Callable[[], float]) -> None:
        """Read the sandboxes' gauges from these functions at each scrape."""
        self.sandbox_slots.set_function(slots)
        self.sandbox_inflight.set_function(running)

    def observe_request(self, outcome: RequestOutcome, seconds: float) -> None:
        """Record the outcome and the seconds of a finished request."""
        self._seconds[outcome].observe(seconds)

    def count_tests(self, status: TestStatus, count: int) -> None:
        self._tests[status].inc(count)

    def count_retry(self, reason: str) -> None:
        """Count a repeated sandbox call."""
        self._retries[reason].inc()

    def count_hedge(self, won: bool) -> None:
        """Count a straggler's second call, by whether that call replied first."""
        self._hedges[won].inc()

    def observe_queue(self, seconds: float) -> None:
        """Record the seconds that a request waited before its first work began."""
        self.queue_seconds.observe(seconds)

    def observe_call(self, seconds: float) -> None:
        """Record the seconds of a finished sandbox call."""
        self.sandbox_seconds.observe(seconds)

    def count_cache(self, result: CacheResult) -> None:
        self._cache[result].inc()
