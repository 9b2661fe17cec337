"""What makes a control plane live: Kubernetes' own controllers, nodes that kwok pretends, and KubeRay's operator."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from builders.cluster.controlplane import ControlPlane, run_builder, running_process, until
from builders.cluster.metrics_apis import METRICS_PATH, self_signed
from builders.ports import free_ports

NODE_PROGRAMS = ("kube-controller-manager", "kube-scheduler", "kwok")
KUBERAY_PROGRAMS = ("ray-operator",)
RAY_KINDS = ("RayCluster", "RayJob", "RayService")
"""What KubeRay's operator watches: where one is not served yet when it starts, it looks again only 10 s later."""


def kuberay_crds() -> list[Path]:
    """Return the files of KubeRay's CRDs that its operator cannot do without, in its own source."""
    (source,) = run_builder("--source", "kuberay", wanted="KubeRay's CRDs")
    return [source / "config" / "crd" / "bases" / f"ray.io_{kind.lower()}s.yaml" for kind in RAY_KINDS]


def apply_crds(plane: ControlPlane, *places: Path) -> None:
    """Apply CRDs, before `running_nodes`.

    A garbage collector that is running already learns new kinds only every 30 s, and lets their children live so long.
    """
    # An earlier test of the session may have installed the CRD by Helm, whose fields these then are.
    flags = ("--server-side", "--force-conflicts", "--validate=false")
    plane.kubectl("apply", *flags, *(f"--filename={place}" for place in places))
    plane.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=100s")


@contextmanager
def running_nodes(
    plane: ControlPlane,
    binaries: Mapping[str, Path],
    *,
    count: int,
    gpus: int,
    requests_per_second: int | None = None,
    usage: Sequence[Path] = (),
    controller_flags: Sequence[str] = (),
) -> Iterator[None]:
    """Run the controller manager, the scheduler and kwok, and make nodes.

    Args:
        plane: the API server.
        binaries: `NODE_PROGRAMS` and where they lie.
        count: nodes, named node-0, node-1, ...
        gpus: `nvidia.com/gpu` of each.
        requests_per_second: that controllers and scheduler may send; None: their default, 20 and 50.
        usage: kwok's configurations of the usage that it tells of pods, over TLS as a kubelet; none: it tells nothing.
        controller_flags: further flags of the controller manager.
    """
    scheduler_port, kwok_port = free_ports(2)
    common = [f"--kubeconfig={plane.kubeconfig}"]
    rates = []
    if requests_per_second is not None:
        rates = [f"--kube-api-qps={requests_per_second}", f"--kube-api-burst={2 * requests_per_second}"]
    scheduler = [*common, "--leader-elect=false", "--bind-address=127.0.0.1", f"--secure-port={scheduler_port}", *rates]
    kwok = [
        *common, "--manage-all-nodes", "--node-lease-duration-seconds=40", f"--server-address=127.0.0.1:{kwok_port}",
        *(f"--config={stage}" for stage in _kwok_stages()),
    ]  # fmt: skip
    if usage:
        key, certificate = plane.directory / "kwok.key", plane.directory / "kwok.crt"
        self_signed(key, certificate, "kwok")
        kwok += [f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}", "--node-ip=127.0.0.1",
                 f"--node-port={kwok_port}", *(f"--config={file}" for file in usage)]  # fmt: skip
    with ExitStack() as stack:
        stack.enter_context(running_controllers(plane, binaries, *rates, *controller_flags))
        for name, flags in (("kube-scheduler", scheduler), ("kwok", kwok)):
            command = [str(binaries[name]), *flags]
            stack.enter_context(running_process(name, command, plane.directory))
        _apply(plane, [_fake_node(f"node-{index}", gpus) for index in range(count)])
        plane.kubectl("wait", "node", "--all", "--for=condition=Ready", "--timeout=100s")
        yield


@contextmanager
def running_controllers(plane: ControlPlane, binaries: Mapping[str, Path], *flags: str) -> Iterator[None]:
    """Run the controller manager, with further flags."""
    (port,) = free_ports(1)
    keys = plane.directory / "keys"
    command = [
        str(binaries["kube-controller-manager"]), f"--kubeconfig={plane.kubeconfig}",
        f"--service-account-private-key-file={keys / 'sa.key'}", "--use-service-account-credentials",
        "--leader-elect=false", f"--root-ca-file={plane.ca_file}", "--bind-address=127.0.0.1",
        f"--secure-port={port}", *flags,
    ]  # fmt: skip
    with running_process("kube-controller-manager", command, plane.directory):
        yield


@contextmanager
def running_kuberay(plane: ControlPlane, binaries: Mapping[str, Path]) -> Iterator[None]:
    """Run KubeRay's operator.

    Args:
        plane: the API server, with `kuberay_crds` applied.
        binaries: `KUBERAY_PROGRAMS` and where they lie.
    """
    metrics, health = free_ports(2)
    command = [
        str(binaries["ray-operator"]), f"--kubeconfig={plane.kubeconfig}", "--enable-leader-election=false",
        f"--metrics-addr=127.0.0.1:{metrics}", f"--health-probe-bind-address=127.0.0.1:{health}",
    ]  # fmt: skip
    until(lambda: set(RAY_KINDS) <= _served_kinds(plane, "/apis/ray.io/v1"), "KubeRay's kinds in discovery")
    with running_process("ray-operator", command, plane.directory):
        yield


def _served_kinds(plane: ControlPlane, path: str) -> set[str]:
    return {resource["kind"] for resource in plane.request("GET", path).body.get("resources", ())}


def _kwok_stages() -> list[Path]:
    """Return kwok's stages, from its own source: `pod/general` would leave KubeRay's workers in
    their init container."""
    (source,) = run_builder("--source", "kwok", wanted="kwok's stages")
    stages = source / "kustomize" / "stage"
    files = [file for kind in ("node", "pod") for file in sorted((stages / kind / "fast").glob("*.yaml"))]
    return [file for file in files if file.name != "kustomization.yaml"]


def _fake_node(name: str, gpus: int) -> dict[str, object]:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "250", "ephemeral-storage": "1Ti", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {
                "kwok.x-k8s.io/node": "fake",
                "metrics.k8s.io/resource-metrics-path": METRICS_PATH.format(name=name),
            },
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
        },
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def _apply(plane: ControlPlane, objects: list[dict[str, object]]) -> None:
    file = plane.directory / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    # The server checks them anyway. kubectl would ask for its whole schema before, which took a busy one 32 s.
    plane.kubectl("apply", "--server-side", "--validate=false", "-f", str(file))
