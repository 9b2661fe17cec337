"""What a run says of its autoscalers, and what becomes of them when they cannot work or the mode is changed."""

from typing import Any

import pytest
from builders.operator.world import World, generating, operator_settings

from evalrun_api.v1alpha1 import ConditionType as Kind
from evalrun_api.v1alpha1 import EvalRunStatus, Reason, find_condition
from evalrun_cluster.errors import RefusedError
from evalrun_operator.lifecycle.reconcile import decide
from evalrun_operator.lifecycle.scaling_words import SETTLE_SECONDS
from evalrun_operator.lifecycle.status_report import replace_applied_condition
from evalrun_operator.observation.discovery import ApiDiscovery
from evalrun_operator.observation.records import ObjectKey
from evalrun_operator.policies.condition_text import RunText

METRICS = "metrics.k8s.io"
FAILED = "the HPA was unable to compute the replica count: no metrics returned from resource metrics API"


def inactive(world: World, kind: str, condition: dict[str, Any]) -> None:
    said = {"status": "False", "lastTransitionTime": world.now.isoformat(), **condition}
    world.objects[ObjectKey(kind, "run-judge")]["status"] = {"conditions": [said]}


def test_working_autoscalers_give_the_reason_measured() -> None:
    world = generating()
    assert (world.condition(Kind.SCALING_ACTIVE).status, world.reason(Kind.SCALING_ACTIVE)) == ("True", "Measured")


def test_judge_of_a_fixed_size_has_no_scaling_condition() -> None:
    fixed = {
        "spec.judge": {"gateway": {"minReplicas": 1, "maxReplicas": 1}, "sandbox": {"minReplicas": 2, "maxReplicas": 2}}
    }
    world = generating(changes=fixed)
    assert find_condition(world.status, Kind.SCALING_ACTIVE) is None
    assert world.of_kind("HorizontalPodAutoscaler") == []


@pytest.mark.parametrize(
    ("mode", "kind", "condition", "remedy"),
    [
        (
            "cpu",
            "HorizontalPodAutoscaler",
            {"type": "ScalingActive", "reason": "FailedGetResourceMetric", "message": FAILED},
            "Install metrics-server",
        ),
        (
            "custom",
            "HorizontalPodAutoscaler",
            {"type": "ScalingActive", "reason": "FailedGetExternalMetric", "message": FAILED},
            "Install a metrics adapter",
        ),
        (
            "keda",
            "ScaledObject",
            {"type": "Ready", "reason": "ScaledObjectCheckFailed", "message": FAILED},
            "See to KEDA and its Prometheus",
        ),
    ],
)
def test_autoscaler_without_measurements_is_reported_with_the_remedy_after_a_while(
    mode: str, kind: str, condition: dict[str, Any], remedy: str
) -> None:
    world = generating(autoscaling=mode)
    inactive(world, kind, condition)
    world.settle()
    assert world.condition(Kind.SCALING_ACTIVE).status == "True"  # a new pod has no measurements yet
    world.tick(SETTLE_SECONDS).settle()
    said = world.condition(Kind.SCALING_ACTIVE)
    assert (said.status, said.reason) == ("False", "NotMeasured")
    assert f"{kind} run-judge: {condition['reason']}: {FAILED}. {remedy}" in said.message
    assert world.status.phase == "Generating"


@pytest.mark.parametrize(("mode", "kind"), [("cpu", "HorizontalPodAutoscaler"), ("keda", "ScaledObject")])
def test_an_autoscaler_that_is_refused_counts_as_none(mode: str, kind: str) -> None:
    world = generating(autoscaling=mode)
    del world.objects[ObjectKey(kind, "run-judge")]

    def status() -> EvalRunStatus:
        return decide(world.run, world.observed(), world.settings, world.now, "token").status

    assert find_condition(status(), Kind.SCALING_ACTIVE) is None  # it is being made
    refusal = RunText("False", Reason.REFUSED, f"Creating {kind} run-judge: 403.")
    told = replace_applied_condition(world.status, world.status, refusal, 1, world.now)
    world.run = world.run.model_copy(update={"status": told})
    said = find_condition(status(), Kind.SCALING_ACTIVE)
    assert said is not None
    assert (said.status, said.reason) == ("False", "NotMeasured")
    assert said.message.startswith(f"{kind} run-judge is not there: the condition Applied says")
    assert world.settle().condition(Kind.SCALING_ACTIVE).status == "True"


def kedas_autoscaler(world: World, owner: str) -> None:
    """Add the HorizontalPodAutoscaler that KEDA makes of the gateways' ScaledObject, whose labels it copies."""
    made = world.objects[ObjectKey("ScaledObject", "run-judge")]["metadata"]
    failed = {"type": "ScalingActive", "status": "False", "reason": "FailedGetExternalMetric", "message": FAILED}
    world.objects[ObjectKey("HorizontalPodAutoscaler", "keda-hpa-run-judge")] = {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": "keda-hpa-run-judge", "uid": "keda-hpa", "labels": made["labels"], "annotations": {},
            "ownerReferences": [{"kind": "ScaledObject", "name": "run-judge", "uid": owner, "controller": True}],
        },
        "status": {"conditions": [{**failed, "lastTransitionTime": world.now.isoformat()}]},
    }  # fmt: skip


def test_missing_keda_is_recognized_by_the_autoscaler_that_keda_made() -> None:
    """The ScaledObjects of a KEDA that is gone say for good that all is well."""
    world = generating(autoscaling="keda")
    kedas_autoscaler(world, world.objects[ObjectKey("ScaledObject", "run-judge")]["metadata"]["uid"])
    world.tick(SETTLE_SECONDS).settle()
    said = world.condition(Kind.SCALING_ACTIVE)
    assert (said.status, said.reason) == ("False", "NotMeasured")
    assert f"HorizontalPodAutoscaler keda-hpa-run-judge: FailedGetExternalMetric: {FAILED}. See to KEDA" in said.message
    assert "keda-hpa-run-judge" in world.of_kind("HorizontalPodAutoscaler")  # not ours to take away


def test_autoscaler_with_copied_labels_is_ignored() -> None:
    world = generating(autoscaling="keda")
    kedas_autoscaler(world, "of something else")
    assert world.tick(SETTLE_SECONDS).settle().condition(Kind.SCALING_ACTIVE).status == "True"


def test_fallback_of_keda_is_reported_although_the_scaled_object_is_ready() -> None:
    world = generating(autoscaling="keda")
    world.objects[ObjectKey("ScaledObject", "run-judge")]["metadata"]["creationTimestamp"] = world.now.isoformat()
    world.objects[ObjectKey("ScaledObject", "run-judge")]["status"] = {
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "Fallback", "status": "True"}]
    }
    assert (
        world.settle().condition(Kind.SCALING_ACTIVE).status == "True"
    )  # its conditions have no times, but it is young
    said = world.tick(SETTLE_SECONDS).settle().condition(Kind.SCALING_ACTIVE)
    assert said.reason == "NotMeasured"
    assert "KEDA gets no measurements and holds the size. See to KEDA and its Prometheus." in said.message


ZERO = {"spec.judge": {"sandbox": {"minReplicas": 0, "maxReplicas": 4}}}


@pytest.mark.parametrize(
    ("mode", "changes", "says"),
    [
        ("keda", ZERO, "KEDA starts a pod when it next looks"),
        ("cpu", None, "Somebody set it, and an autoscaler leaves it so: scale it to 1."),
    ],
)
def test_judge_of_size_zero_with_waiting_answers_is_reported_until_a_pod_exists(
    mode: str, changes: dict[str, Any] | None, says: str
) -> None:
    world = generating(changes=changes, autoscaling=mode)
    sandboxes = world.objects[ObjectKey("Deployment", "run-sandbox")]
    sandboxes["spec"]["replicas"] = 0
    world.services_up().settle()
    assert world.reason(Kind.JUDGED) == "WaitingForCompletions"  # nothing waits yet: a judge at rest is as it should be
    world.generated = 5
    world.settle()
    said = world.condition(Kind.JUDGED)
    assert (said.status, said.reason) == ("False", "WaitingForServices")
    assert f"5 answers wait, and Deployment run-sandbox has 0 replicas. {says}" in said.message
    assert world.reason(Kind.GENERATED) == "Generating"
    sandboxes["spec"]["replicas"] = 1
    world.services_up(ready=False).settle()
    assert "sandbox not ready yet" in world.condition(Kind.JUDGED).message
    world.services_up().settle()
    assert world.reason(Kind.JUDGED) == "Judging"


def test_judge_set_to_zero_is_not_reported_as_unmeasured() -> None:
    world = generating()
    inactive(world, "HorizontalPodAutoscaler", {"type": "ScalingActive", "reason": "ScalingDisabled", "message": "0"})
    assert world.tick(SETTLE_SECONDS).settle().condition(Kind.SCALING_ACTIVE).status == "True"


@pytest.mark.parametrize(("mode", "group"), [("cpu", METRICS), ("custom", "external.metrics.k8s.io")])
def test_autoscaler_is_not_created_without_its_metrics_api(mode: str, group: str) -> None:
    """Without metrics-server a HorizontalPodAutoscaler records an event every 15 s, and scales nothing."""
    world = World(missing_groups=frozenset({group}), settings=operator_settings(autoscaling=mode)).settle()
    world.services_up().settle()
    assert world.of_kind("HorizontalPodAutoscaler") == []
    assert world.objects[ObjectKey("Deployment", "run-judge")]["spec"]["replicas"] == 1
    said = world.condition(Kind.SCALING_ACTIVE)
    assert (said.status, said.reason) == ("False", "NotMeasured")
    assert f"The cluster serves no {group}. Install" in said.message
    world.missing_groups = frozenset()  # it was installed since
    world.settle()
    assert world.of_kind("HorizontalPodAutoscaler") == ["run-judge", "run-sandbox"]
    world.missing_groups = frozenset({group})  # and taken away: what it has scaled to stays
    world.settle()
    assert world.of_kind("HorizontalPodAutoscaler") == ["run-judge", "run-sandbox"]


@pytest.mark.parametrize(("before", "after"), [("cpu", "keda"), ("keda", "cpu")])
def test_a_change_of_the_mode_in_mid_run_leaves_no_orphan(before: str, after: str) -> None:
    kinds = {"cpu": "HorizontalPodAutoscaler", "keda": "ScaledObject"}
    world = generating(autoscaling=before)
    assert world.of_kind(kinds[before])
    world.settings = operator_settings(autoscaling=after)
    world.settle().finalize().settle()
    assert world.of_kind(kinds[before]) == []
    assert world.of_kind(kinds[after]) == ["run-judge", "run-sandbox"]


class Groups:
    """Serves some API groups; others it cannot tell about."""

    def __init__(self, served: dict[str, bool]) -> None:
        self.served = served

    async def serves_group(self, group: str) -> bool:
        if group not in self.served:
            raise RefusedError("403")
        return self.served[group]


async def test_api_group_that_cannot_be_queried_keeps_its_known_state() -> None:
    groups, missing = Groups({METRICS: False}), {"external.metrics.k8s.io"}
    discovery = ApiDiscovery(groups, [METRICS, "external.metrics.k8s.io"], missing)
    await discovery.look()
    assert missing == {METRICS, "external.metrics.k8s.io"}
    groups.served = {METRICS: True}
    await discovery.look()
    assert missing == {"external.metrics.k8s.io"}
