"""Argo CD's health of our kinds: the shipped Lua, run on what the operator writes."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from builders.operator.world import World
from lupa.lua51 import LuaRuntime  # Argo CD's gopher-lua is Lua 5.1

from evalrun_api.v1alpha1 import REASONS, SCHEDULE_REASONS, ConditionType, Reason, ScheduleCondition, ScheduleReason

PATCH = Path(__file__).parents[3] / "k8s" / "argocd" / "health.yaml"
SCRIPTS: dict[str, str] = {
    key.rpartition("_")[2]: text for key, text in yaml.safe_load(PATCH.read_text(encoding="utf-8"))["data"].items()
}
Said = tuple[str, str]
"""A condition's status and reason."""


def health(kind: str, manifest: dict[str, Any]) -> tuple[str, str]:
    """Return status and message, as Argo CD gets them."""
    lua = LuaRuntime(unpack_returned_tuples=True)
    lua.globals()["obj"] = lua.table_from(manifest, recursive=True)
    answer = cast(dict[str, str], lua.execute(SCRIPTS[kind]))
    return answer["status"], answer["message"]


def manifest_with(conditions: Mapping[Any, Said], seen: int = 2) -> dict[str, Any]:
    listed = [
        {"type": str(kind), "status": status, "reason": reason, "message": f"{kind} says why"}
        for kind, (status, reason) in conditions.items()
    ]
    return {"metadata": {"generation": 2}, "status": {"observedGeneration": seen, "conditions": listed}}


@pytest.mark.parametrize(("kind", "types"), [("EvalRun", ConditionType), ("EvalSchedule", ScheduleCondition)])
def test_the_scripts_ask_for_conditions_that_exist(kind: str, types: Any) -> None:
    called = set(re.findall(r'condition\("(\w+)"\)', SCRIPTS[kind]))
    listed = {name for names in re.findall(r"ipairs\(\{(.*?)\}\)", SCRIPTS[kind]) for name in re.findall(r"\w+", names)}
    assert called | listed <= {str(one) for one in types}
    reasons = set(re.findall(r'one\.reason == "(\w+)"', SCRIPTS[kind]))
    assert reasons <= {str(reason) for reason in ScheduleReason}


@pytest.mark.parametrize("kind", SCRIPTS)
@pytest.mark.parametrize("manifest", [{"metadata": {"generation": 1}}, manifest_with({}, seen=1)])
def test_object_not_yet_observed_by_the_operator_is_progressing(kind: str, manifest: dict[str, Any]) -> None:
    assert health(kind, manifest)[0] == "Progressing"


END: dict[ConditionType, Said] = {
    ConditionType.COMPLETE: ("True", "Finished"), ConditionType.SUCCEEDED: ("True", "Finished"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("conditions", "wanted", "speaks"),
    [
        (END, "Healthy", ConditionType.SUCCEEDED),
        (END | {ConditionType.GATE_PASSED: ("True", "NoRegression")}, "Healthy", ConditionType.SUCCEEDED),
        (END | {ConditionType.GATE_PASSED: ("Unknown", "Inconclusive")}, "Healthy", ConditionType.SUCCEEDED),
        (END | {ConditionType.GATE_PASSED: ("False", "Regression")}, "Degraded", ConditionType.GATE_PASSED),
        (END | {ConditionType.DEGRADED: ("True", "NotJudged")}, "Degraded", ConditionType.DEGRADED),
        ({ConditionType.STALLED: ("True", "CannotStart")}, "Degraded", ConditionType.STALLED),
        ({ConditionType.APPLIED: ("False", "Refused")}, "Degraded", ConditionType.APPLIED),
        ({ConditionType.SUSPENDED: ("True", "SuspendRequested")}, "Suspended", ConditionType.SUSPENDED),
    ],
)
def test_a_run_is_as_well_as_its_conditions(
    conditions: dict[ConditionType, Said], wanted: str, speaks: ConditionType
) -> None:
    assert health("EvalRun", manifest_with(conditions)) == (wanted, f"{speaks} says why")


FAILURES = REASONS[ConditionType.SUCCEEDED] - {Reason.RUNNING, Reason.FINISHED}


@pytest.mark.parametrize("reason", sorted(FAILURES))
def test_every_failure_is_degraded(reason: Reason) -> None:
    ended = {ConditionType.COMPLETE: ("True", reason), ConditionType.SUCCEEDED: ("False", reason)}
    assert health("EvalRun", manifest_with(ended)) == ("Degraded", "Succeeded says why")


def test_a_real_run_is_progressing_until_it_is_healthy() -> None:
    world = World()
    seen: list[str] = []
    for step in (
        world.step, world.settle, world.services_up, world.settle, world.kuberay, world.settle, world.jobs_run,
        world.settle, world.generate_all, world.settle, world.judge_all, world.settle,
    ):  # fmt: skip
        step()
        status, _ = health("EvalRun", world.run.model_dump(mode="json", by_alias=True, exclude_none=True))
        if [status] != seen[-1:]:
            seen.append(status)
    assert (world.status.phase, seen) == ("Succeeded", ["Progressing", "Healthy"])


WAITS = {ScheduleReason.STILL_RUNNING, ScheduleReason.BUDGET_SPENT}


SUSPENDED, REPLICAS_READY = ScheduleCondition.SUSPENDED, ScheduleCondition.REPLICAS_READY
FALSE = [
    (kind, reason)
    for kind, some in SCHEDULE_REASONS.items()
    if kind not in {SUSPENDED, REPLICAS_READY}
    for reason in sorted(some)
]


@pytest.mark.parametrize(("kind", "reason"), FALSE)
def test_schedule_that_needs_action_is_degraded_and_a_waiting_schedule_is_healthy(
    kind: ScheduleCondition, reason: ScheduleReason
) -> None:
    fine = {one: ("True", "x") for one in ScheduleCondition if one is not SUSPENDED}
    wanted = ("Healthy", "Started says why") if reason in WAITS else ("Degraded", f"{kind} says why")
    assert health("EvalSchedule", manifest_with({**fine, kind: ("False", reason)})) == wanted
    assert health("EvalSchedule", manifest_with({**fine, kind: ("Unknown", reason)}))[0] == "Healthy"


def test_a_schedule_whose_replicas_start_or_leave_is_healthy() -> None:
    fine = {one: ("True", "x") for one in ScheduleCondition if one is not SUSPENDED}
    starting = {**fine, REPLICAS_READY: ("False", "ReplicasStarting")}
    assert health("EvalSchedule", manifest_with(starting))[0] == "Healthy"


def test_suspended_schedule_is_suspended_and_a_broken_one_stays_degraded() -> None:
    suspended = {ScheduleCondition.SUSPENDED: ("True", "SuspendRequested")}
    assert health("EvalSchedule", manifest_with(suspended))[0] == "Suspended"
    broken = {ScheduleCondition.ACCEPTED: ("False", "InvalidSchedule")}
    assert health("EvalSchedule", manifest_with(suspended | broken))[0] == "Degraded"
