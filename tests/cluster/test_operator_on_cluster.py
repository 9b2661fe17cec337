"""The operator on a real API server, with real controllers, KubeRay's operator, and exactly the rights of its role.

Containers do not run here: kwok pretends that pods do, and the ledger is a scripted one. Namespaces enforce restricted
pods, so that every pod that the operator or KubeRay makes is checked by the API server itself.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.cluster.controlplane import ControlPlane, until
from builders.operator.evalruns import evalrun_manifest
from builders.operator.running_operator import (
    OperatorProcess,
    Run,
    ScriptedLedger,
    make_namespace,
    operator_kubeconfig,
    remove_namespace,
    running_operator,
    serving_ledger,
)

from evalrun_proto.ledger.v1 import ledger_pb2

SAMPLE = Path(__file__).parents[2] / "k8s" / "samples" / "evalrun-phase0.yaml"
EVERYTHING = (
    "pods,services,configmaps,statefulsets,deployments,jobs,networkpolicies,poddisruptionbudgets,"
    "horizontalpodautoscalers,rayclusters,rayjobs,secrets,persistentvolumeclaims"
)
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def account(kuberay: ControlPlane) -> Path:
    return operator_kubeconfig(kuberay)


@pytest.fixture
def ledger() -> ScriptedLedger:
    return ScriptedLedger()


@pytest.fixture
def measured(kuberay: ControlPlane) -> Iterator[None]:
    """The API group by which autoscalers measure, as metrics-server registers it; nobody answers for it."""
    spec = {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100}
    services, metadata = "/apis/apiregistration.k8s.io/v1/apiservices", {"name": "v1beta1.metrics.k8s.io"}
    named = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata}
    assert kuberay.request("POST", services, {**named, "spec": spec}).status == 201
    until(lambda: kuberay.request("GET", "/apis/metrics.k8s.io").status == 200, "the API group")
    yield
    assert kuberay.request("DELETE", f"{services}/v1beta1.metrics.k8s.io").status == 200


@pytest.fixture
def operator(
    request: pytest.FixtureRequest, kuberay: ControlPlane, account: Path, ledger: ScriptedLedger
) -> Iterator[OperatorProcess]:
    """The operator; flags beside the usual ones come by indirect parametrization."""
    flags = [*OperatorProcess.flags, *getattr(request, "param", ())]
    with serving_ledger(ledger) as address, running_operator(kuberay, account, address, flags) as process:
        yield process


@pytest.fixture
def namespace(kuberay: ControlPlane) -> Iterator[str]:
    name = f"evals-{next(NUMBERS)}"
    make_namespace(kuberay, name)
    yield name
    remove_namespace(kuberay, name)


def phase0() -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load(SAMPLE.read_text(encoding="utf-8"))
    return manifest


def on_gpus(plane: ControlPlane, namespace: str, **spec: Any) -> Run:
    manifest = evalrun_manifest({"spec.output": {"url": "s3://bucket/x"}}, rollout=True)
    manifest["spec"] |= spec
    return Run(plane, namespace, "run").create(manifest)


def written_by(plane: ControlPlane, namespace: str, what: str) -> set[str]:
    """Return who has written an object, but for its status."""
    answer = plane.kubectl("get", what, "-n", namespace, "-o", "json", "--show-managed-fields")
    fields = json.loads(answer)["metadata"]["managedFields"]
    return {field["manager"] for field in fields if not field.get("subresource")}


@pytest.mark.usefixtures("measured")
def test_the_phase_0_sample_goes_from_apply_to_succeeded(
    kuberay: ControlPlane, operator: OperatorProcess, ledger: ScriptedLedger, namespace: str
) -> None:
    run = Run(kuberay, namespace, "phase0-qwen25-coder-7b").create(phase0())
    run.wait_for("ClusterReady")
    run.wait_for("Generated", "False", "Generating")
    uid = run.get()["metadata"]["uid"]
    name = run.name
    made = [item for item in run.objects(EVERYTHING) if item["kind"] != "Pod"]
    owners = {f"{item['kind']}/{item['metadata']['name']}": item["metadata"].get("ownerReferences") for item in made}
    assert set(owners) == {
        f"StatefulSet/{name}-aggregator", f"Service/{name}-aggregator", f"ConfigMap/{name}-order",
        f"Secret/{name}-token", f"PersistentVolumeClaim/{name}-ledger-{uid[:8]}",
        f"Deployment/{name}-judge", f"Service/{name}-judge", f"PodDisruptionBudget/{name}-judge",
        f"HorizontalPodAutoscaler/{name}-judge", f"Deployment/{name}-sandbox", f"Service/{name}-sandbox",
        *(f"NetworkPolicy/{name}-{part}" for part in ("aggregator", "judge", "ray", "sandbox")),
        f"HorizontalPodAutoscaler/{name}-sandbox",
        f"RayCluster/{name}-{uid[:5]}-ray-1", f"RayJob/{name}-{uid[:5]}-gen-1",
    }  # fmt: skip
    assert {owner["uid"] for references in owners.values() for owner in references or ()} == {uid}
    assert all(owners.values())
    assert written_by(kuberay, namespace, f"statefulset/{name}-aggregator") == {"evalrun-operator"}
    assert written_by(kuberay, namespace, f"raycluster/{name}-{uid[:5]}-ray-1") == {"evalrun-operator"}
    ray_pods = [pod for pod in run.objects("pods") if "ray.io/node-type" in pod["metadata"]["labels"]]
    assert sorted(pod["metadata"]["labels"]["ray.io/node-type"] for pod in ray_pods) == ["head", "worker"]
    (worker,) = (pod for pod in ray_pods if pod["metadata"]["labels"]["ray.io/node-type"] == "worker")
    assert worker["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"
    for pod in ray_pods:
        variables = {entry["name"]: entry for entry in pod["spec"]["containers"][0]["env"]}
        assert variables["RAY_AUTH_MODE"]["value"] == "token"
        secret = variables["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]
        drawn = json.loads(kuberay.kubectl("get", "secret", secret["name"], "-n", namespace, "-o", "json"))
        assert drawn["metadata"]["ownerReferences"][0]["kind"] == "RayCluster"
        assert len(drawn["data"][secret["key"]]) > 40
    until(lambda: len(run.objects("pods")) == 9, "aggregator, 2 gateways, 4 sandboxes, head and worker")

    ledger.generated, ledger.judged = 164, 40
    run.wait_for("Generated")
    run.wait_until("the GPUs to be free", "rayclusters", [])
    run.wait_for("Judged", "False", "Judging")
    print(kuberay.kubectl("get", "er", "-n", namespace))
    ledger.judged = 160
    ledger.judged = 164
    kuberay.kubectl("wait", f"er/{name}", "-n", namespace, "--for=condition=Complete", "--timeout=100s")
    status = run.get()["status"]
    assert status["phase"] == "Succeeded"
    assert status["acceptedAt1"] == "0.8720"
    assert status["progress"] == "164/164"
    until(lambda: len(run.objects("pods")) == 1, "the judge to be scaled away")
    assert run.names("horizontalpodautoscalers") == []
    assert run.names("statefulsets") == [f"{name}-aggregator"]

    token = json.loads(kuberay.kubectl("get", "secret", f"{name}-token", "-n", namespace, "-o", "json"))
    assert len(token["data"]["token"]) > 40
    assert len(ledger.tokens) == 1  # the run's own, never another one
    metrics = operator.metrics()
    assert 'evalrun_runs{phase="Succeeded"} 1.0' in metrics
    assert f'evalrun_run_accepted_at_1{{dataset="humaneval",namespace="{namespace}",run="{name}"}} 0.872' in metrics
    print(kuberay.kubectl("get", "er", "-n", namespace, "-o", "wide"))
    described = kuberay.kubectl("describe", "er", name, "-n", namespace)
    print(described)
    for reason in ("ClusterProvisioned", "Generating", "AllGenerated", "ClusterReleased", "AllJudged", "Finished"):
        assert reason in described
    assert operator.stop() == 0
    logged = operator.log.read_text()
    assert f"{namespace}/{name}: Finished" in logged
    assert not [noise for noise in ("HTTP Request", "GET /healthz", "Handler ") if noise in logged]


@pytest.mark.parametrize("operator", [["--model-cache-claim=eval-data"]], indirect=True)
def test_suspend_frees_the_gpus_and_resume_continues_the_run(
    kuberay: ControlPlane, operator: OperatorProcess, ledger: ScriptedLedger, namespace: str
) -> None:
    run = on_gpus(kuberay, namespace, model={"path": "s3://checkpoints/step_7"})
    run.wait_for("Generated", "False", "Generating")
    (worker,) = (pod for pod in run.objects("pods") if pod["metadata"]["labels"].get("ray.io/node-type") == "worker")
    first = [container["name"] for container in worker["spec"]["initContainers"]]
    assert first == ["checkpoint", "wait-gcs-ready"]  # the latter is KubeRay's
    assert worker["spec"]["initContainers"][0]["args"][:2] == ["--cache", "/model-cache/checkpoints"]
    assert run.get()["status"]["settings"]["weights"] == "claim"
    ledger.generated = 50
    run.patch({"suspend": True})
    run.wait_for("Suspended")
    assert run.names("rayclusters", "rayjobs") == []
    # They go with their cluster, by the API server's garbage collection.
    until(
        lambda: not any("ray.io/cluster" in pod["metadata"]["labels"] for pod in run.objects("pods")),
        "Ray's pods to go",
    )
    assert run.get()["status"]["phase"] == "Suspended"
    assert run.names("statefulsets") == ["run-aggregator"]
    run.wait_until("the judge's room to be free", "deployments", [])
    run.patch({"suspend": False})
    run.wait_for("Generated", "False", "Generating")
    assert run.get()["status"]["attempts"] == 1
    ledger.generated = ledger.judged = 164
    run.wait_for("Succeeded")


@pytest.mark.parametrize("retain", [False, True])
def test_deleting_a_run_leaves_nothing_but_a_retained_volume(
    kuberay: ControlPlane, operator: OperatorProcess, namespace: str, retain: bool
) -> None:
    run = on_gpus(kuberay, namespace, output={"retain": True} if retain else {"url": "s3://bucket/x"})
    run.wait_for("Generated", "False", "Generating")
    claims = run.names("persistentvolumeclaims")
    run.delete()
    until(lambda: run.plane.request("GET", run.path).status == 404, "the run to be gone")
    left = claims if retain else []
    run.wait_until("nothing to be left", EVERYTHING, left, limit=90)
    until(lambda: 'evalrun_runs{phase="Generating"} 0.0' in operator.metrics(), "the metrics to forget it")


def test_deleted_objects_of_a_run_are_recreated(
    kuberay: ControlPlane, operator: OperatorProcess, ledger: ScriptedLedger, namespace: str
) -> None:
    run = on_gpus(kuberay, namespace)
    run.wait_for("Generated", "False", "Generating")
    kinds = "services,configmaps,networkpolicies,poddisruptionbudgets,horizontalpodautoscalers,deployments,statefulsets"
    before = {(item["kind"], item["metadata"]["name"]): item["metadata"]["uid"] for item in run.objects(kinds)}
    kuberay.kubectl("delete", kinds, "-n", namespace, "-l", "evalrun.dev/run=run", "--wait=false")

    def is_back() -> bool:
        now = {(item["kind"], item["metadata"]["name"]): item["metadata"]["uid"] for item in run.objects(kinds)}
        return now.keys() == before.keys() and all(now[key] != before[key] for key in before)

    until(is_back, "every object to be back")
    uid = run.get()["metadata"]["uid"][:5]
    kuberay.kubectl("delete", "raycluster", f"run-{uid}-ray-1", "-n", namespace, "--wait=false")
    run.wait_until("a new cluster", "rayclusters", [f"run-{uid}-ray-2"])
    run.wait_for("Generated", "False", "Generating")
    assert run.get()["status"]["attempts"] == 2
    ledger.generated = ledger.judged = 164
    run.wait_for("Succeeded")


def test_scale_down_to_one_worker_keeps_the_busy_worker(
    kuberay: ControlPlane, operator: OperatorProcess, ledger: ScriptedLedger, namespace: str
) -> None:
    sizes = {"tensorParallel": 1, "gpusPerNode": 1, "minReplicas": 1, "maxReplicas": 3, "maxNumSeqs": 60}
    run = on_gpus(kuberay, namespace, rollout=sizes)
    run.wait_for("Generated", "False", "Generating")

    def workers() -> dict[str, str]:
        """By name: the address."""
        found = [pod for pod in run.objects("pods") if pod["metadata"]["labels"].get("ray.io/node-type") == "worker"]
        return {pod["metadata"]["name"]: pod["status"].get("podIP", "") for pod in found}

    # Generation begins with the first worker that has an address.
    until(lambda: len({address for address in workers().values() if address}) == 3, "three workers with addresses")
    before = workers()
    at_work = sorted(before)[0]  # KubeRay, left alone, deletes the first of its list
    ledger.replicas = [
        ledger_pb2.Replica(name=name, address=f"{host}:4321", gpus=1, released_at=name != at_work)
        for name, host in before.items()
    ]
    ledger.generated = 150
    until(lambda: list(workers()) == [at_work], "the idle workers to go", limit=150)

    def group() -> dict[str, Any]:
        (cluster,) = run.objects("rayclusters")
        return dict(cluster["spec"]["workerGroupSpecs"][0])

    until(lambda: not group()["scaleStrategy"].get("workersToDelete"), "the names to be taken back")
    assert group()["replicas"] == 1
    assert list(workers()) == [at_work]
    ledger.generated = ledger.judged = 164
    run.wait_for("Succeeded")


def test_operator_killed_at_every_step_completes_the_run_in_one_attempt(
    kuberay: ControlPlane, operator: OperatorProcess, ledger: ScriptedLedger, namespace: str
) -> None:
    operator.kill()
    run = on_gpus(kuberay, namespace)
    token: set[str] = set()
    steps = [
        ("Accepted", "True", ""), ("ClusterReady", "True", ""), ("Generated", "False", "Generating"),
        ("Generated", "True", ""), ("Judged", "False", "Judging"), ("Complete", "True", ""),
    ]  # fmt: skip
    for number, (condition, status, reason) in enumerate(steps):
        operator.start()
        if number == 3:
            ledger.generated = 164
        if number == 4:
            ledger.judged = 100
        if number == 5:
            ledger.judged = 164
        run.wait_for(condition, status, reason)
        operator.kill()
        if number > 0:
            secret = json.loads(kuberay.kubectl("get", "secret", "run-token", "-n", namespace, "-o", "json"))
            token.add(secret["data"]["token"])
    final = run.get()["status"]
    assert final["phase"] == "Succeeded"
    assert final["attempts"] == 1
    assert len(token) == 1
    operator.start()
    until(lambda: "Succeeded" in operator.metrics(), "the operator to have seen the run")
    run.wait_until("the GPUs to be free", "rayclusters", [])
    assert run.get()["status"] == final


def test_run_succeeds_in_one_attempt_despite_api_server_restarts(
    kuberay: ControlPlane, operator: OperatorProcess, ledger: ScriptedLedger, namespace: str
) -> None:
    run = on_gpus(kuberay, namespace)
    kuberay.restart_server()  # while the operator makes the run's objects
    run.wait_for("Generated", "False", "Generating", limit=90)
    secret = json.loads(kuberay.kubectl("get", "secret", "run-token", "-n", namespace, "-o", "json"))
    ledger.generated, ledger.judged = 164, 100
    kuberay.restart_server()  # while it lets the GPUs go
    run.wait_until("the GPUs to be free", "rayclusters", [], limit=90)
    run.wait_for("Judged", "False", "Judging", limit=90)
    ledger.judged = 164
    run.wait_for("Complete", limit=90)
    status = run.get()["status"]
    assert (status["phase"], status["attempts"]) == ("Succeeded", 1)
    assert json.loads(kuberay.kubectl("get", "secret", "run-token", "-n", namespace, "-o", "json")) == secret
    assert operator.is_live()


def test_simple_mode_job_that_leaves_answers_missing_is_followed_by_another(
    kuberay: ControlPlane, operator: OperatorProcess, ledger: ScriptedLedger, namespace: str
) -> None:
    run = Run(kuberay, namespace, "simple").create(evalrun_manifest({"spec.output": {"url": "s3://bucket/x"}}))
    run.wait_for("ClusterReady", "True", "NoClusterNeeded")
    uid = run.get()["metadata"]["uid"][:5]
    attempts = [f"simple-{uid}-gen-1", f"simple-{uid}-gen-2"]
    run.wait_until("an attempt that ended with answers missing to be followed", "jobs", attempts)
    run.wait_for("ScalingActive", "False", "NotMeasured")  # metrics-server is not installed
    assert "Install metrics-server" in run.plane.kubectl("describe", "er", "simple", "-n", namespace)
    assert run.names("horizontalpodautoscalers") == []
    ledger.generated = ledger.judged = 164  # kwok ends a Job's pods at once
    run.wait_for("Complete")
    assert run.names("rayclusters") == []


def test_deadline_reached_ledger_writes_existing_results(
    kuberay: ControlPlane, operator: OperatorProcess, ledger: ScriptedLedger, namespace: str
) -> None:
    ledger.generated, ledger.judged = 50, 20
    run = on_gpus(kuberay, namespace, activeDeadlineSeconds=6)
    run.wait_for("Complete", "True", "DeadlineExceeded")
    assert ledger.ended_early == "activeDeadlineSeconds (6) have passed"
    status = run.get()["status"]
    assert (status["phase"], status["outputURL"]) == ("Failed", ledger.output_url)
    assert f"What there was by then is at {ledger.output_url}, marked partial" in kuberay.kubectl(
        "describe", "er", "run", "-n", namespace
    )
    run.wait_until("the GPUs to be free", "rayclusters", [])


def test_a_run_whose_gate_has_decided_frees_its_gpus_and_succeeds(
    kuberay: ControlPlane, operator: OperatorProcess, ledger: ScriptedLedger, namespace: str
) -> None:
    gate = {"baseline": "s3://evaluations/main", "dataset": "humaneval", "maxRegression": "0.02", "sequential": True}
    run = on_gpus(kuberay, namespace, gates=[gate])
    run.wait_for("Generated", "False", "Generating")
    assert run.names("rayclusters") != []
    ledger.gate = ledger_pb2.GATE_DECISION_FAILED
    ledger.total = ledger.generated = ledger.judged = 60
    ledger.cancelled = 104
    run.wait_for("GatePassed", "False", "Regression")
    run.wait_for("Complete")
    run.wait_until("the GPUs to be free", "rayclusters", [])
    status = run.get()["status"]
    assert (status["phase"], status["progress"]) == ("Succeeded", "60/60")
    assert status["stoppedEarly"] == "humaneval: 104 answers were not needed"
    assert status["datasets"][0]["cancelled"] == 104


def test_invalid_spec_is_reported_in_a_condition_and_can_be_corrected(
    kuberay: ControlPlane, operator: OperatorProcess, namespace: str
) -> None:
    changes = {"spec.judge.gateway.minReplicas": 0, "spec.output": {"url": "s3://bucket/x"}}
    run = Run(kuberay, namespace, "run").create(evalrun_manifest(changes, rollout=True))
    run.wait_for("Accepted", "False", "InvalidSpec")
    assert "write 1" in run.conditions()["Accepted"]["message"]
    assert run.names(EVERYTHING) == []
    run.patch({"judge": {"gateway": {"minReplicas": 1}}})
    run.wait_for("Accepted")
    run.wait_for("Complete", "False")
