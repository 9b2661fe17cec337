"""The chart on a real API server: every object is taken, every pod is admitted under PodSecurity "restricted"."""

import asyncio
import base64
import json
import os
import subprocess
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.cluster.chart import (
    CHART,
    PLACED,
    ROOT,
    VALUE_SETS,
    Chart,
    Object,
    Values,
    environment,
    named,
    of_kind,
    workloads,
)
from builders.cluster.controlplane import Answer, ControlPlane, MissingBinariesError, find_binaries, until
from builders.tools import missing
from lightkube import KubeConfig

from evalrun_api import names
from evalrun_api.manifest import find_problems
from evalrun_cluster.client import Cluster, ExactClient
from evalrun_operator.certificates.judge_certificates import list_secret_usages
from evalrun_operator.settings import SharedJudge
from evalrun_operator.shared_certificates import SharedCertificates
from evalrun_operator.shared_tokens import SharedTokens

pytestmark = pytest.mark.timeout(600)  # a helm that is not built yet is built here

NAMESPACE = "chart"
RELEASE = "probe"
"""Not evalrun: other tests of the session may have roles of that name."""
OTHERS_KINDS = ("ServiceMonitor", "PrometheusRule", "ScaledObject", "HTTPRoute")
"""Kinds of CRDs that are not ours: tests/chart looks at these objects, no server here knows them."""


@pytest.fixture(scope="module")
def chart() -> Chart:
    try:
        return Chart(find_binaries(["helm"])["helm"])
    except MissingBinariesError as error:
        missing(str(error))


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The API server with restricted namespaces, and what its admission looks up."""
    for name in (NAMESPACE, "team-a", "team-b"):
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        assert control_plane.request("POST", "/api/v1/namespaces", body).status == 201
    for name in ("default", "evalrun-operator", "evaluations-operator", "operator", "evalrun-judge", "evalrun-viewer"):
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        assert control_plane.request("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", body).status == 201
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "gvisor"},
        "handler": "runsc",
    }
    assert control_plane.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime).status == 201
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": PLACED["priorityClassName"]},
        "value": 0,
    }
    assert control_plane.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority).status == 201
    yield control_plane
    for name in (NAMESPACE, "team-a", "team-b"):
        control_plane.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.mark.parametrize("values", VALUE_SETS)
def test_api_server_accepts_every_rendered_object(
    plane: ControlPlane, chart: Chart, values: str, tmp_path: Path
) -> None:
    objects = chart.render(VALUE_SETS[values], namespace=NAMESPACE)
    known = [item for item in objects if item["kind"] not in OTHERS_KINDS]
    file = tmp_path / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": known}))
    taken = plane.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", f"--filename={file}", "--output=name"
    )
    assert len(taken.split()) == len(known)


@pytest.mark.parametrize("values", VALUE_SETS)
def test_every_pod_is_admitted_as_restricted(plane: ControlPlane, chart: Chart, values: str) -> None:
    for name, template in workloads(chart.render(VALUE_SETS[values], namespace=NAMESPACE)):
        answer = dry_run_pod(plane, name, template)
        assert answer.status == 201, answer.message


def test_pod_without_security_context_is_refused_by_admission(plane: ControlPlane, chart: Chart) -> None:
    """The test above can fail."""
    ((name, template),) = workloads(chart.render(namespace=NAMESPACE))
    del template["spec"]["containers"][0]["securityContext"]
    answer = dry_run_pod(plane, name, template)
    assert answer.status == 403
    assert 'violates PodSecurity "restricted:latest"' in answer.message


def dry_run_pod(plane: ControlPlane, name: str, template: Object) -> Answer:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": name}}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    return plane.request("POST", path, {**body, "spec": template["spec"]}, dryRun="All")


def test_plain_manifest_is_accepted_by_the_api_server(plane: ControlPlane) -> None:
    file = ROOT / "k8s" / "install.yaml"
    namespace, *_ = yaml.safe_load_all(file.read_text())
    plane.request("POST", "/api/v1/namespaces", namespace)  # a dry run makes none to go into
    taken = plane.kubectl("apply", "--server-side", "--dry-run=server", f"--filename={file}", "--output=name")
    assert "deployment.apps/evalrun-operator" in taken.split()


@pytest.mark.parametrize("mode", ["cpu", "keda"])
def test_the_operators_account_may_do_what_it_needs_and_no_more(
    plane: ControlPlane, chart: Chart, mode: str, tmp_path: Path
) -> None:
    objects = chart.render({"operator": {"autoscaling": mode}}, release=RELEASE, namespace=NAMESPACE)
    roles = [*of_kind(objects, "ClusterRole"), *of_kind(objects, "ClusterRoleBinding")]
    file = tmp_path / "roles.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": roles}))
    plane.kubectl("apply", "--server-side", f"--filename={file}")
    account = f"system:serviceaccount:{NAMESPACE}:{RELEASE}-evalrun-operator"

    def may(verb: str, group: str, resource: str, namespace: str = "default") -> bool:
        wanted = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": account, "resourceAttributes": wanted},
        }
        answer = plane.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer.body["status"]["allowed"])

    until(lambda: may("list", "evalrun.dev", "evalruns"), "the role's being known to the authorizer")
    for rule in named(objects, "ClusterRole", f"{RELEASE}-evalrun-operator")["rules"]:
        for verb in rule["verbs"]:
            assert all(may(verb, rule["apiGroups"][0], resource) for resource in rule["resources"])
    beyond = [
        ("list", "", "secrets"), ("watch", "", "secrets"), ("delete", "", "secrets"), ("patch", "", "secrets"),
        ("create", "", "pods"),
        ("delete", "", "namespaces"), ("patch", "evalrun.dev", "evalruns"), ("update", "evalrun.dev", "evalruns"),
        ("create", "evalrun.dev", "evalschedules"), ("delete", "evalrun.dev", "evalschedules"),
        ("create", "rbac.authorization.k8s.io", "roles"), ("list", "", "nodes"), ("get", "", "serviceaccounts"),
    ]  # fmt: skip
    assert not [attempt for attempt in beyond if may(*attempt)]
    plane.kubectl("delete", f"--filename={file}")


def test_helm_upgrade_keeps_the_token_and_uninstall_keeps_the_crd(
    plane: ControlPlane, chart: Chart, tmp_path: Path
) -> None:
    """Real helm against the real server: the token survives an upgrade, the CRD survives the release."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "released"}}
    assert plane.request("POST", "/api/v1/namespaces", namespace).status == 201

    def helm(command: str, *arguments: str, values: Values | None = None, release: str = RELEASE) -> str:
        place = ["--namespace=released", f"--kubeconfig={plane.kubeconfig}"]
        environ = {**os.environ, "HELM_CACHE_HOME": str(tmp_path), "HELM_CONFIG_HOME": str(tmp_path)}
        done = subprocess.run(
            [str(chart.helm), command, release, *arguments, *place],
            input=json.dumps(values or {}),
            env=environ,
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    shared: dict[str, Any] = {"sharedJudge": {"enabled": True}}
    # --take-ownership: another test of the session may have applied the CRD.
    notes = helm("install", str(CHART), "--take-ownership", "--values=-", values=shared)
    secrets = "/api/v1/namespaces/released/secrets"
    secret, other = f"{secrets}/probe-evalrun-judge-token", f"{secrets}/probe-evalrun-sandbox-token"
    check_notes(notes)
    places = ["released/probe-evalrun-judge-token/token"]
    fill_secrets(plane, "released", places)
    token = plane.request("GET", secret).body["data"]["token"]
    assert len(base64.b64decode(token)) == 64
    # As an earlier release of the chart left one: with a token that Helm itself had rendered.
    earlier = {"data": {"token": base64.b64encode(b"earlier").decode()}}
    assert plane.request("PATCH", other, earlier, "application/merge-patch+json").status == 200

    shared["operator"] = {"workers": 32}
    helm("upgrade", str(CHART), "--values=-", values=shared)
    assert plane.request("GET", secret).body["data"]["token"] == token
    assert plane.request("GET", other).body["data"] == earlier["data"]
    deployment = plane.request("GET", "/apis/apps/v1/namespaces/released/deployments/probe-evalrun-operator").body
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"name": "EVALRUN_OPERATOR_WORKERS", "value": "32"} in container["env"]

    helm("rollback", "1")  # to the revision before there was any token
    assert plane.request("GET", secret).body["data"]["token"] == token

    second = helm(
        "install", str(CHART), "--values=-", values={"operator": {"operatorClass": "second"}}, release="second"
    )
    assert f"The CRDs belong to release released/{RELEASE}" in second
    helm("uninstall", release="second")
    helm("uninstall")
    assert plane.request("GET", "/apis/apps/v1/namespaces/released/deployments/probe-evalrun-operator").status == 404
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    for role in (f"{release}-evalrun-{verb}" for release in (RELEASE, "second") for verb in ("view", "edit")):
        assert plane.request("DELETE", f"{roles}/{role}").status == 200  # kept: runs may live
    crd = plane.request("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/evalruns.evalrun.dev")
    assert crd.status == 200
    assert "deletionTimestamp" not in crd.body["metadata"]


def test_applying_what_is_rendered_again_keeps_tokens_and_certificates(
    plane: ControlPlane, chart: Chart, tmp_path: Path
) -> None:
    """As GitOps does: rendered without a cluster and applied with each synchronization."""
    values: Values = {"crds": {"create": False}, **VALUE_SETS["reward"]}
    file = tmp_path / "objects.json"
    kept = None
    for turn, apply in enumerate(([], ["--server-side", "--force-conflicts"], [])):
        objects = chart.render(values, release=RELEASE, namespace=NAMESPACE)
        taken = [one for one in objects if one["kind"] in {"Secret", "Role", "RoleBinding", "ServiceAccount"}]
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": taken}))
        plane.kubectl("apply", f"--filename={file}", *apply)
        if turn == 0:
            (container,) = named(objects, "Deployment", f"{RELEASE}-evalrun-operator")["spec"]["template"]["spec"][
                "containers"
            ]
            given = environment(container)
            judge = SharedJudge.model_validate_json(given["EVALRUN_OPERATOR_SHARED_JUDGE"])
            fill_secrets(plane, NAMESPACE, json.loads(given["EVALRUN_OPERATOR_SHARED_TOKEN"]), judge)
        found = [
            plane.request("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/{one['metadata']['name']}").body["data"]
            for one in of_kind(taken, "Secret")
        ]
        kept = kept or found
        assert found == kept
    assert kept is not None
    assert len({json.dumps(data) for data in kept}) == 7
    plane.kubectl("delete", f"--filename={file}")


def fill_secrets(plane: ControlPlane, namespace: str, places: list[str], judge: SharedJudge | None = None) -> None:
    """Write tokens and certificates as the operator does, under the account and with the rights that the chart gives
    it.
    """
    account = f"{RELEASE}-evalrun-operator"
    token = plane.kubectl("create", "token", account, f"--namespace={namespace}").strip()
    config = json.loads(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}

    async def fill() -> None:
        client = ExactClient(KubeConfig.from_dict(config), field_manager=names.FIELD_MANAGER)
        try:
            await SharedTokens(Cluster(client), places).fill()
            await SharedCertificates(Cluster(client), judge, lambda: datetime.now(UTC)).fill()
        finally:
            await client.close()

    def filled() -> bool:  # the authorizer learns of a new Role a moment later
        asyncio.run(fill())
        written = [place.split("/")[1] for place in places] + list(() if judge is None else list_secret_usages(judge))
        secrets = [plane.request("GET", f"/api/v1/namespaces/{namespace}/secrets/{name}") for name in written]
        return all(secret.body.get("data") for secret in secrets)

    until(filled, "the contents of the chart's Secrets")


def check_notes(notes: str) -> None:
    """The EvalRun that the notes tell people to apply is a valid one, and uses the judge that was installed."""
    text = textwrap.dedent(notes.partition("<<EOF\n")[2].partition("     EOF")[0])
    manifest = yaml.safe_load(text)
    assert find_problems(manifest, place="cluster") == []
    assert manifest["spec"]["judgeRef"] == {
        "name": "probe-evalrun-judge",
        "namespace": "released",
        "tokenSecretRef": {"name": "probe-evalrun-judge-token", "key": "token"},
    }
    assert "kubectl -n released rollout status deployment/probe-evalrun-operator" in notes
    assert "get secret probe-evalrun-judge-token" in notes
