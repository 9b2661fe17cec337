"""The series that dashboards, alerts and autoscalers rely on: every one is there before anything has happened."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.metrics_core import Metric

from evalrun_aggregator.ledger.item_states import ItemStates
from evalrun_aggregator.ledger.items import DatasetItems, RunItems
from evalrun_aggregator.telemetry import ReplicaGauge, Telemetry
from evalrun_api.v1alpha1 import (
    Condition,
    ConditionType,
    DatasetStatus,
    EvalRunStatus,
    EvalScheduleStatus,
    KeptReplicas,
    LatestResult,
    Reason,
    ScheduleCondition,
)
from evalrun_executor.executor import Executor, ExecutorPlan
from evalrun_generator import endpoint_reports
from evalrun_judge.metrics import JudgeMetrics
from evalrun_operator.metrics import OperatorMetrics, RunSubject
from evalrun_operator.schedules.metrics import ScheduleMetrics
from evalrun_reward.metrics import RewardMetrics
from evalrun_sandbox.app import SandboxService
from evalrun_sandbox.sessions.interpreter import Interpreters
from evalrun_sandbox.sessions.sessions import Sessions
from evalrun_sandbox.settings import SandboxSettings
from evalrun_sandbox.slot_proxy.proxy import SlotProxy
from evalrun_sandbox.slot_proxy.settings import SlotProxySettings

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


def of_an_aggregator(registry: CollectorRegistry) -> None:
    telemetry = Telemetry("r", "n", registry, started_at=0.0, price=(2.5, "USD"))
    item_states = ItemStates(RunItems([DatasetItems("d", ["secret-problem-id"])]))
    telemetry.observe(item_states, lambda: [ReplicaGauge(up=True, in_flight=0)], float)


def of_a_judge(registry: CollectorRegistry) -> None:
    JudgeMetrics(registry)


def of_a_reward_service(registry: CollectorRegistry) -> None:
    RewardMetrics(registry)


def of_a_slot_proxy(registry: CollectorRegistry) -> None:
    SlotProxy(SlotProxySettings(slots=2), registry)


def of_a_generator(registry: CollectorRegistry) -> None:
    for gauge in (endpoint_reports.IN_FLIGHT, endpoint_reports.UP):
        assert isinstance(gauge, Gauge)
        gauge.labels("0").set(1.0)
        registry.register(gauge)


def of_an_operator(registry: CollectorRegistry) -> None:
    passed = Condition(
        type=ConditionType.GATE_PASSED, status="True", reason="NoRegression", message="",
        last_transition_time="2026-01-01T00:00:00Z",
    )  # fmt: skip
    dataset = DatasetStatus(name="d", total=1, accepted_at_1="0.5")
    applied = passed.model_copy(update={"type": ConditionType.APPLIED, "reason": "AllApplied"})
    then = passed.last_transition_time
    status = EvalRunStatus(phase="Succeeded", conditions=[passed], datasets=[dataset], completion_time=then)
    metrics = OperatorMetrics(registry)
    metrics.lost_namespaces = lambda: {"team-b": "forbidden"}
    metrics.show(("n", "r"), status, subject=RunSubject("m", "120", "grpo"))
    waits = passed.model_copy(
        update={"type": ConditionType.ADMITTED, "status": "False", "reason": Reason.WAITING_FOR_REPLICAS}
    )
    metrics.show(("n", "s"), EvalRunStatus(phase="Preparing", conditions=[applied, waits], start_time=then))


def of_schedules(registry: CollectorRegistry) -> None:
    result = LatestResult(run="r", step=120, gate="False", datasets=[DatasetStatus(name="d", accepted_at_1="0.5")])
    due = "2026-01-02T03:00:00Z"
    starting = Condition(
        type=ScheduleCondition.REPLICAS_READY, status="False", reason="ReplicasStarting", message="",
        last_transition_time=due,
    )  # fmt: skip
    status = EvalScheduleStatus(
        latest_result=result, last_schedule_time=due, next_schedule_time=due, replicas=KeptReplicas(),
        conditions=[starting],
    )  # fmt: skip
    ScheduleMetrics(registry).show(("n", "nightly"), status)


@pytest.mark.parametrize(
    ("register", "wanted"),
    [
        (of_an_aggregator, AGGREGATOR),
        (of_a_judge, JUDGE),
        (of_a_reward_service, REWARD),
        (of_a_slot_proxy, SLOT_PROXY),
        (of_a_generator, GENERATOR),
        (of_an_operator, OPERATOR),
        (of_schedules, SCHEDULES),
    ],
)
def test_a_service_shows_these_series_from_the_start(
    register: Callable[[CollectorRegistry], None], wanted: dict[str, set[str]]
) -> None:
    registry = CollectorRegistry()
    register(registry)
    check(registry, wanted)


async def test_a_sandbox_shows_these_series_from_the_start() -> None:
    registry = CollectorRegistry()
    executor = Executor(ExecutorPlan(slots=1, required="none", allow_uncontained=True))
    SandboxService(SandboxSettings(), executor, registry)
    await executor.start()  # it is scraped only once it serves
    try:
        check(registry, SANDBOX)
        limits = SandboxSettings(max_sessions=1).session_limits()
        sessions = Sessions(executor, Interpreters(executor.zygote_plan), limits, registry)
        check(registry, SANDBOX | LIVE_SESSIONS)
        await sessions.close()
    finally:
        await executor.close()


def check(registry: CollectorRegistry, wanted: dict[str, set[str]]) -> None:
    shown = {name_of(metric): metric for metric in registry.collect()}
    assert {name: labels_of(metric) for name, metric in shown.items()} == wanted
    for metric in shown.values():
        assert metric.documentation
        if metric.type == "histogram":
            bounds = {sample.labels["le"] for sample in metric.samples if sample.name.endswith("_bucket")}
            assert bounds >= LONGEST_SECONDS
            assert bounds - {"+Inf"} == {bound for bound in bounds if bound != "+Inf" and 0.005 <= float(bound) <= 600}
        assert "secret-problem-id" not in {value for sample in metric.samples for value in sample.labels.values()}


def name_of(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def labels_of(metric: Metric) -> set[str]:
    assert metric.samples, f"{metric.name} shows nothing before its first event"
    (labels,) = {frozenset(sample.labels) - {"le"} for sample in metric.samples}
    return set(labels)


def test_every_series_is_described_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "observability.md").read_text()
    for name in {**AGGREGATOR, **JUDGE, **SANDBOX, **LIVE_SESSIONS, **REWARD, **GENERATOR, **OPERATOR, **SCHEDULES}:
        short = re.sub("^evalrun_(judge|reward|sandbox)", "", name)  # of the series after the first in a row
        assert f"`{name}" in page or f"`{short}" in page, name
