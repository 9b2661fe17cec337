"""Replicas that a schedule keeps, on a real API server with real controllers and KubeRay's operator.

Containers do not run here: kwok pretends that pods do, and ends a Job's pods at once, so that each run's one attempt
counts as failed and the next is far away. The ledger tells runs apart by their tokens.
"""

import base64
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from builders.cluster.controlplane import ControlPlane, until
from builders.operator.evalschedules import KEPT, evalschedule_manifest
from builders.operator.running_operator import (
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
    volume,
)

from evalrun_api import names
from evalrun_api.checkpoint_listing import ReadyCheckpoint
from evalrun_api.v1alpha1 import EvalSchedule
from evalrun_operator.schedules.objects import make_eval_run
from evalrun_proto.ledger.v1 import ledger_pb2

SCHEDULES = "/apis/evalrun.dev/v1alpha1/namespaces/{namespace}/evalschedules"
FLAGS = ("--poll-seconds=0.3", "--backoff-seconds=600", "--max-backoff-seconds=600")
NUMBERS = itertools.count()
STEPS = (10, 20)


class LedgerOfRuns(ScriptedLedger):
    """The ledgers of several runs at one address."""

    def __init__(self) -> None:
        super().__init__()
        self.finished: set[str] = set()
        """Tokens of runs that have everything."""

    def GetStatus(  # noqa: N802 - the contract's name
        self, request: ledger_pb2.GetStatusRequest, context: grpc.ServicerContext
    ) -> ledger_pb2.GetStatusResponse:
        token = str(dict(context.invocation_metadata()).get("authorization", ""))
        own = ScriptedLedger()
        if token.removeprefix("Bearer ") in self.finished:
            own.generated = own.judged = own.total
        return own.GetStatus(request, context)


@dataclass
class Kept:
    """A schedule that keeps its replicas, and the runs of two checkpoints."""

    plane: ControlPlane
    namespace: str
    ledger: LedgerOfRuns
    seen: dict[str, str] = field(default_factory=dict)
    """By uid, the name of each RayCluster that was ever there."""

    @property
    def path(self) -> str:
        return f"{SCHEDULES.format(namespace=self.namespace)}/nightly"

    def begin(self, changes: dict[str, Any]) -> "Kept":
        manifest = evalschedule_manifest(
            {
                **KEPT, "spec.checkpoints.url": "pvc://data/grpo", "spec.schedule": "0 3 1 1 *",
                "spec.template.tls": "Disabled", "spec.template.rollout.replicas": 1, **changes,
            }
        )  # fmt: skip
        apply(self.plane, {**manifest, "metadata": {"name": "nightly", "namespace": self.namespace}})
        digests = [{"digest": f"{step:010}", "step": step} for step in STEPS]
        status = {"evaluated": {"digests": digests}, "lastScheduleTime": datetime.now(UTC).isoformat()}
        answer = self.plane.request("PATCH", f"{self.path}/status", {"status": status}, MERGE)
        assert answer.status == 200, answer.message
        return self

    def run(self, step: int) -> Run:
        return Run(self.plane, self.namespace, f"nightly-{step:010}")

    def start(self, *steps: int) -> "Kept":
        """Create the runs as the schedule does."""
        schedule = EvalSchedule.from_wire(self.plane.request("GET", self.path).body)
        for step in steps:
            found = ReadyCheckpoint(path=f"global_step_{step}", step=step, digest=f"{step:010}")
            apply(self.plane, make_eval_run(schedule, found, datetime(2026, 5, 1, tzinfo=UTC), None))
        return self

    def finish(self, step: int) -> None:
        """Have a run's ledger hold every answer and verdict."""
        secret = self.plane.kubectl("get", "secret", f"nightly-{step:010}-token", "-n", self.namespace, "-o", "json")
        tokens = base64.b64decode(json.loads(secret)["data"][names.OPERATOR_TOKEN]).decode()
        self.ledger.finished.add(tokens.splitlines()[0])  # the operator sends the first

    def patch(self, spec: dict[str, Any]) -> None:
        answer = self.plane.request("PATCH", self.path, {"spec": spec}, MERGE)
        assert answer.status == 200, answer.message

    @property
    def status(self) -> dict[str, Any]:
        answer = self.plane.request("GET", self.path)
        return dict(answer.body.get("status", {}).get("replicas", {})) if answer.status == 200 else {}

    def condition(self) -> dict[str, Any]:
        found = self.plane.request("GET", self.path).body["status"]["conditions"]
        return next(one for one in found if one["type"] == "ReplicasReady")

    def clusters(self) -> list[str]:
        """Return the RayClusters that are there; never more than one."""
        items = self.plane.request("GET", f"/apis/ray.io/v1/namespaces/{self.namespace}/rayclusters").body["items"]
        self.seen |= {item["metadata"]["uid"]: item["metadata"]["name"] for item in items}
        assert len(items) <= 1, [item["metadata"]["name"] for item in items]
        return [item["metadata"]["name"] for item in items]

    def pods(self) -> list[dict[str, Any]]:
        selector = "ray.io/cluster"
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        return list(self.plane.request("GET", path, labelSelector=selector).body["items"])

    def wait_for_holder(self, step: int | None) -> None:
        wanted = None if step is None else f"nightly-{step:010}"

        def holds() -> bool:
            self.clusters()
            return self.status.get("holder") == wanted

        until(holds, f"the turn of {wanted}; {self.status}", 120)

    def wait_for_release(self) -> float:
        """Wait until no RayCluster and none of its pods is there. Return the seconds that took."""
        began = time.monotonic()
        until(lambda: not self.clusters() and not self.pods(), f"no GPU to be held: {self.status}", 60)
        return time.monotonic() - began


@pytest.fixture(scope="module")
def account(kuberay: ControlPlane) -> Path:
    return operator_kubeconfig(kuberay)


@pytest.fixture
def ledger() -> LedgerOfRuns:
    return LedgerOfRuns()


@pytest.fixture
def operator(kuberay: ControlPlane, account: Path, ledger: LedgerOfRuns) -> Iterator[OperatorProcess]:
    with serving_ledger(ledger) as address, running_operator(kuberay, account, address, FLAGS) as process:
        yield process


@pytest.fixture
def kept(kuberay: ControlPlane, ledger: LedgerOfRuns) -> Iterator[Kept]:
    namespace = f"kept-{next(NUMBERS)}"
    make_namespace(kuberay, namespace)
    apply(kuberay, volume(f"{namespace}-second-ledger"))
    schedule = Kept(kuberay, namespace, ledger)
    yield schedule
    kuberay.request("DELETE", schedule.path)
    remove_namespace(kuberay, namespace)


@pytest.mark.usefixtures("operator")
def test_two_checkpoints_share_one_cluster_which_is_deleted_when_idle(kuberay: ControlPlane, kept: Kept) -> None:
    kept.begin({"spec.replicas": {"keep": {"idleSeconds": 4}}}).start(*STEPS)
    kept.wait_for_holder(10)
    kept.run(20).wait_for("Admitted", "False", "WaitingForReplicas")
    kept.run(10).wait_for("ClusterReady", "True", "ClusterProvisioned")
    (name,) = kept.clusters()
    assert kept.run(10).names("rayclusters", "rayjobs") == []
    until(lambda: bool(kept.run(10).names("jobs")), "the generator's Job")
    assert kept.run(20).names("jobs") == []
    (job,) = kept.run(10).objects("jobs")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    cluster = kuberay.request("GET", f"/apis/ray.io/v1/namespaces/{kept.namespace}/rayclusters/{name}").body
    service = cluster["status"]["head"]["serviceName"]
    assert f"--ray-join={service}.{kept.namespace}.svc:6379" in container["args"]
    assert "--model-folder=/mnt/claims/data/grpo/global_step_10" in container["args"]
    # The token is KubeRay's own, and the pods of the replicas hold nothing of a run's.
    heads = [one for one in kept.pods() if one["metadata"]["labels"]["ray.io/node-type"] == "head"]
    of_head = {one["name"]: one for one in heads[0]["spec"]["containers"][0]["env"]}
    of_job = {one["name"]: one for one in container["env"]}
    assert of_job["RAY_AUTH_TOKEN"] == of_head["RAY_AUTH_TOKEN"]
    assert of_job["RAY_AUTH_MODE"] == of_head["RAY_AUTH_MODE"]
    assert container["image"] == heads[0]["spec"]["containers"][0]["image"]
    for one in kept.pods():
        assert one["spec"]["terminationGracePeriodSeconds"] == 5
        assert not [volume for volume in one["spec"]["volumes"] if "configMap" in volume or "projected" in volume]
        assert [volume["persistentVolumeClaim"]["claimName"] for volume in one["spec"]["volumes"]
                if "persistentVolumeClaim" in volume] == ["data"]  # fmt: skip

    kept.finish(10)
    kept.wait_for_holder(20)
    kept.run(20).wait_for("Admitted")
    until(lambda: bool(kept.run(20).names("jobs")), "the second run's Job")
    kept.run(10).wait_for("Succeeded")
    kept.finish(20)
    kept.wait_for_holder(None)
    print(f"released {kept.wait_for_release():.1f} s after the last turn, of which 4 s are idleSeconds")
    kept.run(20).wait_for("Succeeded")
    assert len(kept.seen) == 1
    until(lambda: kept.condition()["reason"] == "NoneNeeded", "the condition")
    assert "cluster" not in kept.status
    described = kuberay.kubectl("describe", "evalschedule", "nightly", "-n", kept.namespace)
    assert "ReplicasStarted" in described
    assert "idleSeconds" in described
    assert kept.status["startGPUSeconds"] > 0
    assert kept.status["idleGPUSeconds"] > 0


@pytest.mark.usefixtures("operator")
def test_suspending_and_deleting_the_schedule_frees_the_gpus(kuberay: ControlPlane, kept: Kept) -> None:
    kept.begin({"spec.replicas": {"keep": {"idleSeconds": 3600}}}).start(10)
    kept.wait_for_holder(10)
    kept.finish(10)
    kept.wait_for_holder(None)
    kept.patch({"suspend": True})
    print(f"released {kept.wait_for_release():.1f} s after suspend: true")
    kept.patch({"suspend": False})
    kept.start(20)
    kept.wait_for_holder(20)
    assert len(kept.seen) == 2
    kuberay.request("DELETE", kept.path)
    print(f"released {kept.wait_for_release():.1f} s after the deletion, with a run in its turn")


@pytest.mark.usefixtures("operator")
def test_after_max_checkpoints_the_next_run_gets_another_cluster(kept: Kept) -> None:
    kept.begin({"spec.replicas": {"keep": {"maxCheckpoints": 1}}}).start(*STEPS)
    kept.wait_for_holder(10)
    kept.finish(10)
    kept.wait_for_holder(20)
    assert sorted(name.rpartition("-")[2] for name in kept.seen.values()) == ["1", "2"]


@pytest.mark.usefixtures("operator")
def test_next_run_gets_a_separate_cluster_once_no_replicas_are_kept(kept: Kept) -> None:
    kept.begin({}).start(*STEPS)
    kept.wait_for_holder(10)
    kept.patch({"replicas": None})
    assert kept.status.get("holder") == f"nightly-{10:010}", "a run keeps its turn"
    until(lambda: len(kept.run(20).names("rayclusters")) == 1, "the second run's own RayCluster", 120)


def test_operator_killed_at_each_step_makes_no_second_cluster(kept: Kept, operator: OperatorProcess) -> None:
    """Killed as soon as a step can be seen: the status announces it, its object appears, its turn begins or ends."""

    def killed_once(holds: Callable[[], object], what: str) -> None:
        until(lambda: bool(holds()), what, 120)
        operator.kill()
        kept.clusters()
        operator.start()

    kept.begin({"spec.replicas": {"keep": {"idleSeconds": 3}}}).start(*STEPS)
    killed_once(lambda: kept.status.get("cluster"), "a RayCluster to be announced")
    killed_once(kept.clusters, "the RayCluster")
    killed_once(lambda: kept.status.get("clusterUid"), "the RayCluster's uid")
    killed_once(lambda: kept.status.get("holder"), "the first turn")
    kept.finish(10)
    killed_once(lambda: kept.status.get("holder") == f"nightly-{20:010}", "the second turn")
    assert len(kept.seen) == 1
    kept.finish(20)
    killed_once(lambda: not kept.status.get("holder"), "the end of the second turn")
    killed_once(lambda: kept.status.get("leaving") or not kept.status.get("cluster"), "the release")
    kept.wait_for_release()
    kept.run(20).wait_for("Succeeded")
    assert len(kept.seen) == 1
