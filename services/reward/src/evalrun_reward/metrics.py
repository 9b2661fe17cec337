"""The service's Prometheus metrics; every label set exists from the start, except those of runs."""

from collections.abc import Callable
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from evalrun_reward.retries import Cause
from evalrun_reward.wire import Outcome

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""Buckets in seconds."""
OTHER_RUNS = "other"


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
    """The request names a session that does not exist."""
    CONFLICT = "conflict"
    """The turn already has another action, or the session takes no more actions."""
    STORE_DOWN = "store_down"
    """The store of sessions does not answer."""
    CANCELLED = "cancelled"


class Step(StrEnum):
    """State that a session has reached. A session that was started and gets no reward was abandoned."""

    STARTED = "started"
    REWARDED = "rewarded"


class RewardMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        seconds = Histogram(
            "evalrun_reward_request_seconds", "Seconds from a request's arrival to its answer.", ["reply"],
            buckets=BUCKETS, registry=registry,
        )  # fmt: skip
        samples = Counter("evalrun_reward_samples", "Samples, by what became of them.", ["outcome"], registry=registry)
        self._run_samples = Counter(
            "evalrun_reward_run_samples", "Samples of a declared run; `other`: of all others.", ["run", "outcome"],
            registry=registry,
        )  # fmt: skip
        self._run_seconds = Counter(
            "evalrun_reward_run_judge_seconds", "Seconds that samples of a declared run were at the judge.", ["run"],
            registry=registry,
        )  # fmt: skip
        self._run_seconds.labels(OTHER_RUNS)
        for outcome in Outcome:
            self._run_samples.labels(OTHER_RUNS, outcome.value)
        self._is_declared: Callable[[str], bool] = lambda run: False
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
        """Read the gauges from these functions at each scrape."""
        self._waiting.set_function(waiting)
        self._in_flight.set_function(in_flight)

    def declare(self, is_declared: Callable[[str], bool]) -> None:
        """Set the function that tells which runs are counted by name: callers choose the names of all other runs."""
        self._is_declared = is_declared

    def add_judge_seconds(self, run: str, seconds: float) -> None:
        """Add the time that a sample was at the judge."""
        self._run_seconds.labels(self._get_label(run)).inc(seconds)

    def _get_label(self, run: str) -> str:
        return run if self._is_declared(run) else OTHER_RUNS

    def observe_request(self, reply: ReplyKind, seconds: float) -> None:
        """Record the kind and the seconds of a finished request."""
        self._seconds[reply].observe(seconds)

    def count_sample(self, outcome: Outcome, run: str) -> None:
        self._samples[outcome].inc()
        self._run_samples.labels(self._get_label(run), outcome.value).inc()

    def count_retry(self, cause: Cause) -> None:
        """Count a sample about which the judge is asked again."""
        self._retries[cause].inc()

    def count_session(self, step: Step) -> None:
        """Count a session that has reached a step."""
        self._sessions[step].inc()
