"""Prometheus metrics of schedules: the newest checkpoint with results, even after its run was deleted."""

import threading
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from evalrun_api.v1alpha1 import EvalScheduleStatus, ScheduleCondition, schedule_condition
from evalrun_registry.metrics import HEADLINE

Key = tuple[str, str]


class ScheduleMetrics(Collector):
    """Exports schedules.

    Args:
        registry: the registry of the metrics.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._statuses: dict[Key, EvalScheduleStatus] = {}
        self._lock = threading.Lock()
        """Guards the statuses, because scrapes come in a thread of their own."""
        registry.register(self)

    def show(self, key: Key, status: EvalScheduleStatus) -> None:
        """Export a schedule's status from now on."""
        with self._lock:
            self._statuses[key] = status

    def forget(self, key: Key) -> None:
        """Stop exporting a schedule that is gone."""
        with self._lock:
            self._statuses.pop(key, None)

    def follow(self) -> None:
        """Stop exporting all schedules: another operator is active, and exports them."""
        with self._lock:
            self._statuses.clear()

    def collect(self) -> Iterator[Metric]:
        """Return the series of all schedules."""
        with self._lock:
            statuses = dict(self._statuses)
        names = ["namespace", "schedule"]
        accepted = GaugeMetricFamily(
            HEADLINE.series("checkpoint"),
            f"{HEADLINE.title} of the newest checkpoint with results, until the EvalSchedule is deleted.",
            labels=[*names, "dataset"],
        )
        step = GaugeMetricFamily(
            "evalrun_checkpoint_step", "Training step of the newest checkpoint with results.", labels=names
        )
        gate = GaugeMetricFamily(
            "evalrun_checkpoint_gate_passed",
            "1 if the gate of the newest checkpoint with results passed, 0 if it failed; absent while it is neither.",
            labels=names,
        )
        started = GaugeMetricFamily(
            "evalrun_schedule_started",
            "0 while the last start created no run, with the reason of condition Started; else 1.",
            labels=[*names, "reason"],
        )
        sound = GaugeMetricFamily(
            "evalrun_schedule_sound", "0 while a checkpoint is broken or cannot be merged, else 1.", labels=names
        )
        last = GaugeMetricFamily(
            "evalrun_schedule_last_start_timestamp_seconds", "The last start that was dealt with.", labels=names
        )
        following = GaugeMetricFamily(
            "evalrun_schedule_next_start_timestamp_seconds",
            "When the next start is due; in the past while the operator cannot work on the schedule.",
            labels=names,
        )
        held = CounterMetricFamily(
            "evalrun_schedule_replica_gpu_seconds",
            "GPU seconds of the replicas that a schedule keeps: until their first turn, in turns, idle. "
            "Begins again at 0 when spec.replicas is removed.",
            labels=[*names, "part"],
        )
        crashes = CounterMetricFamily(
            "evalrun_schedule_replica_head_crashes",
            "Heads of kept replicas that crashed or restarted by themselves, before, in and between turns.",
            labels=names,
        )
        unready = GaugeMetricFamily(
            "evalrun_schedule_replicas_unready_since_timestamp_seconds",
            "When kept replicas began to start or to leave; absent while they are up, or none is needed.",
            labels=names,
        )
        for key, status in statuses.items():
            kept, ready = status.replicas, schedule_condition(status, ScheduleCondition.REPLICAS_READY)
            if kept is not None and ready is not None and ready.status == "False":
                unready.add_metric(key, ready.last_transition_time.timestamp())
            if kept is not None:
                crashes.add_metric(key, float(kept.crashes))
                for part, seconds in (
                    ("start", kept.start_gpu_seconds), ("use", kept.use_gpu_seconds), ("idle", kept.idle_gpu_seconds),
                ):  # fmt: skip
                    held.add_metric([*key, part], float(seconds))
            latest = status.latest_result
            if latest is not None:
                step.add_metric(key, float(latest.step))
                for dataset in latest.datasets:
                    if dataset.accepted_at_1 is not None:
                        accepted.add_metric([*key, dataset.name], float(dataset.accepted_at_1))
                if latest.gate in {"True", "False"}:
                    gate.add_metric(key, float(latest.gate == "True"))
            condition = schedule_condition(status, ScheduleCondition.STARTED)
            reason = "" if condition is None else condition.reason
            started.add_metric([*key, reason], float(condition is None or condition.status != "False"))
            kinds = (ScheduleCondition.SOUND, ScheduleCondition.MERGED)
            sound.add_metric(key, float(not any(_is(status, kind, "False") for kind in kinds)))
            if status.last_schedule_time is not None:
                last.add_metric(key, status.last_schedule_time.timestamp())
            if status.next_schedule_time is not None and not _is(status, ScheduleCondition.SUSPENDED, "True"):
                following.add_metric(key, status.next_schedule_time.timestamp())
        yield from (accepted, step, gate, started, sound, last, following, held, crashes, unready)


def _is(status: EvalScheduleStatus, kind: ScheduleCondition, answer: str) -> bool:
    condition = schedule_condition(status, kind)
    return condition is not None and condition.status == answer
