"""The chart's admission policies on a real API server: what users may ask for, and what the operator may write."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from builders.cluster.chart import ROOT, Chart, Object, Values
from builders.cluster.controllers import apply_crds
from builders.cluster.controlplane import (
    ControlPlane,
    MissingBinariesError,
    find_binaries,
    until,
)
from builders.operator.allow_list_cases import ALLOWED, BEYOND, OUTPUT, REGISTRY, WITHIN, run_of
from builders.operator.allow_list_cases import TRUSTED as TRUSTED_LISTS
from builders.operator.evalschedules import evalschedule_manifest
from builders.operator.world import evalrun, operator_settings
from builders.tools import missing

from evalrun_operator import resources
from evalrun_operator.lifecycle.situation import make_identity
from evalrun_operator.resources import RunPlan
from evalrun_operator.resources.run_tokens import new_tokens

SYSTEM, TENANT, TRUSTED = "policies-system", "policies-tenant", "policies-trusted"
VALUES = {
    "images": {"registry": REGISTRY},
    "sharedJudge": {"enabled": True},
    "admission": {
        "allowed": ALLOWED,
        "namespaces": {TRUSTED: TRUSTED_LISTS},
    },
}
OPERATOR = f"system:serviceaccount:{SYSTEM}:evalrun-operator"
RUNS = f"/apis/evalrun.dev/v1alpha1/namespaces/{TENANT}/evalruns"
CRD = ROOT / "k8s" / "crd.yaml"


@dataclass(frozen=True)
class Requests:
    """Dry runs against the API server."""

    plane: ControlPlane

    def refusal(self, kind: str, namespace: str, manifest: Object, user: str | None = None) -> str:
        """Return why the API server refuses to create an object; empty if it takes the object."""
        plural, group = KINDS[kind]
        headers = {} if user is None else {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
        path = f"{group}/namespaces/{namespace}/{plural}"
        answer = self.plane.request("POST", path, manifest, headers=headers, dryRun="All")
        return "" if answer.status == 201 else answer.message


KINDS = {
    "EvalRun": ("evalruns", "/apis/evalrun.dev/v1alpha1"),
    "EvalSchedule": ("evalschedules", "/apis/evalrun.dev/v1alpha1"),
    "Secret": ("secrets", "/api/v1"),
    "StatefulSet": ("statefulsets", "/apis/apps/v1"),
    "Deployment": ("deployments", "/apis/apps/v1"),
    "Job": ("jobs", "/apis/batch/v1"),
}


@pytest.fixture(scope="module")
def plane(bare_control_plane: ControlPlane) -> ControlPlane:
    """Not the API server of the session's other tests: policies and CRDs belong to the whole cluster."""
    return bare_control_plane


@pytest.fixture(scope="module")
def requests(plane: ControlPlane) -> Iterator[Requests]:
    """Namespaces, the CRDs and the chart's policies, in force until the module ends."""
    try:
        chart = Chart(find_binaries(["helm"])["helm"])
    except MissingBinariesError as error:
        missing(str(error))
    apply_crds(plane, CRD)
    for name in (SYSTEM, TENANT, TRUSTED):
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    # Two runs are older than the policies; one of them has started.
    old = run_of({"spec.serviceAccountName": "other"})
    for name in ("started", "waiting"):
        old["metadata"]["name"] = name
        assert plane.request("POST", RUNS, old).status == 201
    started = {"status": {"startTime": "2026-01-01T00:00:00Z"}}
    plane.request("PATCH", f"{RUNS}/started/status", started, "application/merge-patch+json")
    made = Requests(plane)
    forbidden = run_of({"spec.serviceAccountName": "cluster-admin"})
    try:
        apply_policies(plane, chart, VALUES)
        wait_for_policies(made, forbidden)
        yield made
    finally:
        # Other modules use this API server, and their runs are of what these lists refuse.
        plane.kubectl("delete", "validatingadmissionpolicybindings,validatingadmissionpolicies", "--all")
        plane.kubectl("delete", "evalruns", "--all", "--namespace", TENANT)
    until(lambda: not made.refusal("EvalRun", TENANT, forbidden), "the policy on runs to be in force no more")


def wait_for_policies(made: Requests, forbidden: dict[str, Any]) -> None:
    until(lambda: bool(made.refusal("EvalRun", TENANT, forbidden)), "the policy on runs to be in force")
    stray = {"metadata": {"name": "stray"}, "type": "Opaque"}
    until(lambda: bool(made.refusal("Secret", TENANT, stray, OPERATOR)), "the policy on Secrets to be in force")
    root = deployment({"hostNetwork": True})
    until(lambda: bool(made.refusal("Deployment", TENANT, root, OPERATOR)), "the policy on workloads to be in force")


def apply_policies(plane: ControlPlane, chart: Chart, values: Values) -> None:
    policies = [item for item in chart.render(values, namespace=SYSTEM) if "AdmissionPolicy" in item["kind"]]
    file = plane.directory / "policies.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": policies}))
    plane.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={file}")


@pytest.mark.parametrize(("changes", "named"), BEYOND)
def test_runs_beyond_an_allow_list_are_refused_with_its_name(
    requests: Requests, changes: dict[str, Any], named: str
) -> None:
    refusal = requests.refusal("EvalRun", TENANT, run_of(changes))
    assert "is not allowed here" in refusal
    assert f"admission.allowed.{named} " in refusal


@pytest.mark.parametrize("changes", WITHIN)
def test_runs_within_the_allow_lists_are_accepted(requests: Requests, changes: dict[str, Any]) -> None:
    assert requests.refusal("EvalRun", TENANT, run_of(changes)) == ""


def test_a_namespaces_own_lists_replace_the_others(requests: Requests) -> None:
    wants = run_of(
        {"spec.placement": {"sandbox": {"priorityClassName": "batch", "tolerations": [{"operator": "Exists"}]}}}
    )
    assert requests.refusal("EvalRun", TRUSTED, wants) == ""
    assert "admission.allowed.priorityClasses" in requests.refusal("EvalRun", TENANT, wants)
    account = run_of({"spec.serviceAccountName": "cluster-admin"})
    assert "admission.allowed.serviceAccounts" in requests.refusal("EvalRun", TRUSTED, account)


def test_schedule_beyond_an_allow_list_is_refused_with_its_name(requests: Requests) -> None:
    fitting = {"spec.template.output": OUTPUT, "spec.checkpoints.url": "s3://evaluations/checkpoints"}
    assert requests.refusal("EvalSchedule", TENANT, evalschedule_manifest(fitting)) == ""
    placement = {"spec.template.placement": {"rayHead": {"priorityClassName": "system-node-critical"}}}
    for changes, named in ((placement, "priorityClasses"), ({"spec.checkpoints.url": "s3://others/x"}, "buckets")):
        refusal = requests.refusal("EvalSchedule", TENANT, evalschedule_manifest({**fitting, **changes}))
        assert f"admission.allowed.{named} " in refusal


def test_run_of_another_operator_class_is_not_checked_by_the_policy(requests: Requests) -> None:
    other = run_of({"spec.operatorClass": "other", "spec.serviceAccountName": "x"})
    assert requests.refusal("EvalRun", TENANT, other) == ""


def test_shortened_allow_lists_still_permit_updates_of_a_started_run(plane: ControlPlane, requests: Requests) -> None:
    del requests

    def patch(run: str, fields: Object) -> str:
        merge = "application/merge-patch+json"
        return plane.request("PATCH", f"{RUNS}/{run}", fields, merge, dryRun="All").message

    assert patch("started", {"spec": {"suspend": True}}) == ""
    assert patch("waiting", {"metadata": {"labels": {"team": "a"}}}) == ""
    assert "admission.allowed.serviceAccounts" in patch("waiting", {"spec": {"suspend": True}})


def secret(name: str, labels: Mapping[str, str], **fields: Any) -> Object:
    return {"metadata": {"name": name, "labels": dict(labels)}, "type": "Opaque", **fields}


OURS = {"app.kubernetes.io/managed-by": "evalrun-operator", "evalrun.dev/run": "phase0"}


@pytest.mark.parametrize(
    ("labels", "taken"),
    [
        (OURS | {"app.kubernetes.io/component": "generator"}, True),
        (OURS | {"app.kubernetes.io/component": "ray"}, True),
        (OURS | {"app.kubernetes.io/component": "aggregator"}, False),  # a ledger has one process
        ({"app.kubernetes.io/component": "generator"}, False),
        ({}, False),
    ],
)
def test_the_operator_deletes_no_pods_but_generators_and_rays(
    requests: Requests, labels: dict[str, str], taken: bool
) -> None:
    container = {"name": "main", "image": "x"}
    pod = {"metadata": {"name": "p", "labels": labels}, "spec": {"containers": [container]}}
    pods = f"/api/v1/namespaces/{TENANT}/pods"
    account = {"metadata": {"name": "default"}}  # no controller makes it here, and a pod needs it
    requests.plane.request("POST", f"/api/v1/namespaces/{TENANT}/serviceaccounts", account)
    assert requests.plane.request("POST", pods, pod).status == 201
    as_operator = {"Impersonate-User": OPERATOR, "Impersonate-Group": "system:masters"}
    answer = requests.plane.request("DELETE", f"{pods}/p", headers=as_operator, dryRun="All")
    assert (answer.status == 200) is taken, answer.message
    assert requests.plane.request("DELETE", f"{pods}/p", gracePeriodSeconds="0").status == 200  # others may


@pytest.mark.parametrize(
    ("made", "namespace", "taken"),
    [
        (secret("phase0-token", OURS), TENANT, True),
        (secret("phase0-judge-tls-abc", OURS), TENANT, True),
        (secret("evalrun-judge-token", {}), SYSTEM, True),
        (secret("evalrun-judge-token", {}), TENANT, False),
        (secret("phase0-token", {}), TENANT, False),
        (secret("somebodys", OURS), TENANT, False),
        (
            secret("phase0-token", OURS, type="kubernetes.io/service-account-token")
            | {"metadata": {"name": "phase0-token", "labels": OURS,
                            "annotations": {"kubernetes.io/service-account.name": "default"}}},
            TENANT,
            False,
        ),
    ],
)  # fmt: skip
def test_the_operator_writes_no_secret_but_its_own(
    requests: Requests, made: Object, namespace: str, taken: bool
) -> None:
    refusal = requests.refusal("Secret", namespace, made, OPERATOR)
    assert ("ValidatingAdmissionPolicy" not in refusal) is taken, refusal
    assert "ValidatingAdmissionPolicy" not in requests.refusal("Secret", namespace, made)  # others may


def deployment(pod: Mapping[str, Any]) -> Object:
    labels = {"app": "x"}
    container = {"name": "main", "image": "x"}
    spec = {"automountServiceAccountToken": False, "containers": [container], **pod}
    return {
        "metadata": {"name": "x"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


TOKEN_VOLUME = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}


@pytest.mark.parametrize(
    "pod",
    [
        {"automountServiceAccountToken": True, "serviceAccountName": "cluster-admin"},
        {"volumes": [TOKEN_VOLUME]},
        {"hostNetwork": True},
        {"hostPID": True},
        {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]},
        {"containers": [{"name": "main", "image": "x", "securityContext": {"privileged": True}}]},
        {"initContainers": [{"name": "first", "image": "x", "securityContext": {"privileged": True}}]},
    ],
)
def test_the_operator_makes_no_pod_with_a_token_or_with_its_node(requests: Requests, pod: dict[str, Any]) -> None:
    assert "ValidatingAdmissionPolicy" in requests.refusal("Deployment", TENANT, deployment(pod), OPERATOR)
    assert requests.refusal("Deployment", TENANT, deployment(pod)) == ""  # others may
    assert requests.refusal("Deployment", TENANT, deployment({}), OPERATOR) == ""


def test_operator_may_create_every_object_of_a_run(requests: Requests) -> None:
    run = evalrun({"spec.output": OUTPUT}, rollout=False)
    plan = RunPlan(make_identity(run), run.spec, operator_settings(), "token")
    judge = run.spec.own_judge
    assert judge is not None
    made = [
        resources.token_secret(plan, new_tokens("token", per_hop=True)), resources.aggregator_stateful_set(plan),
        resources.judge_deployment(plan, judge, 1), resources.sandbox_deployment(plan, judge, 1),
        resources.generator_job(plan, run.spec.endpoints or [], 1),
    ]  # fmt: skip
    for item in made:
        item["metadata"]["namespace"] = TENANT
        assert requests.refusal(item["kind"], TENANT, item, OPERATOR) == "", item["kind"]


def test_every_sample_passes_the_default_lists(plane: ControlPlane, requests: Requests) -> None:
    """Last, since it replaces the lists of the tests above."""
    apply_policies(plane, Chart(find_binaries(["helm"])["helm"]), {})
    elsewhere = run_of({"spec.output": {"url": "s3://elsewhere"}})
    until(lambda: requests.refusal("EvalRun", TENANT, elsewhere) == "", "the default lists to be in force")
    files = sorted((ROOT / "k8s" / "samples").rglob("*.yaml"))
    samples = [item for file in files for item in yaml.safe_load_all(file.read_text()) if item]
    refused = {
        item["metadata"]["name"]: refusal
        for item in samples
        if item["kind"] in ("EvalRun", "EvalSchedule")
        and "admission.allowed" in (refusal := requests.refusal(item["kind"], TENANT, item))
    }
    assert len(samples) >= 10
    assert refused == {}
