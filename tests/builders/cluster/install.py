"""evalrun on a cluster as a user would install it: images loaded, the chart by helm, namespaces that admit only
restricted pods, problems on a volume, and a server that answers.
"""

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from builders.cluster.cluster import CONTAINER_SECURITY, POD_SECURITY, RESTRICTED, Cluster, CommandFailedError, Object
from builders.cluster.images import Image
from builders.cluster.tasks import MODEL, Tasks

CHART = Path(__file__).parents[3] / "charts" / "evalrun"
REGISTRY = "localhost/evalrun-e2e"
CRDS = ("evalruns.evalrun.dev", "evalschedules.evalrun.dev")
PORT = 8000
PROBLEMS = "problems"
"""A claim with what the user brings."""
RESULTS = "results"
"""A claim that takes the outputs."""
VALUES: Object = {
    "operator": {"pollSeconds": 1},
    "runDefaults": {"sandboxSlotMilliCpu": 100, "gatewayCpu": "100m", "generatorCpu": "100m"},
    "admission": {
        "allowed": {
            "backends": ["Evalrun", "SandboxFusion"], "nodeLabels": ["kubernetes.io/hostname"],
            "tolerations": ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"],
        }
    },
}  # fmt: skip
"""So that three runs fit on a node of two CPUs, a stock server may be used, and runs choose and leave their nodes."""
SHARED_JUDGE: Object = {
    "enabled": True,
    "gateway": {
        "minReplicas": 2, "discovery": "endpointSlices",
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
    },
    "sandbox": {"minReplicas": 2, "slots": 1, "slotMilliCpu": 50, "slotMemoryMib": 512},
}  # fmt: skip
"""Two gateways and two sandboxes, small; with certificates of the operator's, as by default."""


@dataclass(frozen=True)
class Installed:
    """An operator at work, and a namespace for runs."""

    cluster: Cluster
    system: str
    """The operator's namespace."""
    runs: str
    """The runs' namespace."""
    images: dict[str, str]

    def endpoint(self, server: str) -> Object:
        """Return the entry of `spec.endpoints` that asks a playback server."""
        url = f"http://{server}.{self.runs}.svc:{PORT}/v1"
        return {"url": url, "apiKeySecretRef": {"name": "answers", "key": "api-key"}}

    def serve_answers(self, name: str, tasks: Tasks, *flags: str, placement: Object | None = None) -> None:
        """Run a playback server behind a Service; its files must lie on the claim `problems` already."""
        command = [
            "python", "-m", "evalrun_generator.recorded", "--host=0.0.0.0", f"--port={PORT}", f"--model={MODEL}",
            *tasks.flags(f"/{PROBLEMS}"), *flags,
        ]  # fmt: skip
        key = {"secretKeyRef": {"name": "answers", "key": "api-key"}}
        server = self._pod(command, [PROBLEMS], env=[{"name": "EVALRUN_RECORDED_TOKEN", "valueFrom": key}])
        server |= placement or {}
        server["containers"][0]["readinessProbe"] = {"httpGet": {"path": "/health", "port": PORT}, "periodSeconds": 1}
        labels = {"app": name}
        self.cluster.apply(
            self.runs,
            {
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
                "spec": {
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": server},
                },
            },
            {
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
                "spec": {"selector": labels, "ports": [{"port": PORT}]},
            },
        )  # fmt: skip

    @contextmanager
    def another_namespace(self, name: str, labels: Mapping[str, str] = RESTRICTED) -> Iterator["Installed"]:
        """Make a namespace for further runs, with the key of the servers that answer; take it and its runs away."""
        there = replace(self, runs=f"evalrun-e2e-{name}-{secrets.token_hex(3)}")
        metadata = {"name": there.runs, "labels": dict(labels)}
        self.cluster.apply("default", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        try:
            key = self.cluster.get(self.runs, "secret", "answers")
            copied = {"metadata": {"name": "answers"}, "data": key["data"]}
            self.cluster.apply(there.runs, {"apiVersion": "v1", "kind": "Secret", **copied})
            yield there
        finally:
            self.cluster.kubectl("delete", "evalruns", "--namespace", there.runs, "--all", "--timeout=50s")
            self.cluster.kubectl("delete", "namespace", there.runs, "--wait=false")

    @contextmanager
    def upgraded(self, values: Object) -> Iterator[None]:
        """Upgrade the release by further values, and roll it back at the end; each time until the pods are new."""
        self.upgrade(values)
        try:
            yield
        finally:
            self.roll_back()

    @contextmanager
    def open_to_all(self, namespace: str) -> Iterator[None]:
        """Let everybody connect to the pods of a namespace, so that tokens and certificates alone close their ports."""
        spec = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]}
        policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "open-to-all"}}
        self.cluster.apply(namespace, {**policy, "spec": spec})
        try:
            yield
        finally:
            self.cluster.kubectl("delete", "networkpolicy", "open-to-all", "--namespace", namespace)

    def upgrade(self, values: Object) -> None:
        """Upgrade the release by further values; wait until the operator's pods are new. Raises CommandFailedError."""
        self.apply_values(values)
        self.wait_for_operator()

    def apply_values(self, values: Object) -> None:
        """Upgrade the release by further values; nothing is waited for. Raises CommandFailedError."""
        where, given = ("--namespace", self.system), yaml.safe_dump(values)
        self.cluster.helm("upgrade", "evalrun", str(CHART), *where, "--reuse-values", "--values", "-", given=given)

    def roll_back(self) -> None:
        """Go back to the release's values before the last upgrade, as `upgrade`."""
        self.cluster.helm("rollback", "evalrun", "--namespace", self.system)
        self.wait_for_operator()

    def wait_for_operator(self) -> None:
        """Wait until the pods of the operator are those of its Deployment. Raises CommandFailedError."""
        which = ("--namespace", self.system, "deployment/evalrun-operator")
        self.cluster.kubectl("rollout", "status", *which, "--timeout=100s", seconds=110)

    def leading_operator(self) -> str:
        """Return the name of the operator's pod that is at work; the others stand by."""
        lease = self.cluster.get(self.system, "lease", "evalrun-operator")
        pod, _, _ = lease["spec"]["holderIdentity"].rpartition("_")
        return str(pod)

    def shared_judge(self) -> Object:
        """Return `spec.judgeRef` of the chart's judge; its token is brought to the runs, as Helm's notes say."""
        which = ("--namespace", self.system, "secret/evalrun-judge-token")
        self.cluster.kubectl("wait", *which, "--for=jsonpath={.data.token}", "--timeout=50s")
        secret = self.cluster.get(self.system, "secret", "evalrun-judge-token")
        copied = {"metadata": {"name": secret["metadata"]["name"]}, "data": secret["data"]}
        self.cluster.apply(self.runs, {"apiVersion": "v1", "kind": "Secret", **copied})
        token = {"name": secret["metadata"]["name"], "key": "token"}
        return {"name": "evalrun-judge", "namespace": self.system, "tokenSecretRef": token}

    def mount(self, pod: str, *claims: str, labels: Mapping[str, str] | None = None) -> None:
        """Run a pod that does nothing but to hold claims, each at /CLAIM; wait until it runs."""
        idle = self._pod(["python", "-c", "import signal; signal.sigwait({signal.SIGTERM})"], claims)
        metadata = {"name": pod, "labels": dict(labels or {})}
        self.cluster.apply(self.runs, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": idle})
        self.cluster.kubectl("wait", "--namespace", self.runs, f"pod/{pod}", "--for=condition=Ready", "--timeout=50s")

    def upload(self, *files: Path) -> None:
        for file in files:
            self.cluster.kubectl("cp", "--namespace", self.runs, str(file), f"files:/{PROBLEMS}/{file.name}")

    def read(self, path: str, pod: str = "files") -> str:
        """Return a text of a claim: `/CLAIM/...`."""
        return self.cluster.python(self.runs, pod, f"print(open({path!r}).read(), end='')")

    def start(self, manifest: Object, directory: Path) -> str:
        """Apply an EvalRun from a file, as a user would; give its name."""
        file = self.write(manifest, directory)
        self.cluster.kubectl("apply", "--namespace", self.runs, "--filename", str(file))
        return file.stem

    def write(self, manifest: Object, directory: Path) -> Path:
        file: Path = directory / f"{manifest['metadata']['name']}.yaml"
        file.write_text(yaml.safe_dump(manifest, sort_keys=False))
        return file

    def wait(self, run: str, seconds: int = 300) -> Object:
        """Wait until a run is over and return it.

        Raises:
            CommandFailedError: it is not over; the message has its conditions, its pods and its events.
        """
        try:
            self.cluster.kubectl(
                "wait", "--namespace", self.runs, f"evalrun/{run}", "--for=condition=Complete", f"--timeout={seconds}s",
                seconds=seconds + 10,
            )  # fmt: skip
        except CommandFailedError as error:
            described = self.cluster.kubectl("describe", "--namespace", self.runs, f"evalrun/{run}")
            pods = self.cluster.kubectl("get", "pods", "--namespace", self.runs, "--output", "wide")
            raise CommandFailedError(f"{error}\n{described[-6000:]}\n{pods}") from error
        found: Object = self.cluster.get(self.runs, "evalrun", run)
        return found

    def _pod(self, command: Sequence[str], claims: Sequence[str], **fields: object) -> Object:
        container = {
            "name": "main", "image": self.images["aggregator"], "command": list(command), **fields,
            "securityContext": CONTAINER_SECURITY,
            "resources": {"limits": {"memory": "512Mi"}, "requests": {"cpu": "10m"}},
            "volumeMounts": [{"name": claim, "mountPath": f"/{claim}"} for claim in claims],
        }  # fmt: skip
        volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        return {
            "containers": [container], "volumes": volumes, "securityContext": POD_SECURITY,
            "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 2,
        }  # fmt: skip


def load_images(cluster: Cluster, built: dict[str, Image], directory: Path) -> dict[str, str]:
    """Take images to the cluster's nodes, unless they have them; give each one's name. The tag is of its content."""
    names = {stage: f"{REGISTRY}/evalrun-{stage}:{image.digest[:12]}" for stage, image in built.items()}
    nodes = json.loads(cluster.kubectl("get", "nodes", "--output", "json"))["items"]
    there = [{name for image in node["status"].get("images", ()) for name in image["names"]} for node in nodes]

    def load(archive: Path) -> None:
        cluster.load(archive)
        archive.unlink()

    with ThreadPoolExecutor(1) as loader:  # one is loaded while the next is written
        loads = []
        for stage, image in built.items():
            if all(names[stage] in images for images in there):
                continue
            archive = directory / f"{stage}.tar"
            image.save(archive, names[stage])
            loads.append(loader.submit(load, archive))
        for loaded in loads:
            loaded.result()
    return names


@contextmanager
def installed(cluster: Cluster, images: dict[str, str], values: Object = VALUES) -> Iterator[Installed]:
    """Install the chart and make what a user would bring; take it all away at the end, the CRDs too.

    Args:
        cluster: where.
        images: the names of our images in it, by stage.
        values: of the chart, beside the images.

    Raises:
        CommandFailedError: helm refuses, for one where an evalrun is installed in this cluster already.
    """
    suffix = secrets.token_hex(3)
    here = Installed(cluster, f"evalrun-e2e-{suffix}", f"evalrun-e2e-runs-{suffix}", images)
    spaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": RESTRICTED}}
        for name in (here.system, here.runs)
    ]
    cluster.apply("default", *spaces)
    try:
        tags = {stage: {"tag": name.rpartition(":")[2]} for stage, name in images.items()}
        tags["generator"] = tags["aggregator"]
        policies = {"networkPolicy": {"apiServer": _api_servers(cluster)}}
        given = yaml.safe_dump({**policies, **values, "images": {"registry": REGISTRY, **tags}})
        cluster.helm("install", "evalrun", str(CHART), "--namespace", here.system, "--values", "-", given=given)
        try:
            cluster.apply(here.runs, *_brought())
            here.mount("files", PROBLEMS, RESULTS)
            here.wait_for_operator()
            yield here
        finally:
            cluster.kubectl("delete", "evalschedules,evalruns", "--namespace", here.runs, "--all", "--timeout=50s")
            cluster.helm("uninstall", "evalrun", "--namespace", here.system, "--wait")
            cluster.kubectl("delete", "crd", *CRDS, "--timeout=50s")
    finally:
        cluster.kubectl("delete", "namespace", here.system, here.runs, "--wait=false")  # the cluster goes on by itself


def _api_servers(cluster: Cluster) -> list[Object]:
    """Return the API server's addresses as peers: it may listen on a port that the chart does not open by itself."""
    slices = cluster.get("default", "endpointslices", "--selector", "kubernetes.io/service-name=kubernetes")["items"]
    addresses = [address for one in slices for endpoint in one["endpoints"] for address in endpoint["addresses"]]
    return [{"ipBlock": {"cidr": f"{address}/{128 if ':' in address else 32}"}} for address in addresses]


def _brought() -> list[Object]:
    """Return what the user has: two volumes, and the key of the server that answers."""
    claims = [
        {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
        for name in (PROBLEMS, RESULTS)
    ]  # fmt: skip
    key = {
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "answers"},
        "stringData": {"api-key": secrets.token_urlsafe(16)},
    }  # fmt: skip
    return [*claims, key]
