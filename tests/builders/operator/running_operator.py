"""The operator as a process of its own on the test control plane, with exactly its role, and a scripted ledger.

The ledger is a real gRPC server on loopback which outlives the operator, as an aggregator would.
"""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from builders.cluster.controlplane import ControlPlane, until
from builders.ports import free_ports

from evalrun_api import names
from evalrun_operator.rbac import lease_rules, role_rules
from evalrun_operator.settings import AutoscalingMode
from evalrun_proto.ledger.v1 import ledger_pb2

ACCOUNT = "evalrun-operator"
OPERATOR_NAMESPACE = "evalrun-system"
LEASE = f"{OPERATOR_NAMESPACE}/evalrun-operator"
"""What says which of several operators works."""
RUNS = "/apis/evalrun.dev/v1alpha1/namespaces/{namespace}/evalruns"
GROUPS = {
    **dict.fromkeys(("configmaps", "persistentvolumeclaims", "pods", "secrets", "services"), "api/v1"),
    **dict.fromkeys(("deployments", "statefulsets"), "apis/apps/v1"),
    "horizontalpodautoscalers": "apis/autoscaling/v2",
    "jobs": "apis/batch/v1",
    "networkpolicies": "apis/networking.k8s.io/v1",
    "poddisruptionbudgets": "apis/policy/v1",
    **dict.fromkeys(("rayclusters", "rayjobs"), "apis/ray.io/v1"),
}
"""Where the API server has what a run is made of."""
USER_CLAIMS = ("data", "eval-data")
"""Volumes that the manifests of these tests name."""
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
TESTS = Path(__file__).parents[2]
READY_SECONDS = 120.0


class ScriptedLedger:
    """A run's ledger as tests want it; of the contract only what the operator asks."""

    def __init__(self, total: int = 164) -> None:
        self.total = total
        self.generated = 0
        self.judged = 0
        self.not_judged = 0
        self.output_url = "s3://evaluations/phase0/run"
        self.ended_early = ""
        self.stopped_by_user = False
        self.cancelled = 0
        """Answers that the gates made needless; `total` is without them."""
        self.gate = ledger_pb2.GATE_DECISION_UNSPECIFIED
        self.replicas: list[ledger_pb2.Replica] = []
        self.tokens: set[str] = set()
        """What callers sent as theirs."""

    def GetStatus(  # noqa: N802 - the contract's name
        self, request: ledger_pb2.GetStatusRequest, context: grpc.ServicerContext
    ) -> ledger_pb2.GetStatusResponse:
        self.tokens.add(str(dict(context.invocation_metadata()).get("authorization", "")))
        done = bool(self.ended_early) or (self.generated == self.total and self.judged + self.not_judged == self.total)
        state = ledger_pb2.RUN_STATE_JUDGING if self.generated == self.total else ledger_pb2.RUN_STATE_GENERATING
        answer = ledger_pb2.GetStatusResponse(
            state=(ledger_pb2.RUN_STATE_DEGRADED if self.ended_early else ledger_pb2.RUN_STATE_SUCCEEDED)
            if done
            else state,
            output_tokens=self.generated * 120,
            generating_seconds=60.0,
            working_seconds=80.0,
            output_url=self.output_url if done else "",
            ended_early=self.ended_early,
            stopped_by_user=self.stopped_by_user,
            stopped_early=f"humaneval: {self.cancelled} answers were not needed" if self.cancelled else "",
            gate=self.gate if done else ledger_pb2.GATE_DECISION_UNSPECIFIED,
            gate_message="decided by the first problems" if done else "",
            replicas=self.replicas,
        )
        counts = answer.datasets.add(
            name="humaneval", total=self.total, generated=self.generated, judged=self.judged,
            accepted=self.judged // 2, not_judged=self.not_judged, cancelled=self.cancelled,
        )  # fmt: skip
        if done:
            counts.accepted_at_1.CopyFrom(ledger_pb2.Interval(value=0.872, low=0.811, high=0.914))
        return answer

    def EndRun(  # noqa: N802 - the contract's name
        self, request: ledger_pb2.EndRunRequest, context: grpc.ServicerContext
    ) -> ledger_pb2.EndRunResponse:
        del context
        self.ended_early = self.ended_early or request.reason
        return ledger_pb2.EndRunResponse()


@contextmanager
def serving_ledger(ledger: ScriptedLedger, held: Mapping[str, str] | None = None) -> Iterator[str]:
    """Serve a ledger; gives its address.

    Args:
        ledger: whose answers they are.
        held: a run's Secret, with whose certificates the port takes TLS alone; None: plain text.
    """
    server = grpc.server(ThreadPoolExecutor(4))
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "GetStatus": grpc.unary_unary_rpc_method_handler(
            ledger.GetStatus,
            request_deserializer=ledger_pb2.GetStatusRequest.FromString,
            response_serializer=ledger_pb2.GetStatusResponse.SerializeToString,
        ),
        "EndRun": grpc.unary_unary_rpc_method_handler(
            ledger.EndRun,
            request_deserializer=ledger_pb2.EndRunRequest.FromString,
            response_serializer=ledger_pb2.EndRunResponse.SerializeToString,
        ),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("evalrun.ledger.v1.LedgerService", handlers)])
    if held is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        certificate, key = (held[name].encode() for name in names.certificate_keys(names.AGGREGATOR))
        authority = held[names.AUTHORITY_KEY].encode()
        credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait()


def operator_kubeconfig(plane: ControlPlane, autoscaling: AutoscalingMode = "cpu") -> Path:
    """Make the operator's ServiceAccount with exactly its role in a mode; gives a kubeconfig with its token."""
    manifests: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OPERATOR_NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": OPERATOR_NAMESPACE}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": ACCOUNT},
            "rules": role_rules(autoscaling),
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": OPERATOR_NAMESPACE}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": ACCOUNT, "namespace": OPERATOR_NAMESPACE},
            "rules": lease_rules(LEASE.rpartition("/")[2]),
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": ACCOUNT, "namespace": OPERATOR_NAMESPACE},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": OPERATOR_NAMESPACE}],
        },
    ]  # fmt: skip
    apply(plane, *manifests)
    account = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/serviceaccounts/{ACCOUNT}"
    token = plane.request("POST", f"{account}/token", {"spec": {}}).body["status"]["token"]
    config = json.loads(plane.kubeconfig.read_text())
    config["users"] = [{"name": "admin", "user": {"token": token}}]
    path = plane.directory / "operator.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def apply(plane: ControlPlane, *manifests: dict[str, Any]) -> None:
    """Apply objects as the administrator, as `kubectl apply --server-side` does, which takes 0.3 s of CPU a call.

    Raises:
        RuntimeError: the server refuses one; the message is its own.
    """
    kinds: dict[str, list[dict[str, Any]]] = {}
    for manifest in manifests:
        version, metadata = manifest["apiVersion"], manifest["metadata"]
        path = f"/api/{version}" if version == "v1" else f"/apis/{version}"
        if version not in kinds:
            kinds[version] = plane.request("GET", path).body["resources"]
        (kind,) = (one for one in kinds[version] if one["kind"] == manifest["kind"] and "/" not in one["name"])
        space = f"/namespaces/{metadata.get('namespace', 'default')}" if kind["namespaced"] else ""
        target = f"{path}{space}/{kind['name']}/{metadata['name']}"
        answer = plane.request("PATCH", target, manifest, APPLY, fieldManager="kubectl", fieldValidation="Strict")
        if answer.status not in {200, 201}:
            raise RuntimeError(f"{target}: {answer.message}")


def make_namespace(plane: ControlPlane, name: str) -> None:
    """Make a namespace that takes restricted pods only, with the users' volumes and one for a run's ledger.

    Nothing provisions volumes here, so they are made by hand, one a claim.
    """
    enforce = {"pod-security.kubernetes.io/enforce": "restricted"}
    volumes = [volume(f"{name}-{number}") for number in range(len(USER_CLAIMS) + 1)]
    claims = [_claim(name, claim) for claim in USER_CLAIMS]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": enforce}}
    apply(plane, namespace, *volumes, *claims)


def remove_namespace(plane: ControlPlane, name: str) -> None:
    """Delete the runs and wait until their pods are gone: the nodes' GPUs are the next test's."""
    runs = RUNS.format(namespace=name)
    # A CRD that was just changed is refused for a moment, and again after it was served once.
    until(lambda: plane.request("DELETE", runs).status == 200, f"the runs in {name} to be deleted")
    until(lambda: plane.request("GET", runs).body.get("items") == [], f"no runs in {name}", 100)
    pods = f"/api/v1/namespaces/{name}/pods"
    until(lambda: not plane.request("GET", pods).body["items"], f"no pods in {name}")
    plane.request("DELETE", f"/api/v1/namespaces/{name}")


def volume(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "20Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/nowhere"},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }  # fmt: skip


def _claim(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }  # fmt: skip


@dataclass
class OperatorProcess:
    """An operator's process, which a test may kill and start again."""

    plane: ControlPlane
    kubeconfig: Path
    ledger: str
    log: Path
    metrics_port: int
    port: int
    process: subprocess.Popen[bytes] | None = None
    flags: Sequence[str] = ("--poll-seconds=0.3", "--backoff-seconds=0.2")
    interpreter: Sequence[str] = (sys.executable,)
    """Python, with flags of its own."""
    program: Sequence[str] = ("evalrun_operator",)
    """The module that is run, and arguments before the flags."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of its environment, beside the usual ones."""

    def start(self) -> None:
        self.launch()
        until(self.is_live, "the operator's liveness", READY_SECONDS)

    def launch(self) -> None:
        command = [
            *self.interpreter, "-m", *self.program, f"--aggregator-address={self.ledger}",
            f"--metrics-port={self.metrics_port}", f"--port={self.port}", *self.flags,
        ]  # fmt: skip
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "PYTHONPATH": str(TESTS), **self.variables}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def is_live(self) -> bool:
        if self.process is not None and self.process.poll() is not None:
            raise RuntimeError(f"the operator ended: {self.log.read_text()[-3000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=60) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=60) as answer:
            return str(answer.read().decode())

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> int:
        """Ask it to end; gives its exit code."""
        if self.process is None:
            return 0
        self.process.terminate()
        return self.process.wait(timeout=60)


@contextmanager
def running_operator(
    plane: ControlPlane,
    kubeconfig: Path,
    ledger: str,
    flags: Sequence[str] | None = None,
    *,
    program: Sequence[str] = ("evalrun_operator",),
    variables: Mapping[str, str] | None = None,
) -> Iterator[OperatorProcess]:
    """Run the operator; its log is in the control plane's directory."""
    metrics_port, port = free_ports(2)
    operator = OperatorProcess(plane, kubeconfig, ledger, plane.directory / "operator.log", metrics_port, port)
    operator.program, operator.variables = program, variables or {}
    if flags is not None:
        operator.flags = flags
    operator.start()
    try:
        yield operator
    finally:
        operator.kill()


@dataclass(frozen=True)
class Run:
    """An EvalRun on the control plane."""

    plane: ControlPlane
    namespace: str
    name: str

    @property
    def path(self) -> str:
        return f"{RUNS.format(namespace=self.namespace)}/{self.name}"

    def create(self, manifest: dict[str, Any], *, tls: str | None = "Disabled") -> Run:
        """Apply it as a user would; in plain text as a scripted ledger is, unless `tls` says otherwise or nothing."""
        metadata = {**manifest["metadata"], "namespace": self.namespace, "name": self.name}
        spec = {**manifest["spec"], **({} if tls is None else {"tls": tls})}
        apply(self.plane, {**manifest, "metadata": metadata, "spec": spec})
        return self

    def get(self) -> dict[str, Any]:
        return self.plane.request("GET", self.path).body

    def patch(self, spec: dict[str, Any]) -> None:
        answer = self.plane.request("PATCH", self.path, {"spec": spec}, MERGE)
        if answer.status != 200:
            raise RuntimeError(answer.message)

    def delete(self) -> None:
        self.plane.request("DELETE", self.path)

    def conditions(self) -> dict[str, dict[str, Any]]:
        status = self.get().get("status", {})
        return {condition["type"]: condition for condition in status.get("conditions", ())}

    def wait_for(self, condition: str, status: str = "True", reason: str = "", limit: float = 90.0) -> None:
        """Wait for a condition's status, and reason where one is given."""

        def holds() -> bool:
            found = self.conditions().get(condition, {})
            return found.get("status") == status and reason in {"", found.get("reason")}

        try:
            until(holds, f"{condition}={status} {reason} of {self.name}", limit)
        except TimeoutError as error:
            conditions = [f"{name}: {one['reason']}: {one['message']}" for name, one in self.conditions().items()]
            lines = [
                line
                for log in self.plane.directory.glob("*.log")
                for line in log.read_text(errors="replace").splitlines()
                if f"{self.namespace}/{self.name}" in line or "failed unexpectedly" in line
            ]
            raise AssertionError("\n".join([str(error), *conditions, *lines[-20:]])) from error

    def objects(self, *plurals: str) -> list[dict[str, Any]]:
        return [item for kinds in plurals for plural in kinds.split(",") for item in self._labelled(plural)]

    def _labelled(self, plural: str) -> list[dict[str, Any]]:
        path = f"/{GROUPS[plural]}/namespaces/{self.namespace}/{plural}"
        answer = self.plane.request("GET", path, labelSelector=f"evalrun.dev/run={self.name}")
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.message}")
        kind = answer.body["kind"].removesuffix("List")  # which the items themselves do not tell
        return [{**item, "kind": kind} for item in answer.body["items"]]

    def names(self, *plurals: str) -> list[str]:
        return sorted(item["metadata"]["name"] for item in self.objects(*plurals))

    def wait_until(self, what: str, plurals: str, names: list[str], limit: float = 90.0) -> None:
        try:
            until(lambda: self.names(plurals) == names, what, limit)
        except TimeoutError as error:
            raise AssertionError(f"{error}: {self.names(plurals)}, not {names}") from error
