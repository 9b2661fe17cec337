"""What a user writes into the spec stands in the objects: one row a field, and where it must be."""

import json
from typing import Any

import pytest
from builders.operator.world import UID, evalrun, operator_settings

from evalrun_api import names
from evalrun_api.quantities import amount
from evalrun_api.v1alpha1.placement import PARTS, Part
from evalrun_cluster.objects import Object
from evalrun_operator import resources
from evalrun_operator.lifecycle.acceptance import explain_unsupported_spec
from evalrun_operator.lifecycle.situation import make_identity
from evalrun_operator.policies.worker_count import Workers
from evalrun_operator.resources import RunPlan

SECRETS = [{"name": "registry"}, {"name": "mirror"}]
TAINT = {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}


def made_of(changes: dict[str, Any], *, rollout: bool = True, **settings: Any) -> dict[str, Object]:
    """Return everything that a run makes, by kind and name."""
    run = evalrun(changes, rollout=rollout)
    plan = RunPlan(make_identity(run), run.spec, operator_settings(**settings), "token")
    judge = plan.spec.own_judge
    made = [resources.ledger_claim(plan), resources.aggregator_stateful_set(plan), resources.order_config_map(plan)]
    if judge is not None:
        made += [resources.judge_deployment(plan, judge, 1), resources.sandbox_deployment(plan, judge, 1)]
        made += [resources.judge_disruption_budget(plan), *resources.network_policies(plan)]
    if plan.spec.rollout is not None:
        made.append(resources.ray_cluster(plan, plan.spec.rollout, 1, Workers(2)))
    else:
        made.append(resources.generator_job(plan, plan.spec.endpoints or [], 1))
    return {f"{item['kind']}/{item['metadata']['name']}": item for item in made}


def templates(made: dict[str, Object]) -> dict[str, Object]:
    """Return every pod template, by what it belongs to."""
    found = {name: item["spec"]["template"] for name, item in made.items() if "template" in item.get("spec", {})}
    for name, item in made.items():
        if item["kind"] == "RayCluster":
            found[f"{name} head"] = item["spec"]["headGroupSpec"]["template"]
            found[f"{name} worker"] = item["spec"]["workerGroupSpecs"][0]["template"]
    return found


def variable(template: Object, name: str) -> Object:
    (found,) = (entry for entry in template["spec"]["containers"][0]["env"] if entry["name"] == name)
    return dict(found)


def of_secret(name: str, key: str) -> Object:
    return {"secretKeyRef": {"name": name, "key": key}}


@pytest.mark.parametrize("rollout", [True, False])
def test_every_pod_is_pulled_with_the_runs_secrets(rollout: bool) -> None:
    pods = templates(made_of({"spec.imagePullSecrets": SECRETS}, rollout=rollout))
    assert len(pods) == 5 if rollout else 4
    assert all(pod["spec"]["imagePullSecrets"] == SECRETS for pod in pods.values())
    assert not any("imagePullSecrets" in pod["spec"] for pod in templates(made_of({}, rollout=rollout)).values())


@pytest.mark.parametrize(
    ("rollout", "whose"),
    [
        (True, {"StatefulSet/run-aggregator", "RayCluster/run-0f3b2-ray-1 head", "RayCluster/run-0f3b2-ray-1 worker"}),
        (False, {"StatefulSet/run-aggregator", "Job/run-0f3b2-gen-1"}),
    ],
)
def test_service_account_is_used_only_by_pods_that_read_buckets(rollout: bool, whose: set[str]) -> None:
    pods = templates(made_of({"spec.serviceAccountName": "reader"}, rollout=rollout))
    assert {name for name, pod in pods.items() if pod["spec"].get("serviceAccountName") == "reader"} == whose


GOVERNED: Object = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}


@pytest.mark.parametrize("by", ["spec", "chart"])
def test_in_a_governed_namespace_every_container_has_limits_and_every_pod_its_labels(by: str) -> None:
    """As a quota of limits.cpu, a LimitRange of 1Gi and a policy on labels ask for."""
    notes = {"labels": {"team": "evals"}, "annotations": {"cost-centre": "42"}}
    spec: dict[str, Any] = {"spec.judge.sandbox.slots": 1}
    settings: dict[str, Any] = {"sandbox_slot_memory_mib": 1024}
    if by == "spec":
        parts = ("aggregator", "generator", "judge.gateway", "judge.sandbox")
        spec |= {f"spec.{part}.resources": GOVERNED for part in parts} | {"spec.pods": notes}
    else:
        settings |= {f"{part}_resources": GOVERNED for part in ("aggregator", "generator", "gateway")}
        settings |= {"pod_labels": notes["labels"], "pod_annotations": notes["annotations"]}
    pods = templates(made_of(spec, rollout=False, **settings))
    assert len(pods) == 4
    for name, pod in pods.items():
        assert pod["metadata"]["labels"].items() >= notes["labels"].items(), name
        assert pod["metadata"]["labels"]["evalrun.dev/run-uid"] == UID
        assert pod["metadata"]["annotations"].items() >= notes["annotations"].items(), name
        for container in pod["spec"]["containers"]:
            limits = container["resources"]["limits"]
            assert limits["cpu"] == "1", name
            assert amount(limits["memory"]) <= amount("1Gi"), name


def test_on_gpus_every_container_has_limits_too() -> None:
    pods = templates(made_of({"spec.model.path": "s3://checkpoints/step_7"}))
    for name in ("head", "worker"):
        (pod,) = (pod for key, pod in pods.items() if key.endswith(f" {name}"))
        for container in [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]:
            assert {"cpu", "memory"} <= container["resources"]["limits"].keys(), container["name"]
    fetching = pod["spec"]["initContainers"][0]["resources"]
    assert "nvidia.com/gpu" not in fetching["limits"]
    assert fetching["limits"]["memory"] == pod["spec"]["containers"][0]["resources"]["limits"]["memory"]


def test_ray_head_has_the_resources_of_the_rollout() -> None:
    pods = templates(made_of({"spec.rollout.headResources": GOVERNED}))
    assert pods["RayCluster/run-0f3b2-ray-1 head"]["spec"]["containers"][0]["resources"] == GOVERNED


def test_a_run_cannot_take_the_labels_that_select_its_pods() -> None:
    pods = templates(made_of({}, pod_labels={"evalrun.dev/run-uid": "x", "team": "a"}))
    assert {pod["metadata"]["labels"]["evalrun.dev/run-uid"] for pod in pods.values()} == {UID}


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ("aggregator", "spec.aggregator.resources"),
        ("generator", "spec.generator.resources"),
        ("judge.gateway", "spec.judge.gateway.resources"),
        ("judge.sandbox", "spec.judge.sandbox.resources"),
    ],
)
def test_requests_above_their_limit_are_refused_before_anything_is_made(part: str, field: str) -> None:
    run = evalrun({f"spec.{part}.resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}, rollout=False)
    assert explain_unsupported_spec(run, operator_settings()).startswith(
        f"{field}: requests more cpu than its limit: raise limits"
    )


def test_placement_of_the_rollout_applies_to_gpu_workers_only() -> None:
    changes = {"spec.rollout.nodeSelector": {"gpu": "h200"}, "spec.rollout.tolerations": [TAINT]}
    pods = templates(made_of(changes))
    worker = pods.pop("RayCluster/run-0f3b2-ray-1 worker")["spec"]
    assert (worker["nodeSelector"], worker["tolerations"][0]) == ({"gpu": "h200"}, TAINT)
    assert not [name for name, pod in pods.items() if "nodeSelector" in pod["spec"]]
    assert not [name for name, pod in pods.items() if TAINT in pod["spec"].get("tolerations", ())]


@pytest.mark.parametrize("rollout", [True, False])
def test_all_pods_but_the_aggregators_leave_a_lost_node_soon(rollout: bool) -> None:
    changes = {"spec.placement": {"sandbox": {"tolerations": [TAINT]}}}
    leaving = {
        name: {one["key"]: one["tolerationSeconds"] for one in pod["spec"]["tolerations"] if one != TAINT}
        for name, pod in templates(made_of(changes, rollout=rollout)).items()
        if "tolerations" in pod["spec"]
    }
    soon = {"node.kubernetes.io/not-ready": 60, "node.kubernetes.io/unreachable": 60}
    sooner = dict.fromkeys(soon, 25)  # their grace period comes on top
    generating = ["RayCluster/run-0f3b2-ray-1 head", "RayCluster/run-0f3b2-ray-1 worker"]
    working = dict.fromkeys(generating if rollout else ["Job/run-0f3b2-gen-1"], sooner)
    assert leaving == {"Deployment/run-judge": soon, "Deployment/run-sandbox": soon, **working}


AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
    {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["untrusted"]}]}
]}}}  # fmt: skip
PLACEMENT: dict[str, Any] = {
    "nodeSelector": {"pool": "untrusted"},
    "tolerations": [{"key": "untrusted", "operator": "Exists"}],
    "affinity": AFFINITY,
    "topologySpread": [{"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}],
    "priorityClassName": "low",
    "schedulerName": "packer",
    "labels": {"tier": "hostile"},
    "annotations": {"note": "untrusted"},
}
POD_OF = {
    "sandbox": "Deployment/run-sandbox", "gateway": "Deployment/run-judge", "aggregator": "StatefulSet/run-aggregator",
    "generator": "Job/run-0f3b2-gen-1", "rayHead": "RayCluster/run-0f3b2-ray-1 head",
    "rayWorkers": "RayCluster/run-0f3b2-ray-1 worker",
}  # fmt: skip


def test_every_part_with_a_placement_has_a_pod_template() -> None:
    assert set(POD_OF) == set(PARTS)


@pytest.mark.parametrize("by", ["spec", "chart"])
@pytest.mark.parametrize("part", PARTS)
def test_placement_of_a_part_applies_to_that_part_only(part: Part, by: str) -> None:
    rollout = part.startswith("ray")
    given = {part: PLACEMENT}
    placed = made_of({"spec.placement": given}, rollout=rollout) if by == "spec" else made_of(
        {}, rollout=rollout, placement=given
    )  # fmt: skip
    pods, plain = templates(placed), templates(made_of({}, rollout=rollout))
    pod = pods.pop(POD_OF[part])
    spec = pod["spec"]
    assert (spec["nodeSelector"], spec["affinity"]) == (PLACEMENT["nodeSelector"], AFFINITY)
    assert spec["tolerations"][0] == {"key": "untrusted", "operator": "Exists"}
    assert (spec["priorityClassName"], spec["schedulerName"]) == ("low", "packer")
    (spread,) = spec["topologySpreadConstraints"]
    selector = spread.pop("labelSelector")["matchLabels"]
    assert spread == {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}
    node = {"ray.io/node-type": part.removeprefix("ray").lower().rstrip("s")} if rollout else {}
    assert selector.items() <= (pod["metadata"]["labels"] | node).items()
    assert selector["evalrun.dev/run-uid"] == UID
    assert pod["metadata"]["labels"]["tier"] == "hostile"
    assert pod["metadata"]["annotations"]["note"] == "untrusted"
    assert pods == {name: one for name, one in plain.items() if name != POD_OF[part]}


def test_the_specs_placement_wins_field_by_field_over_the_charts() -> None:
    chart = {"sandbox": {"nodeSelector": {"pool": "a"}, "schedulerName": "packer", "labels": {"x": "1", "y": "1"}}}
    spec = {"sandbox": {"nodeSelector": {"disk": "ssd"}, "labels": {"y": "3"}}}
    made = made_of({"spec.placement": spec, "spec.pods": {"labels": {"x": "2", "y": "2"}}}, placement=chart)
    pod = templates(made)["Deployment/run-sandbox"]
    assert (pod["spec"]["nodeSelector"], pod["spec"]["schedulerName"]) == ({"disk": "ssd"}, "packer")
    assert (pod["metadata"]["labels"]["x"], pod["metadata"]["labels"]["y"]) == ("2", "3")


def test_a_rollouts_own_fields_win_over_the_charts() -> None:
    chart = {"rayWorkers": {"nodeSelector": {"gpu": "any"}, "priorityClassName": "low"}}
    made = made_of({"spec.rollout.nodeSelector": {"gpu": "h200"}}, placement=chart)
    worker = templates(made)["RayCluster/run-0f3b2-ray-1 worker"]["spec"]
    assert (worker["nodeSelector"], worker["priorityClassName"]) == ({"gpu": "h200"}, "low")


@pytest.mark.parametrize(
    ("spec", "chart", "name"),
    [
        ({}, {}, "nvidia.com/gpu"),
        ({}, {"gpu_resource": "amd.com/gpu"}, "amd.com/gpu"),
        ({"spec.rollout.gpuResource": "nvidia.com/mig-3g.40gb"}, {}, "nvidia.com/mig-3g.40gb"),
        ({"spec.rollout.gpuResource": "intel.com/xe"}, {"gpu_resource": "amd.com/gpu"}, "intel.com/xe"),
    ],
)
def test_gpu_resource_name_comes_from_the_spec_else_the_chart(
    spec: dict[str, Any], chart: dict[str, Any], name: str
) -> None:
    made = made_of({**spec, "spec.model.path": "s3://checkpoints/step_7"}, **chart)
    pod = templates(made)["RayCluster/run-0f3b2-ray-1 worker"]["spec"]
    devices = {key: value for key, value in pod["containers"][0]["resources"]["limits"].items() if "/" in key}
    assert devices == {name: "8"}
    assert not [key for key in pod["initContainers"][0]["resources"]["limits"] if "/" in key]
    (group,) = made["RayCluster/run-0f3b2-ray-1"]["spec"]["workerGroupSpecs"]
    assert group["rayStartParams"]["num-gpus"] == "8"  # Ray is told of a device whose name KubeRay does not know


def test_keys_are_named_and_never_copied() -> None:
    changes = {
        "spec.model.tokenSecretRef": {"name": "hub", "key": "hf"},
        "spec.exports": {"wandb": {"project": "p", "secretRef": {"name": "wandb", "key": "api"}}},
        "spec.output": {"url": "s3://b/x", "credentialsSecretRef": {"name": "bucket"}},
        "spec.attest": {"keySecretRef": {"name": "signing", "key": "key.pem"}},
    }
    pods = templates(made_of(changes))
    for part in ("head", "worker"):
        assert variable(pods[f"RayCluster/run-0f3b2-ray-1 {part}"], "HF_TOKEN")["valueFrom"] == of_secret("hub", "hf")
    aggregator = pods["StatefulSet/run-aggregator"]
    assert variable(aggregator, "EVALRUN_AGGREGATOR_ATTEST_KEY")["valueFrom"] == of_secret("signing", "key.pem")
    assert variable(aggregator, "WANDB_API_KEY")["valueFrom"] == of_secret("wandb", "api")
    assert aggregator["spec"]["containers"][0]["envFrom"] == [{"secretRef": {"name": "bucket"}}]
    mlflow = made_of({"spec.exports": {"mlflow": {"trackingURI": "http://m:1", "secretRef": {"name": "mlflow"}}}})
    sources = templates(mlflow)["StatefulSet/run-aggregator"]["spec"]["containers"][0]["envFrom"]
    assert sources == [{"secretRef": {"name": "mlflow"}}]


def test_an_endpoints_key_is_the_generators_alone() -> None:
    key = {"name": "vllm", "key": "api"}
    pods = templates(made_of({"spec.endpoints.0.apiKeySecretRef": key}, rollout=False))
    job = pods.pop("Job/run-0f3b2-gen-1")
    assert variable(job, "EVALRUN_GENERATOR_API_KEY")["valueFrom"] == of_secret("vllm", "api")
    assert '"vllm"' not in json.dumps(pods)


@pytest.mark.parametrize("field", ["promptTemplate", "grader.path"])
def test_the_volume_of_a_small_file_is_mounted_where_it_is_read(field: str) -> None:
    made = made_of({f"spec.datasets.0.{field}": "pvc://prompts/mine"})
    order = made["ConfigMap/run-order"]["data"][names.ORDER_FILE]
    assert f'"{names.CLAIMS_DIRECTORY}/prompts/mine"' in order  # a pod knows no pvc://
    assert "pvc://prompts" not in order
    pods = templates(made)
    volumes = pods.pop("StatefulSet/run-aggregator")["spec"]["volumes"]
    assert [v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v].count(
        "prompts"
    ) == 1
    assert '"prompts"' not in json.dumps(pods)


def test_requests_in_flight_at_each_endpoint_reach_the_generator() -> None:
    endpoints = [{"url": "http://a:1/v1", "maxConcurrentRequests": 3}, {"url": "http://b:1/v1"}]
    job = templates(made_of({"spec.endpoints": endpoints}, rollout=False))["Job/run-0f3b2-gen-1"]
    assert "--concurrency=3,256" in job["spec"]["containers"][0]["args"]


def test_attempt_is_one_pod_and_a_drained_node_is_no_failure() -> None:
    job = made_of({}, rollout=False)["Job/run-0f3b2-gen-1"]["spec"]
    assert job["backoffLimit"] == 0  # attempts are counted by the operator
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


@pytest.mark.parametrize("part", ["judge", "sandbox"])
def test_pods_of_a_part_are_spread_over_nodes_and_wait_for_none(part: str) -> None:
    made = made_of({})
    pod = templates(made)[f"Deployment/run-{part}"]
    (rule,) = pod["spec"]["topologySpreadConstraints"]
    assert (rule["topologyKey"], rule["maxSkew"]) == ("kubernetes.io/hostname", 1)
    assert rule["whenUnsatisfiable"] == "ScheduleAnyway"  # a cluster of one node must do
    assert rule["labelSelector"] == made[f"Deployment/run-{part}"]["spec"]["selector"]


def test_a_drain_takes_one_gateway_at_a_time() -> None:
    made = made_of({})
    budget, gateways = made["PodDisruptionBudget/run-judge"], made["Deployment/run-judge"]
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"] == gateways["spec"]["selector"]
    assert (
        budget["spec"]["selector"]["matchLabels"].items()
        <= templates(made)["Deployment/run-judge"]["metadata"]["labels"].items()
    )


def test_an_owner_is_the_controller_and_is_deleted_last_where_that_is_asked_for() -> None:
    owners = [owner for item in made_of({}).values() for owner in item["metadata"].get("ownerReferences", ())]
    expected = {
        "apiVersion": "evalrun.dev/v1alpha1", "kind": "EvalRun", "name": "run", "uid": UID, "controller": True,
        "blockOwnerDeletion": True,
    }  # fmt: skip
    assert owners
    assert all(owner == expected for owner in owners)


def test_the_ledgers_volume_is_as_asked_for() -> None:
    made = made_of({"spec.aggregator": {"storage": {"size": "40Gi", "className": "fast-block"}}})
    claim = made[f"PersistentVolumeClaim/run-ledger-{UID[:8]}"]["spec"]
    assert claim["resources"]["requests"]["storage"] == "40Gi"
    assert (claim["storageClassName"], claim["accessModes"]) == ("fast-block", ["ReadWriteOnce"])
    assert "storageClassName" not in made_of({})[f"PersistentVolumeClaim/run-ledger-{UID[:8]}"]["spec"]
    asked = {"requests": {"cpu": "3", "memory": "5Gi"}, "limits": {"memory": "9Gi"}}
    pod = templates(made_of({"spec.aggregator": {"resources": asked}}))["StatefulSet/run-aggregator"]
    assert pod["spec"]["containers"][0]["resources"] == asked


@pytest.mark.parametrize(
    ("path", "whose"),
    [
        ("spec.judge.gateway.image", "Deployment/run-judge"),
        ("spec.judge.sandbox.image", "Deployment/run-sandbox"),
        ("spec.rollout.image", "RayCluster/run-0f3b2-ray-1 head"),
        ("spec.rollout.image", "RayCluster/run-0f3b2-ray-1 worker"),
    ],
)
def test_an_image_of_the_spec_wins_over_the_charts(path: str, whose: str) -> None:
    pods = templates(made_of({path: "registry.test/own:7"}, image_pull_policy="Always"))
    container = pods[whose]["spec"]["containers"][0]
    assert (container["image"], container["imagePullPolicy"]) == ("registry.test/own:7", "Always")


@pytest.mark.parametrize(("component", "load", "threshold"), [("judge", 20, 16), ("sandbox", 8, 6), ("sandbox", 1, 1)])
def test_scalers_aim_at_four_fifths_of_the_slots(component: str, load: float, threshold: int) -> None:
    run = evalrun()
    for mode in ("keda", "custom"):
        plan = RunPlan(make_identity(run), run.spec, operator_settings(autoscaling=mode), "token")
        scaler = resources.autoscaler(plan, component, 1, 4, load)
        assert scaler is not None
        spec = scaler["spec"]
        if mode == "keda":
            assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (1, 4)
            assert spec["triggers"][0]["metadata"]["threshold"] == str(threshold)
        else:
            assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 4)
            assert spec["metrics"][0]["external"]["target"] == {"type": "AverageValue", "averageValue": str(threshold)}


def test_every_file_of_a_dataset_that_lies_on_a_claim_is_mounted_and_named_by_its_path() -> None:
    fields = ("source", "manifest", "promptTemplate")
    changes: dict[str, Any] = {f"spec.datasets.0.{field}": f"pvc://{field.lower()}/file.jsonl" for field in fields}
    made = made_of({**changes, "spec.datasets.0.grader": {"path": "pvc://grader/file.jsonl"}}, rollout=False)
    (aggregator,) = made["StatefulSet/run-aggregator"]["spec"]["template"]["spec"]["containers"]
    mounts = {mount["mountPath"] for mount in aggregator["volumeMounts"]}
    (order,) = (item["data"][names.ORDER_FILE] for name, item in made.items() if name.startswith("ConfigMap/"))
    (dataset,) = json.loads(order)["spec"]["datasets"]
    places = [*(dataset[field] for field in fields), dataset["grader"]["path"]]
    assert places == [f"{names.claim_directory(claim)}/file.jsonl" for claim in (*map(str.lower, fields), "grader")]
    assert {place.rpartition("/")[0] for place in places} <= mounts
