"""The operator among foreign objects, refusals that last, upgrades, lost namespaces and other operators, on a real API
server with real controllers; kwok pretends that pods run, and the ledger is a scripted one.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from builders.cluster.controlplane import ControlPlane, until
from builders.operator.evalruns import evalrun_manifest
from builders.operator.running_operator import (
    LEASE,
    MERGE,
    OperatorProcess,
    Run,
    ScriptedLedger,
    apply,
    make_namespace,
    operator_kubeconfig,
    remove_namespace,
    running_operator,
    serving_ledger,
)
from builders.ports import free_ports
from lightkube import KubeConfig

from evalrun_cluster.client import Cluster, ExactClient
from evalrun_cluster.errors import ConflictError
from evalrun_cluster.objects import Object
from evalrun_operator.rbac import role_rules

NUMBERS = itertools.count()
URL = {"spec.output": {"url": "s3://bucket/x"}}
ANOTHER = "00000000-0000-0000-0000-000000000000"
"""A uid that no object has."""


@pytest.fixture(scope="module")
def account(nodes: ControlPlane) -> Path:
    return operator_kubeconfig(nodes)


@pytest.fixture
def ledger() -> ScriptedLedger:
    ledger = ScriptedLedger()
    ledger.generated = 164  # no attempt is needed: kwok ends Jobs at once
    return ledger


@pytest.fixture
def address(ledger: ScriptedLedger) -> Iterator[str]:
    with serving_ledger(ledger) as address:
        yield address


@pytest.fixture
def operator(nodes: ControlPlane, account: Path, address: str) -> Iterator[OperatorProcess]:
    with running_operator(nodes, account, address) as process:
        yield process


@pytest.fixture
def namespace(nodes: ControlPlane) -> Iterator[str]:
    name = f"others-{next(NUMBERS)}"
    make_namespace(nodes, name)
    yield name
    remove_namespace(nodes, name)


def a_run(plane: ControlPlane, namespace: str, name: str = "run", **spec: Any) -> Run:
    manifest = evalrun_manifest(URL)
    manifest["spec"] |= spec
    return Run(plane, namespace, name).create(manifest)


def a_process(plane: ControlPlane, account: Path, address: str, name: str, *flags: str) -> OperatorProcess:
    metrics_port, port = free_ports(2)
    log = plane.directory / f"{name}.log"
    return OperatorProcess(plane, account, address, log, metrics_port, port, flags=("--poll-seconds=0.3", *flags))


def passes(operator: OperatorProcess) -> float:
    line = 'evalrun_reconcile_seconds_count{outcome="done"} '
    return float(next(text.removeprefix(line) for text in operator.metrics().splitlines() if text.startswith(line)))


def uid_of(run: Run) -> str:
    return str(run.get()["metadata"]["uid"])


def test_foreign_object_with_a_run_label_disturbs_no_run(
    nodes: ControlPlane, operator: OperatorProcess, ledger: ScriptedLedger, namespace: str
) -> None:
    labels, notes = {"evalrun.dev/run-uid": "x"}, {"evalrun.dev/attempt": "9" * 5000}
    metadata = {"name": "bad", "namespace": namespace, "labels": labels, "annotations": notes}
    apply(nodes, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    operator.stop()
    operator.start()
    run = a_run(nodes, namespace)
    run.wait_for("Judged", "False", "Judging")
    ledger.judged = 164
    run.wait_for("Complete")


def test_foreign_objects_with_run_labels_are_ignored_and_never_deleted(
    nodes: ControlPlane, operator: OperatorProcess, ledger: ScriptedLedger, namespace: str
) -> None:
    run = a_run(nodes, namespace)
    run.wait_for("Judged", "False", "Judging")
    uid, other = uid_of(run), f"{namespace}-prod"
    labels = {"evalrun.dev/run-uid": uid, "evalrun.dev/run": "run", "app.kubernetes.io/component": "aggregator"}
    pod = {"containers": [{"name": "checkpoint", "image": "x"}]}
    template = {"metadata": {"labels": {"app": "prod"}}, "spec": pod}
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "run-aggregator", "namespace": other, "labels": labels},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "prod"}}, "template": template},
    }  # fmt: skip
    apply(nodes, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    apply(nodes, deployment)
    copied = {
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
        "metadata": {"name": "copied", "namespace": namespace, "labels": labels},
    }  # fmt: skip
    apply(nodes, copied)
    restricted = {
        "allowPrivilegeEscalation": False, "runAsNonRoot": True, "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    stranger = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stranger", "namespace": namespace, "labels": labels},
        "spec": {
            "containers": [{"name": "checkpoint", "image": "x", "securityContext": restricted}], "nodeName": "none",
        },
    }  # fmt: skip
    apply(nodes, stranger)
    failed = {"name": "checkpoint", "image": "x", "imageID": "x", "ready": False, "restartCount": 99}
    failed |= {"state": {"terminated": {"exitCode": 2, "reason": "Error"}}}
    path = f"/api/v1/namespaces/{namespace}/pods/stranger/status"
    assert nodes.request("PATCH", path, {"status": {"containerStatuses": [failed]}}, MERGE).status == 200
    ledger.judged = 100
    until(lambda: run.get()["status"].get("progress") == "100/164", "the run to go on")
    ledger.judged = 164
    run.wait_for("Succeeded")
    assert nodes.request("GET", f"/apis/apps/v1/namespaces/{other}/deployments/run-aggregator").status == 200
    assert nodes.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/copied").status == 200
    assert run.names("statefulsets") == ["run-aggregator"]
    nodes.kubectl("delete", "pod", "stranger", "-n", namespace, "--force", "--grace-period=0")


def test_lasting_refusal_is_reported_and_run_needs_no_disruption_budget(
    nodes: ControlPlane, operator: OperatorProcess, ledger: ScriptedLedger, namespace: str
) -> None:
    hard = "--hard=count/poddisruptionbudgets.policy=0,count/networkpolicies.networking.k8s.io=0"
    nodes.kubectl("create", "quota", "q", "-n", namespace, hard)
    run = a_run(nodes, namespace)
    run.wait_for("Applied", "False", "Refused")
    run.wait_for("Judged", "False", "Judging")
    message = run.conditions()["Applied"]["message"]
    assert "exceeded quota: q" in message
    assert "The run goes on without it. Raise the ResourceQuota" in message
    described = nodes.kubectl("describe", "er", "run", "-n", namespace)
    assert "exceeded quota: q" in described
    assert f'evalrun_run_refused{{namespace="{namespace}",run="run"}} 1.0' in operator.metrics()
    ledger.judged = 164
    run.wait_for("Succeeded")


def test_objects_of_others_are_never_taken_over(nodes: ControlPlane, operator: OperatorProcess, namespace: str) -> None:
    helms = {"app.kubernetes.io/managed-by": "Helm"}
    service = {
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "run-judge", "namespace": namespace, "labels": helms},
        "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 50051}]},
    }  # fmt: skip
    order = {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "run-order", "namespace": namespace},
        "data": {"k": "v"},
    }  # fmt: skip
    apply(nodes, service, order)
    run = a_run(nodes, namespace)
    run.wait_for("Applied", "False", "NameTaken")
    message = run.conditions()["Applied"]["message"]
    assert "run-order is there already, and the run did not make it" in message or "run-judge is there" in message
    nodes.kubectl("delete", "configmap", "run-order", "-n", namespace)
    until(
        lambda: (
            "Service run-judge is there already, and the run did not make it (managed by Helm)"
            in run.conditions()["Applied"]["message"]
        ),
        "the other one to be named",
    )
    run.delete()
    until(lambda: run.names("statefulsets,deployments,configmaps") == [], "what the run made to be gone")
    theirs = nodes.request("GET", f"/api/v1/namespaces/{namespace}/services/run-judge").body
    assert theirs["spec"]["selector"] == {"app": "theirs"}
    assert theirs["metadata"]["labels"] == helms
    assert "ownerReferences" not in theirs["metadata"]


def test_an_upgrade_in_mid_run_changes_no_image_and_restarts_no_pod(
    nodes: ControlPlane, account: Path, address: str, ledger: ScriptedLedger, namespace: str
) -> None:
    def state() -> tuple[dict[str, str], set[str]]:
        pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in run.objects("pods")}
        workloads = json.dumps([item["spec"] for item in run.objects("statefulsets", "deployments", "configmaps")
                                if "spec" in item])  # fmt: skip
        return pods, {part.split('"')[0] for part in workloads.split('"image": "')[1:]}

    old = [f"--{part}-image=old/{part}:1" for part in ("aggregator", "judge", "sandbox", "generator")]
    new = [f"--{part}-image=nosuch/{part}:2" for part in ("aggregator", "judge", "sandbox", "generator")]
    common = ("--poll-seconds=0.3", "--resync-seconds=1")
    operator = a_process(nodes, account, address, "upgraded", "--resync-seconds=1", *old)
    operator.start()
    try:
        run = a_run(nodes, namespace)
        run.wait_for("Judged", "False", "Judging")
        before = state()
        assert before[1] == {"old/aggregator:1", "old/judge:1", "old/sandbox:1"}
        operator.stop()
        operator.flags = (*common, *new, "--sandbox-slots=2", "--gateway-cpu=3")
        operator.start()
        ledger.judged = 100
        until(lambda: run.get()["status"].get("progress") == "100/164", "the new operator to look after the run")
        later = a_run(nodes, namespace, "later")
        later.wait_for("Accepted")
        done = passes(operator)
        until(lambda: passes(operator) > done + 5, "several resyncs")
        assert state() == before
        assert run.get()["status"]["settings"]["judgeImage"] == "old/judge:1"
        assert later.get()["status"]["settings"]["judgeImage"] == "nosuch/judge:2"
        ledger.judged = 164
        run.wait_for("Succeeded")
        ended = run.objects("statefulsets")
        operator.stop()
        operator.flags = (*common, *old)
        operator.start()
        until(lambda: 'evalrun_runs{phase="Succeeded"}' in operator.metrics(), "the first to be seen ended")
        done = passes(operator)
        until(lambda: passes(operator) > done + 5, "several resyncs")
        assert [item["metadata"]["generation"] for item in run.objects("statefulsets")] == [
            item["metadata"]["generation"] for item in ended
        ]
    finally:
        operator.kill()


def test_edited_network_policy_is_restored_at_once(
    nodes: ControlPlane, operator: OperatorProcess, namespace: str
) -> None:
    run = a_run(nodes, namespace)
    run.wait_for("Judged", "False", "Judging")
    path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies/run-sandbox"
    before = nodes.request("GET", path).body["spec"]
    nodes.request("PATCH", path, {"spec": {"egress": [{}], "podSelector": {"matchLabels": {"extra": "label"}}}}, MERGE)
    until(lambda: nodes.request("GET", path).body["spec"] == before, "the policy to be as it was")
    generation = nodes.request("GET", path).body["metadata"]["generation"]
    assert generation == 3  # made, edited, put right: and left alone since


def test_foreign_finalizer_keeps_no_pod_of_a_deleted_run(
    nodes: ControlPlane, operator: OperatorProcess, namespace: str
) -> None:
    run = a_run(nodes, namespace)
    run.wait_for("Judged", "False", "Judging")
    nodes.request("PATCH", run.path, {"metadata": {"finalizers": ["others.dev/audit"]}}, MERGE)
    run.delete()
    try:
        until(lambda: run.names("statefulsets,deployments,jobs,pods") == [], "everything that runs to be gone")
        assert run.get()["metadata"]["deletionTimestamp"]
    finally:
        nodes.request("PATCH", run.path, {"metadata": {"finalizers": None}}, MERGE)


async def test_delete_or_change_with_another_uid_is_a_conflict(
    nodes: ControlPlane, account: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(nodes.kubeconfig))
    apply(nodes, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new", "namespace": namespace}})
    client = ExactClient(KubeConfig.from_file(str(nodes.kubeconfig)), field_manager="x", timeout=httpx2.Timeout(10))
    async with client:
        cluster = Cluster(client)
        with pytest.raises(ConflictError):
            await cluster.delete("ConfigMap", "new", namespace, ANOTHER)
        patch: list[Object] = [{"op": "add", "path": "/data", "value": {"a": "b"}}]
        with pytest.raises(ConflictError):
            await cluster.change("ConfigMap", "new", namespace, ANOTHER, patch)
        item = nodes.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/new").body
        assert "data" not in item
        await cluster.delete("ConfigMap", "new", namespace, item["metadata"]["uid"])
    assert nodes.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/new").status == 404


def test_lost_namespace_stops_no_other_namespace_and_recovers(
    nodes: ControlPlane, address: str, ledger: ScriptedLedger, namespace: str
) -> None:
    lost = f"{namespace}-lost"
    make_namespace(nodes, lost)

    def bind(place: str) -> None:
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "few", "namespace": place}}
        subject = {"kind": "ServiceAccount", "name": "few", "namespace": namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "few"}
        apply(
            nodes,
            {**role, "kind": "Role", "rules": role_rules("cpu")},
            {**role, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]},
        )

    apply(nodes, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "few", "namespace": namespace}})
    bind(namespace)
    config = json.loads(nodes.kubeconfig.read_text())
    token = nodes.kubectl("create", "token", "few", "-n", namespace).strip()
    kubeconfig = nodes.directory / "few.kubeconfig"
    kubeconfig.write_text(json.dumps({**config, "users": [{"name": "admin", "user": {"token": token}}]}))
    operator = a_process(nodes, kubeconfig, address, "few", f"--namespace={lost}", f"--namespace={namespace}")
    try:
        operator.start()  # although the first of its namespaces refuses
        run = a_run(nodes, namespace)
        run.wait_for("Judged", "False", "Judging")
        assert f'evalrun_operator_lost_namespace{{namespace="{lost}"}} 1.0' in operator.metrics()
        assert f"namespace {lost}: evalruns cannot be followed" in operator.log.read_text()
        bind(lost)
        late = a_run(nodes, lost, "late")
        late.wait_for("Accepted", limit=90)
        until(lambda: "evalrun_operator_lost_namespace{" not in operator.metrics(), "the namespace to be served")
        ledger.judged = 164
        run.wait_for("Succeeded")
    finally:
        operator.kill()
        remove_namespace(nodes, lost)


def test_of_two_operators_one_works_and_the_other_takes_over(
    nodes: ControlPlane, account: Path, address: str, ledger: ScriptedLedger, namespace: str
) -> None:
    operators = [a_process(nodes, account, address, f"operator-{name}", f"--lease={LEASE}") for name in ("a", "b")]

    def leads(process: OperatorProcess) -> bool:
        return "evalrun_operator_leads 1.0" in process.metrics()

    def holder() -> str:
        where, _, name = LEASE.partition("/")
        lease = nodes.request("GET", f"/apis/coordination.k8s.io/v1/namespaces/{where}/leases/{name}")
        return str(lease.body["spec"].get("holderIdentity", ""))

    try:
        for process in operators:
            process.start()
        until(lambda: any(leads(process) for process in operators), "one to lead")
        first, second = sorted(operators, key=leads, reverse=True)
        assert not leads(second)
        run = a_run(nodes, namespace)
        run.wait_for("Judged", "False", "Judging")
        made = {item["metadata"]["uid"] for item in run.objects("statefulsets", "deployments", "services")}
        first.kill()
        until(lambda: leads(second), "the other to take over")
        ledger.judged = 100
        until(lambda: run.get()["status"].get("progress") == "100/164", "the run to be looked after")
        assert {item["metadata"]["uid"] for item in run.objects("statefulsets", "deployments", "services")} == made
        first.start()
        assert not leads(first)
        held_by = holder()
        assert second.stop() == 0
        assert holder() != held_by  # it gave the Lease back, which would name it for four seconds more
        until(lambda: leads(first), "the first to take over from one that ended")
        ledger.judged = 164
        run.wait_for("Succeeded")
    finally:
        for process in operators:
            process.kill()


def test_each_operator_serves_only_the_runs_of_its_class(
    nodes: ControlPlane, account: Path, address: str, operator: OperatorProcess, namespace: str
) -> None:
    flags = ("--operator-class=nightly", "--judge-image=nightly/judge:1")
    nightly = a_process(nodes, account, address, "nightly", *flags)
    try:
        nightly.start()
        theirs, ours = a_run(nodes, namespace, "theirs", operatorClass="nightly"), a_run(nodes, namespace, "ours")
        nobodys = a_run(nodes, namespace, "nobodys", operatorClass="weekly")
        theirs.wait_for("Accepted")
        ours.wait_for("Accepted")
        assert theirs.get()["status"]["settings"]["judgeImage"] == "nightly/judge:1"
        assert ours.get()["status"]["settings"]["judgeImage"] == "evalrun-judge:latest"
        assert "status" not in nobodys.get()
    finally:
        nightly.kill()
