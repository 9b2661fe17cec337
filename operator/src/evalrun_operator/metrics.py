"""Prometheus metrics of the operator. The series of an ended run stay until the run's TTL."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import get_args

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client import Counter as CounterMetric
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from evalrun_api.v1alpha1 import ConditionType, EvalRunSpec, EvalRunStatus, Phase, Reason, find_condition
from evalrun_cluster.kinds import KINDS
from evalrun_registry.metrics import HEADLINE

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
PHASES: tuple[Phase, ...] = get_args(Phase)

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class RunSubject:
    """The model that a run evaluated, for series that outlive the run."""

    model: str
    step: str
    """Training step of the model; empty if the run names none."""
    phase: str
    """Training phase of the model; empty if the run names none."""


def make_subject(spec: EvalRunSpec) -> RunSubject:
    """Return the model that a run evaluates."""
    lineage = spec.lineage
    step = None if lineage is None else lineage.step
    phase = None if lineage is None else lineage.phase
    return RunSubject(spec.model.evaluated, "" if step is None else str(step), phase or "")


@dataclass(frozen=True, slots=True)
class Shown:
    """The exported part of a run's status; small, because thousands of ended runs may be kept."""

    phase: str
    suspended: float | None
    """None once the run has ended."""
    refused: float | None
    preparing_since: float | None
    """Unix seconds."""
    waits_for_replicas: bool
    """Whether the run waits for its schedule's replicas: another run has its turn, or they are not up."""
    failed: float | None
    """None before the run has ended."""
    accepted_at_1: tuple[tuple[str, float], ...]
    """By dataset."""
    gate: float | None
    schedule: str
    """The EvalSchedule that created the run; empty without a schedule."""
    subject: RunSubject | None


def make_shown(status: EvalRunStatus, schedule: str, subject: RunSubject | None) -> Shown:
    """Return the exported values of the status of a run; `schedule` is the schedule that created it, if any."""
    applied, gate = find_condition(status, ConditionType.APPLIED), find_condition(status, ConditionType.GATE_PASSED)
    admitted, over = find_condition(status, ConditionType.ADMITTED), status.completion_time is not None
    preparing = status.phase == "Preparing" and status.start_time is not None
    return Shown(
        phase=status.phase or "Pending",
        suspended=None if over else float(is_suspended(status)),
        refused=None if over or applied is None else float(applied.status == "False"),
        preparing_since=status.start_time.timestamp() if preparing and status.start_time is not None else None,
        waits_for_replicas=not over and admitted is not None and admitted.reason == Reason.WAITING_FOR_REPLICAS,
        failed=float(status.phase == "Failed") if over else None,
        accepted_at_1=tuple((one.name, float(one.accepted_at_1)) for one in status.datasets if one.accepted_at_1),
        gate=None if gate is None or gate.status == "Unknown" else float(gate.status == "True"),
        schedule=schedule,
        subject=subject,
    )


class OperatorMetrics(Collector):
    """Counts runs by phase, exports their results and gates, and times the reconciliations.

    Args:
        registry: the registry of the metrics.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._runs: dict[Key, Shown] = {}
        self._lock = threading.Lock()
        """Guards the runs, because scrapes come in a thread of their own while runs come and go."""
        self.lost_namespaces: Callable[[], Mapping[str, str]] = dict
        """Returns the namespaces that cannot be followed."""
        self.leads = False
        """Whether this operator is active. Another operator exports the runs otherwise."""
        self._skipped = CounterMetric(
            "evalrun_operator_skipped_objects", "Objects with a run's label that cannot be read.", ["kind"],
            registry=registry,
        )  # fmt: skip
        self.reconciliations = Histogram(
            "evalrun_reconcile_seconds", "Seconds of one reconciliation of a run.", ["outcome"], buckets=BUCKETS,
            registry=registry,
        )  # fmt: skip
        for kind in KINDS:
            self._skipped.labels(kind)
        for outcome in ("done", "retry", "refused", "mistake"):
            self.reconciliations.labels(outcome)
        registry.register(self)

    def show(self, key: Key, status: EvalRunStatus, schedule: str = "", subject: RunSubject | None = None) -> None:
        """Export a run's status. `schedule` is the EvalSchedule that created the run, or empty."""
        shown = make_shown(status, schedule, subject)
        with self._lock:
            self._runs[key] = shown

    def forget(self, key: Key) -> None:
        """Stop exporting a run that is gone."""
        with self._lock:
            self._runs.pop(key, None)

    def follow(self) -> None:
        """Stop exporting all runs: another operator is active, and exports them."""
        self.leads = False
        with self._lock:
            self._runs.clear()

    def skip(self, kind: str) -> None:
        """Count an object that cannot be read."""
        self._skipped.labels(kind).inc()

    def collect(self) -> Iterator[Metric]:
        """Return the series of all runs."""
        with self._lock:
            shown = dict(self._runs)
        runs = GaugeMetricFamily("evalrun_runs", "EvalRuns by phase.", labels=["phase"])
        phases = Counter(run.phase for run in shown.values())
        for phase in PHASES:
            runs.add_metric([phase], phases[phase])
        yield runs
        accepted = GaugeMetricFamily(
            HEADLINE.series("run"), f"{HEADLINE.title} of an ended run.", labels=["namespace", "run", "dataset"]
        )
        subjects = GaugeMetricFamily(
            "evalrun_run_info",
            "1 for an ended run with results, with what it evaluated.",
            labels=["namespace", "run", "model", "step", "phase", "schedule"],
        )
        gates = GaugeMetricFamily(
            "evalrun_gate_passed",
            "1 passed, 0 failed; absent while open or inconclusive. schedule: what made the run, if any.",
            labels=["namespace", "run", "schedule"],
        )
        suspended = GaugeMetricFamily(
            "evalrun_run_suspended", "1 while the run is suspended, or being suspended.", labels=["namespace", "run"]
        )
        refused = GaugeMetricFamily(
            "evalrun_run_refused",
            "1 while the API server refuses one of the run's objects.",
            labels=["namespace", "run"],
        )
        over = GaugeMetricFamily(
            "evalrun_run_over", "1 once the run has ended, until the EvalRun is deleted.", labels=["namespace", "run"]
        )
        failed = GaugeMetricFamily(
            "evalrun_run_failed", "1 if an ended run failed, else 0.", labels=["namespace", "run"]
        )
        preparing = GaugeMetricFamily(
            "evalrun_run_preparing_since_timestamp_seconds",
            "When a run started whose aggregator, judge or RayCluster is not up; absent for any other.",
            labels=["namespace", "run"],
        )
        waiting = GaugeMetricFamily(
            "evalrun_run_waiting_for_replicas",
            "1 while a run waits for its turn on the replicas that its schedule keeps; absent for any other.",
            labels=["namespace", "run"],
        )
        for (namespace, name), run in shown.items():
            labels = [namespace, name]
            if run.refused is not None:
                refused.add_metric(labels, run.refused)
            if run.suspended is None:
                over.add_metric(labels, 1.0)
            else:
                suspended.add_metric(labels, run.suspended)
            if run.failed is not None:
                failed.add_metric(labels, run.failed)
            if run.preparing_since is not None:
                preparing.add_metric(labels, run.preparing_since)
            if run.waits_for_replicas:
                waiting.add_metric(labels, 1.0)
            for dataset, value in run.accepted_at_1:
                accepted.add_metric([*labels, dataset], value)
            if run.accepted_at_1 and run.subject is not None:
                subject = run.subject
                subjects.add_metric([*labels, subject.model, subject.step, subject.phase, run.schedule], 1.0)
            if run.gate is not None:
                gates.add_metric([*labels, run.schedule], run.gate)
        lost = GaugeMetricFamily(
            "evalrun_operator_lost_namespace", "1 while a namespace that is to be served refuses.", labels=["namespace"]
        )
        yield GaugeMetricFamily(
            "evalrun_operator_leads", "1 while this operator works, 0 while another does.", value=float(self.leads)
        )
        for namespace in self.lost_namespaces():
            lost.add_metric([namespace], 1.0)
        yield lost
        yield refused
        yield accepted
        yield subjects
        yield gates
        yield suspended
        yield over
        yield failed
        yield preparing
        yield waiting


def is_suspended(status: EvalRunStatus) -> bool:
    """Return whether a run is suspended, so that no progress is expected."""
    condition = find_condition(status, ConditionType.SUSPENDED)
    return condition is not None and (condition.status == "True" or condition.reason == Reason.SUSPENDING)
