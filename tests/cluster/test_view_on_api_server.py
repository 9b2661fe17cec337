"""`evalrun view er/NAME` against a real API server: what its rights allow, and samples through its port-forward.

The node is a double that speaks as a kubelet does; the aggregator's feed is the real one.
"""

import asyncio
import itertools
import json
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders.cluster.chart import Chart, of_kind
from builders.cluster.controllers import apply_crds
from builders.cluster.controlplane import ControlPlane, MissingBinariesError, find_binaries
from builders.cluster.forwarding_api import ForwardingApi, kubelet_served
from builders.operator.evalruns import evalrun_manifest
from builders.operator.running_operator import apply
from builders.results.samples import verdict
from builders.results.view_server import cluster_runs_viewed, namespace_viewed
from builders.tools import missing

from evalrun_aggregator.ledger.entries import StoredCompletion, StoredVerdict
from evalrun_aggregator.ledger.items import pack_row
from evalrun_aggregator.ledger.store import LedgerWriter
from evalrun_aggregator.sample_feed.feed_server import FeedServer
from evalrun_api import names
from evalrun_cli.viewer.cluster_run import ClusterRunView
from evalrun_runtime.exits import BadInputError

CRD = Path(__file__).parents[2] / "k8s" / "crd.yaml"
RBAC = "rbac.authorization.k8s.io/v1"
NUMBERS = itertools.count()
VIEWER_RULES = [
    {"apiGroups": ["evalrun.dev"], "resources": ["evalruns"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
]
FORWARD_RULE = {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]}


def account_config(plane: ControlPlane, namespace: str, rules: list[dict[str, Any]]) -> Path:
    """Make an account with these rules in a namespace; give a kubeconfig with its token."""
    subject = {"kind": "ServiceAccount", "name": "viewer", "namespace": namespace}
    metadata = {"name": "viewer", "namespace": namespace}
    apply(
        plane,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": RBAC, "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": RBAC, "kind": "RoleBinding", "metadata": metadata, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "viewer"},
        },
    )  # fmt: skip
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/viewer/token"
    token = plane.request("POST", path, {"spec": {}}).body["status"]["token"]
    config = json.loads(plane.kubeconfig.read_text())
    config["users"] = [{"name": "admin", "user": {"token": token}}]
    config["contexts"][0]["context"]["namespace"] = namespace
    file = plane.directory / f"{namespace}.kubeconfig"
    file.write_text(json.dumps(config))
    return file


@pytest.fixture
def namespace(control_plane: ControlPlane) -> str:
    """A namespace with an EvalRun and the pod of its aggregator, which is ready and on no node."""
    apply_crds(control_plane, CRD)
    name = f"viewed-{next(NUMBERS)}"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
    apply(control_plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, account)
    run = evalrun_manifest({"spec.output": {"url": "s3://bucket/x"}})
    run["metadata"]["namespace"] = name
    apply(control_plane, run)
    runs = f"/apis/evalrun.dev/v1alpha1/namespaces/{name}/evalruns/{run['metadata']['name']}"
    uid = control_plane.request("GET", runs).body["metadata"]["uid"]
    labels = {names.RUN_UID_LABEL: uid, names.COMPONENT_LABEL: names.AGGREGATOR}
    pod = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "run-aggregator-0", "namespace": name, "labels": labels},
        "spec": {"nodeName": "nowhere", "containers": [{"name": "aggregator", "image": "none"}]},
    }  # fmt: skip
    apply(control_plane, pod)
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    status = f"/api/v1/namespaces/{name}/pods/run-aggregator-0/status"
    assert control_plane.request("PATCH", status, ready, "application/merge-patch+json").status == 200
    return name


def kubelet_tls(directory: Path) -> ssl.SSLContext:
    """Return a kubelet's own certificate, as kubelets make one for themselves; this API server does not verify it."""
    key, certificate = str(directory / "kubelet.key"), str(directory / "kubelet.crt")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=kubelet"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def make_node(plane: ControlPlane, kubelet_port: int) -> None:
    """Make the node of the aggregator's pod, whose kubelet listens on this machine."""
    apply(plane, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "nowhere"}})
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
    }
    answer = plane.request("PATCH", "/api/v1/nodes/nowhere/status", {"status": status}, "application/merge-patch+json")
    assert answer.status == 200, answer.message


async def lost_of(view: ClusterRunView) -> str:
    found = await asyncio.to_thread(view.description)
    assert found["live"]
    return str(found["lost"])


async def test_missing_rights_are_named(
    control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(account_config(control_plane, namespace, [])))
    with pytest.raises(BadInputError, match='cannot get resource "evalruns"'):
        async with cluster_runs_viewed("run"):
            pass
    account_config(control_plane, namespace, VIEWER_RULES)
    with pytest.raises(BadInputError, match=f"there is no EvalRun nobody in namespace {namespace}"):
        async with cluster_runs_viewed("nobody"):
            pass
    async with cluster_runs_viewed("run") as views:
        right = f"you need the right `create` on pods/portforward in namespace {namespace}"
        assert await lost_of(views["run"]) == f"pod run-aggregator-0: you may not connect to it: {right}"
        account_config(control_plane, namespace, [*VIEWER_RULES, FORWARD_RULE])
        while True:
            if not (lost := await lost_of(views["run"])).endswith(right):
                break
            await asyncio.sleep(0.2)  # the API server learns of a role a little later
        assert lost == "the connection to pod run-aggregator-0 is lost"


async def test_samples_come_through_the_api_servers_port_forward(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = LedgerWriter(tmp_path / "ledger.sqlite")
    writer.begin()
    writer.add_problems([("demo", f"set/{number}") for number in range(500)])
    made = verdict(["success"])
    for number in range(500):
        row = pack_row(number, 0, 0)
        writer.add_completions([StoredCompletion(row, f"answer {number} " + "x" * 2000, started_at=1.0)])
        content = made.SerializeToString()
        writer.add_verdicts(
            [StoredVerdict(row, content, made.final_status, judged=True, accepted=True, recorded_at=9.0)]
        )
    writer.commit()
    writer.close()
    feed = FeedServer(tmp_path / "ledger.sqlite", 0, lambda _: iter(()))
    api = ForwardingApi({}, await feed.start())
    try:
        async with kubelet_served(api, kubelet_tls(tmp_path)) as port:
            monkeypatch.setenv(
                "KUBECONFIG", str(account_config(control_plane, namespace, [*VIEWER_RULES, FORWARD_RULE]))
            )
            async with cluster_runs_viewed("run") as views:
                while True:
                    # Again and again: where kwok runs in this control plane, it takes every node for its own.
                    make_node(control_plane, port)
                    found: dict[str, Any] = await asyncio.to_thread(views["run"].description)
                    if found["segments"]:
                        break
                    await asyncio.sleep(0.2)  # the API server learns of a node and a role a little later
                assert sum(segment["rows"] for segment in found["segments"]) == 500
                assert found["lost"] == ""
    finally:
        await feed.stop()


def rules_of_the_charts_viewer(namespace: str) -> list[dict[str, Any]]:
    try:
        chart = Chart(find_binaries(["helm"])["helm"])
    except MissingBinariesError as error:
        missing(str(error))
    values = {"viewer": {"namespaces": {namespace: {"live": True, "token": {"existingSecret": "viewer"}}}}}
    (role,) = (role for role in of_kind(chart.render(values), "Role") if role["metadata"]["namespace"] == namespace)
    rules: list[dict[str, Any]] = role["rules"]
    return rules


@pytest.mark.timeout(600)  # a helm that is not built yet is built here
async def test_role_of_the_charts_viewer_lists_runs_and_reaches_their_samples(
    control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = account_config(control_plane, namespace, rules_of_the_charts_viewer(namespace))
    monkeypatch.setenv("KUBECONFIG", str(config))
    async with namespace_viewed() as runs:
        while True:
            view = (await asyncio.to_thread(runs)).get("run")
            if isinstance(view, ClusterRunView):
                lost = await lost_of(view)
                if lost == "the connection to pod run-aggregator-0 is lost":  # as above: behind it is no kubelet
                    break
                assert "right" in lost
            await asyncio.sleep(0.2)  # the API server learns of a role a little later
