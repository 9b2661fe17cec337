"""The series that dashboards, alerts and autoscalers rely on: every one is there before anything has happened."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from reference_metrics import SERVICES, collect_sandbox, name_series

LONGEST_SECONDS = {"0.005", "600.0"}
"""Least and greatest bucket of every histogram."""
RUN = {"run", "namespace"}

AGGREGATOR = {
    "evalrun_problems": {*RUN, "dataset", "state"},
    "evalrun_completions_total": {*RUN, "dataset", "finish_reason"},
    "evalrun_generated_tokens_total": RUN,
    "evalrun_generation_seconds": RUN,
    "evalrun_replica_inflight": {*RUN, "replica"},
    "evalrun_replica_up": {*RUN, "replica"},
    "evalrun_accepted_at_1": {*RUN, "dataset"},
    "evalrun_gpu_seconds_total": RUN,
    "evalrun_gpu_hour_price": {*RUN, "currency"},
    "evalrun_last_progress_timestamp_seconds": RUN,
}
JUDGE = {
    "evalrun_judge_request_seconds": {"outcome"},
    "evalrun_judge_queue_seconds": set[str](),
    "evalrun_judge_sandbox_seconds": set[str](),
    "evalrun_judge_queue_depth": set[str](),
    "evalrun_judge_queue_oldest_seconds": set[str](),
    "evalrun_judge_inflight": set[str](),
    "evalrun_judge_sandbox_slots": set[str](),
    "evalrun_judge_sandbox_inflight": set[str](),
    "evalrun_judge_tests_total": {"status"},
    "evalrun_judge_cache_total": {"result"},
    "evalrun_judge_retries_total": {"reason"},
    "evalrun_judge_hedges_total": {"won"},
}
SANDBOX = {
    "evalrun_sandbox_slots": {"state"},
    "evalrun_sandbox_containment_level": set[str](),
    "evalrun_sandbox_requests_total": {"answer"},
    "evalrun_sandbox_runs_total": {"end"},
}
LIVE_SESSIONS = {
    "evalrun_sandbox_sessions": set[str](),
    "evalrun_sandbox_session_memory_bytes": set[str](),
    "evalrun_sandbox_session_executions_total": {"answer"},
    "evalrun_sandbox_sessions_lost_total": {"cause"},
}
SLOT_PROXY = {"evalrun_sandbox_slots": {"state"}, "evalrun_sandbox_requests_total": {"answer"}}
REWARD = {
    "evalrun_reward_request_seconds": {"reply"},
    "evalrun_reward_run_judge_seconds_total": {"run"},
    "evalrun_reward_run_samples_total": {"run", "outcome"},
    "evalrun_reward_samples_total": {"outcome"},
    "evalrun_reward_judge_retries_total": {"cause"},
    "evalrun_reward_sessions_total": {"step"},
    "evalrun_reward_waiting": set[str](),
    "evalrun_reward_inflight": set[str](),
}
GENERATOR = {"evalrun_generator_inflight": {"replica"}, "evalrun_generator_replica_up": {"replica"}}
OPERATOR = {
    "evalrun_runs": {"phase"},
    "evalrun_reconcile_seconds": {"outcome"},
    "evalrun_run_accepted_at_1": {"namespace", "run", "dataset"},
    "evalrun_run_info": {"namespace", "run", "model", "step", "phase", "schedule"},
    "evalrun_run_suspended": {"namespace", "run"},
    "evalrun_run_refused": {"namespace", "run"},
    "evalrun_operator_skipped_objects_total": {"kind"},
    "evalrun_operator_lost_namespace": {"namespace"},
    "evalrun_operator_leads": set[str](),
    "evalrun_run_failed": {"namespace", "run"},
    "evalrun_run_over": {"namespace", "run"},
    "evalrun_run_preparing_since_timestamp_seconds": {"namespace", "run"},
    "evalrun_run_waiting_for_replicas": {"namespace", "run"},
    "evalrun_gate_passed": {"namespace", "run", "schedule"},
}
OF_SCHEDULE = {"namespace", "schedule"}
SCHEDULES = {
    "evalrun_checkpoint_accepted_at_1": {*OF_SCHEDULE, "dataset"},
    "evalrun_checkpoint_step": OF_SCHEDULE,
    "evalrun_checkpoint_gate_passed": OF_SCHEDULE,
    "evalrun_schedule_started": {*OF_SCHEDULE, "reason"},
    "evalrun_schedule_sound": OF_SCHEDULE,
    "evalrun_schedule_replica_gpu_seconds_total": {*OF_SCHEDULE, "part"},
    "evalrun_schedule_replica_head_crashes_total": OF_SCHEDULE,
    "evalrun_schedule_replicas_unready_since_timestamp_seconds": OF_SCHEDULE,
    "evalrun_schedule_last_start_timestamp_seconds": OF_SCHEDULE,
    "evalrun_schedule_next_start_timestamp_seconds": OF_SCHEDULE,
}


@pytest.mark.parametrize(
    ("service", "wanted"),
    [
        ("Aggregator", AGGREGATOR),
        ("Judge gateway", JUDGE),
        ("Reward service", REWARD),
        ("Slot proxy of a stock SandboxFusion", SLOT_PROXY),
        ("Generator", GENERATOR),
        ("Operator", OPERATOR),
        ("Operator, of schedules", SCHEDULES),
    ],
)
def test_service_exports_its_documented_series_from_the_start(service: str, wanted: dict[str, set[str]]) -> None:
    registry = CollectorRegistry()
    SERVICES[service](registry)
    check([*registry.collect()], wanted)


async def test_sandbox_exports_its_documented_series_from_the_start() -> None:
    sandbox, sessions = await collect_sandbox()
    check(sandbox, SANDBOX)
    check(sessions, LIVE_SESSIONS)


def check(metrics: list[Metric], wanted: dict[str, set[str]]) -> None:
    shown = {name_series(metric): metric for metric in metrics}
    assert {name: labels_of(metric) for name, metric in shown.items()} == wanted
    for metric in shown.values():
        assert metric.documentation
        if metric.type == "histogram":
            bounds = {sample.labels["le"] for sample in metric.samples if sample.name.endswith("_bucket")}
            assert bounds >= LONGEST_SECONDS
            assert bounds - {"+Inf"} == {bound for bound in bounds if bound != "+Inf" and 0.005 <= float(bound) <= 600}
        assert "secret-problem-id" not in {value for sample in metric.samples for value in sample.labels.values()}


def labels_of(metric: Metric) -> set[str]:
    assert metric.samples, f"{metric.name} shows nothing before its first event"
    (labels,) = {frozenset(sample.labels) - {"le"} for sample in metric.samples}
    return set(labels)


def test_every_series_is_on_the_metrics_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
    every = (AGGREGATOR, JUDGE, SANDBOX, LIVE_SESSIONS, SLOT_PROXY, REWARD, GENERATOR, OPERATOR, SCHEDULES)
    assert page.count("| `evalrun_") == sum(map(len, every))
    for name in {name for series in every for name in series}:
        assert f"| `{name}` |" in page
