"""What is shown of schedules to Prometheus: the newest checkpoint with results, beyond the deletion of its run."""

import threading
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from evalrun_api.v1alpha1 import EvalScheduleStatus, ScheduleCondition, schedule_condition

Key = tuple[str, str]


class ScheduleMetrics(Collector):
    """Shows schedules.

    Args:
        registry: where it is registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._statuses: dict[Key, EvalScheduleStatus] = {}
        self._lock = threading.Lock()
        """Scrapes come in a thread of their own."""
        registry.register(self)

    def show(self, key: Key, status: EvalScheduleStatus) -> None:
        """Take a schedule's status over."""
        with self._lock:
            self._statuses[key] = status

    def forget(self, key: Key) -> None:
        """Forget a schedule that is gone."""
        with self._lock:
            self._statuses.pop(key, None)

    def follow(self) -> None:
        """Forget every schedule: another operator works, and shows them."""
        with self._lock:
            self._statuses.clear()

    def collect(self) -> Iterator[Metric]:
        """Return the series of all schedules."""
        with self._lock:
            statuses = dict(self._statuses)
        names = ["namespace", "schedule"]
        accepted = GaugeMetricFamily(
            "evalrun_checkpoint_accepted_at_1",
            "accepted@1 of the newest checkpoint with results.",
            labels=[*names, "dataset"],
        )
        step = GaugeMetricFamily(
            "evalrun_checkpoint_step", "Training step of the newest checkpoint with results.", labels=names
        )
        started = GaugeMetricFamily(
            "evalrun_schedule_started", "0 while the last start came to nothing for a reason, else 1.", labels=names
        )
        sound = GaugeMetricFamily("evalrun_schedule_sound", "0 while a checkpoint is broken, else 1.", labels=names)
        last = GaugeMetricFamily(
            "evalrun_schedule_last_start_timestamp_seconds", "The last start that was dealt with.", labels=names
        )
        for key, status in statuses.items():
            latest = status.latest_result
            if latest is not None:
                step.add_metric(key, float(latest.step))
                for dataset in latest.datasets:
                    if dataset.accepted_at_1 is not None:
                        accepted.add_metric([*key, dataset.name], float(dataset.accepted_at_1))
            for gauge, kind in ((started, ScheduleCondition.STARTED), (sound, ScheduleCondition.SOUND)):
                condition = schedule_condition(status, kind)
                gauge.add_metric(key, float(condition is None or condition.status != "False"))
            if status.last_schedule_time is not None:
                last.add_metric(key, status.last_schedule_time.timestamp())
        yield from (accepted, step, started, sound, last)
