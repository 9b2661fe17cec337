"""What makes a control plane live: Kubernetes' own controllers, nodes that kwok pretends, and KubeRay's operator."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from builders.controlplane import ControlPlane, free_ports, run_builder, running_process

NODE_PROGRAMS = ("kube-controller-manager", "kube-scheduler", "kwok")
KUBERAY_PROGRAMS = ("ray-operator",)


@contextmanager
def running_nodes(plane: ControlPlane, binaries: Mapping[str, Path], *, count: int, gpus: int) -> Iterator[None]:
    """Run the controller manager, the scheduler and kwok, and make nodes.

    Args:
        plane: the API server.
        binaries: `NODE_PROGRAMS` and where they lie.
        count: nodes, named node-0, node-1, ...
        gpus: `nvidia.com/gpu` of each.
    """
    controller_port, scheduler_port, kwok_port = free_ports(3)
    keys = plane.folder / "keys"
    common = [f"--kubeconfig={plane.kubeconfig}"]
    manager = [
        *common, f"--service-account-private-key-file={keys / 'sa.key'}", "--use-service-account-credentials",
        "--leader-elect=false", f"--root-ca-file={plane.ca_file}", "--bind-address=127.0.0.1",
        f"--secure-port={controller_port}",
    ]  # fmt: skip
    scheduler = [*common, "--leader-elect=false", "--bind-address=127.0.0.1", f"--secure-port={scheduler_port}"]
    kwok = [
        *common, "--manage-all-nodes", "--node-lease-duration-seconds=40", f"--server-address=127.0.0.1:{kwok_port}",
        *(f"--config={stage}" for stage in _kwok_stages()),
    ]  # fmt: skip
    with ExitStack() as stack:
        for name, flags in (("kube-controller-manager", manager), ("kube-scheduler", scheduler), ("kwok", kwok)):
            command = [str(binaries[name]), *flags]
            stack.enter_context(running_process(name, command, plane.folder))
        _apply(plane, [_fake_node(f"node-{index}", gpus) for index in range(count)])
        plane.kubectl("wait", "node", "--all", "--for=condition=Ready", "--timeout=25s")
        yield


@contextmanager
def running_kuberay(plane: ControlPlane, binaries: Mapping[str, Path]) -> Iterator[None]:
    """Apply KubeRay's CRDs, from its own source, and run its operator.

    Args:
        plane: the API server.
        binaries: `KUBERAY_PROGRAMS` and where they lie.
    """
    (source,) = run_builder("--source", "kuberay", wanted="KubeRay's CRDs")
    plane.kubectl("apply", "--server-side", "-f", str(source / "config" / "crd" / "bases"))
    plane.kubectl(
        "wait", "crd/rayclusters.ray.io", "crd/rayjobs.ray.io", "--for=condition=Established", "--timeout=25s"
    )
    metrics, health = free_ports(2)
    command = [
        str(binaries["ray-operator"]), f"--kubeconfig={plane.kubeconfig}", "--enable-leader-election=false",
        f"--metrics-addr=127.0.0.1:{metrics}", f"--health-probe-bind-address=127.0.0.1:{health}",
    ]  # fmt: skip
    with running_process("ray-operator", command, plane.folder):
        yield


def _kwok_stages() -> list[Path]:
    """Give kwok's stages, from its own source: `pod/general` would leave KubeRay's workers in their init container."""
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
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
        },
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def _apply(plane: ControlPlane, objects: list[dict[str, object]]) -> None:
    file = plane.folder / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    plane.kubectl("apply", "--server-side", "-f", str(file))
