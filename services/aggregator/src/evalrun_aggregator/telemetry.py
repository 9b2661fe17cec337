"""The aggregator's Prometheus metrics, read from the run at each scrape, so that they never drift."""

from collections import Counter as Tally
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from evalrun_aggregator.ledger.entries import CompletionTally, StoredCompletion
from evalrun_aggregator.ledger.item_states import DatasetCounts, ItemState, ItemStates
from evalrun_registry.metrics import HEADLINE

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
FINISH_REASONS = ("stop", "length", "content_filter", "tool_calls", "abort")
OTHER_REASON = "other"
"""Label for all unknown reasons: a server may send any text, and the number of labels must not grow with it."""

PROBLEM_STATES: dict[str, tuple[ItemState, ...]] = {
    "pending": (ItemState.PENDING, ItemState.LEASED),
    "generated": (ItemState.GENERATED, ItemState.JUDGING),
    "accepted": (ItemState.ACCEPTED,),
    "rejected": (ItemState.REJECTED,),
    "not_judged": (ItemState.NOT_JUDGED, ItemState.MISSING),
}


class ReplicaGauge:
    """A replica's state at a scrape."""

    def __init__(self, *, up: bool, in_flight: int) -> None:
        self.up = up
        self.in_flight = in_flight


class Telemetry(Collector):
    """The metrics of a run. Counters continue from the ledger, so a restart does not reset them.

    Args:
        run: label of every series.
        namespace: label of every series.
        registry: the registry of the series.
        started_at: Unix seconds; counts as the last progress until there is any.
        price: price of a GPU hour, and its currency; None if the run names none.
        sampled: datasets that are generated for training: they have no headline metric.
    """

    def __init__(
        self,
        run: str,
        namespace: str,
        registry: CollectorRegistry,
        started_at: float,
        price: tuple[float, str] | None = None,
        sampled: frozenset[str] = frozenset(),
    ) -> None:
        self._sampled = sampled
        self._price = price
        self._labels = [run, namespace]
        self._registry = registry
        self._last_progress = started_at
        self._completions: Tally[tuple[str, str]] = Tally()
        self._tokens = 0
        self._seconds = Histogram(
            "evalrun_generation_seconds",
            "Seconds from sending a request for a completion to its last byte.",
            ["run", "namespace"],
            buckets=BUCKETS,
            registry=registry,
        ).labels(run, namespace)
        self._item_states: ItemStates | None = None
        self._replicas: Callable[[], list[ReplicaGauge]] = list
        self._gpu_seconds: Callable[[], float] = float

    def observe(
        self, item_states: ItemStates, replicas: Callable[[], list[ReplicaGauge]], gpu_seconds: Callable[[], float]
    ) -> None:
        """Set the sources of the gauges and start exporting them."""
        self._item_states, self._replicas, self._gpu_seconds = item_states, replicas, gpu_seconds
        self._registry.register(self)

    def restore(self, dataset: str, tally: CompletionTally) -> None:
        """Count the completions that the ledger already contains."""
        self._completions[dataset, finish_label(tally.finish_reason)] += tally.count
        self._tokens += tally.output_tokens

    def record_completion(self, dataset: str, completion: StoredCompletion) -> None:
        """Count a completion that was stored."""
        self._completions[dataset, finish_label(completion.finish_reason)] += 1
        self._tokens += completion.output_tokens or 0
        self._seconds.observe(completion.generation_seconds)

    def record_progress(self, now: float) -> None:
        """Record the time of the last stored completion or verdict; Unix seconds."""
        self._last_progress = now

    def describe(self) -> list[Metric]:
        """Return an empty list: the registry would otherwise collect before there are item states."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the current values of every metric."""
        datasets = self._item_states.datasets if self._item_states is not None else []
        yield self._problems(datasets)
        yield self._make_accepted_metric(datasets)
        yield self._make_finished_metric(datasets)
        yield self._single(CounterMetricFamily, "evalrun_generated_tokens", "Tokens generated.", self._tokens)
        gpu_seconds = self._gpu_seconds()
        yield self._single(CounterMetricFamily, "evalrun_gpu_seconds", "Seconds of GPU held by replicas.", gpu_seconds)
        if self._price is not None:
            amount, currency = self._price
            help_text = "Price of one GPU for an hour, as the run's spec says."
            hour = GaugeMetricFamily("evalrun_gpu_hour_price", help_text, labels=["run", "namespace", "currency"])
            hour.add_metric([*self._labels, currency], amount)
            yield hour
        progress = "When a completion or verdict was last stored; Unix seconds."
        yield self._single(GaugeMetricFamily, "evalrun_last_progress_timestamp_seconds", progress, self._last_progress)
        labels = ["run", "namespace", "replica"]
        up = GaugeMetricFamily("evalrun_replica_up", "1 where the replica answers.", labels=labels)
        in_flight = GaugeMetricFamily("evalrun_replica_inflight", "Requests at the replica.", labels=labels)
        for number, replica in enumerate(self._replicas()):
            up.add_metric([*self._labels, str(number)], float(replica.up))
            in_flight.add_metric([*self._labels, str(number)], replica.in_flight)
        yield from (up, in_flight)

    def _problems(self, datasets: list[DatasetCounts]) -> Metric:
        labels = ["run", "namespace", "dataset", "state"]
        family = GaugeMetricFamily("evalrun_problems", "Samples of the run by state.", labels=labels)
        for counts in datasets:
            for name, states in PROBLEM_STATES.items():
                family.add_metric([*self._labels, counts.name, name], sum(counts.states[state] for state in states))
        return family

    def _make_accepted_metric(self, datasets: list[DatasetCounts]) -> Metric:
        labels = ["run", "namespace", "dataset"]
        help_text = "Mean over problems of accepted / judged samples so far; 0 before any."
        family = GaugeMetricFamily(HEADLINE.series(), help_text, labels=labels)
        for counts in datasets:
            if counts.name not in self._sampled:
                family.add_metric([*self._labels, counts.name], counts.accepted_at_1 or 0.0)
        return family

    def _make_finished_metric(self, datasets: list[DatasetCounts]) -> Metric:
        labels = ["run", "namespace", "dataset", "finish_reason"]
        family = CounterMetricFamily("evalrun_completions", "Completions stored, by how they ended.", labels=labels)
        for counts in datasets:
            for reason in (*FINISH_REASONS, OTHER_REASON):
                count = self._completions[counts.name, reason]
                family.add_metric([*self._labels, counts.name, reason], count)
        return family

    def _single(
        self, kind: type[CounterMetricFamily] | type[GaugeMetricFamily], name: str, help_text: str, value: float
    ) -> Metric:
        family = kind(name, help_text, labels=["run", "namespace"])
        family.add_metric(self._labels, value)
        return family


def finish_label(reason: str) -> str:
    """Return the label of a finish reason."""
    return reason if reason in FINISH_REASONS else OTHER_REASON
