"""What the operator shows Prometheus. It outlives the runs: its series of a run stay until the run's TTL."""

from collections import Counter
from collections.abc import Iterator
from typing import get_args

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from evalrun_operator.api.v1alpha1 import ConditionType, EvalRunStatus, Phase, Reason
from evalrun_operator.status_report import condition_of

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
PHASES: tuple[Phase, ...] = get_args(Phase)

Key = tuple[str, str]


class OperatorMetrics(Collector):
    """Counts runs by phase, shows their results and gates, and times the passes.

    Args:
        registry: where it is registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._statuses: dict[Key, tuple[EvalRunStatus, bool]] = {}
        self.passes = Histogram(
            "evalrun_reconcile_seconds", "Seconds of one pass over a run.", ["outcome"], buckets=BUCKETS,
            registry=registry,
        )  # fmt: skip
        for outcome in ("done", "retry", "refused", "mistake"):
            self.passes.labels(outcome)
        registry.register(self)

    def show(self, key: Key, status: EvalRunStatus, *, results: bool) -> None:
        """Take a run's status over; `results` until its TTL."""
        self._statuses[key] = (status, results)

    def forget(self, key: Key) -> None:
        """Forget a run that is gone."""
        self._statuses.pop(key, None)

    def collect(self) -> Iterator[Metric]:
        """Give the series of all runs."""
        runs = GaugeMetricFamily("evalrun_runs", "EvalRuns by phase.", labels=["phase"])
        phases = Counter(status.phase or "Pending" for status, _ in self._statuses.values())
        for phase in PHASES:
            runs.add_metric([phase], phases[phase])
        yield runs
        accepted = GaugeMetricFamily(
            "evalrun_run_accepted_at_1", "accepted@1 of an ended run.", labels=["namespace", "run", "dataset"]
        )
        gates = GaugeMetricFamily(
            "evalrun_gate_passed", "1 passed, 0 failed; absent while open or inconclusive.", labels=["namespace", "run"]
        )
        suspended = GaugeMetricFamily(
            "evalrun_run_suspended", "1 while the run is suspended, or being suspended.", labels=["namespace", "run"]
        )
        for (namespace, run), (status, results) in self._statuses.items():
            suspended.add_metric([namespace, run], float(is_suspended(status)))
            if not results:
                continue
            for dataset in status.datasets:
                if dataset.accepted_at_1 is not None:
                    accepted.add_metric([namespace, run, dataset.name], float(dataset.accepted_at_1))
            gate = condition_of(status, ConditionType.GATE_PASSED)
            if gate is not None and gate.status != "Unknown":
                gates.add_metric([namespace, run], float(gate.status == "True"))
        yield accepted
        yield gates
        yield suspended


def is_suspended(status: EvalRunStatus) -> bool:
    """Say whether nothing is to be expected of a run for now."""
    condition = condition_of(status, ConditionType.SUSPENDED)
    return condition is not None and (condition.status == "True" or condition.reason == Reason.SUSPENDING)
