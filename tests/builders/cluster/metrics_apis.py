"""What autoscalers ask, beside the test control plane: metrics-server and prometheus-adapter, behind the API server.

The path is Kubernetes' own, but for the pods: of kwok's, metrics-server measures what their annotations say.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from builders.cluster.controlplane import ROOT, ControlPlane, run_builder, running_process
from builders.ports import free_ports

METRICS_PROGRAMS = ("metrics-server",)
ADAPTER_PROGRAMS = ("prometheus-adapter",)
ADAPTER_RULES = ROOT / "k8s" / "prometheus" / "adapter-rules.yaml"
USAGE_ANNOTATION = "kwok.x-k8s.io/usage-cpu"
"""On a pod: the CPU that it is pretended to use, e.g. 800m; without it 1m."""
METRICS_PATH = "/metrics/nodes/{name}/metrics/resource"
"""Where kwok tells the usage of a node's pods."""


def aggregation_flags(directory: Path) -> list[str]:
    """Return the API server's flags with which servers behind it know who asks; makes the keys in `directory`."""
    directory.mkdir(parents=True)
    key, certificate = directory / "front-proxy.key", directory / "front-proxy.crt"
    self_signed(key, certificate, "front-proxy-client")
    return [
        f"--client-ca-file={certificate}",  # names nobody, but the servers behind wait until there is one
        f"--requestheader-client-ca-file={certificate}", "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-", f"--proxy-client-cert-file={certificate}",
        f"--proxy-client-key-file={key}",
    ]  # fmt: skip


def self_signed(key: Path, certificate: Path, name: str) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate,
         "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip


def usage_configs() -> list[Path]:
    """Return kwok's own configurations that tell the usage of its pods."""
    (source,) = run_builder("--source", "kwok", wanted="kwok's metrics")
    metrics = source / "kustomize" / "metrics"
    return [metrics / "resource" / "metrics-resource.yaml", metrics / "usage" / "usage-from-annotation.yaml"]


@contextmanager
def running_metrics_server(plane: ControlPlane, binaries: Mapping[str, Path]) -> Iterator[None]:
    """Run metrics-server behind the API server. It measures a pod from the second scrape on, 15 to 30 s later.

    Args:
        plane: the API server, with `aggregation_flags` and nodes that tell their pods' usage.
        binaries: `METRICS_PROGRAMS` and where they lie.
    """
    (port,) = free_ports(1)
    command = [
        str(binaries["metrics-server"]), *serving_flags(plane, "metrics-server", port), "--kubelet-insecure-tls",
        f"--kubeconfig={plane.kubeconfig}", "--kubelet-use-node-status-port", "--metric-resolution=15s",
        "--kubelet-preferred-address-types=InternalIP",
    ]  # fmt: skip
    with running_process("metrics-server", command, plane.directory):
        serve_group(plane, "metrics.k8s.io", "v1beta1", "metrics-server", port)
        yield


@contextmanager
def running_prometheus_adapter(
    plane: ControlPlane, binaries: Mapping[str, Path], prometheus: str, relist: str = "1m"
) -> Iterator[None]:
    """Run prometheus-adapter with the rules that we ship.

    Args:
        plane: the API server, with `aggregation_flags`.
        binaries: `ADAPTER_PROGRAMS` and where they lie.
        prometheus: URL of the Prometheus that it asks.
        relist: how often it asks for the names of the series; as installed a minute.
    """
    (port,) = free_ports(1)
    command = [
        str(binaries["prometheus-adapter"]), *serving_flags(plane, "prometheus-adapter", port),
        f"--lister-kubeconfig={plane.kubeconfig}", f"--prometheus-url={prometheus}", f"--config={ADAPTER_RULES}",
        f"--metrics-relist-interval={relist}",
    ]  # fmt: skip
    with running_process("prometheus-adapter", command, plane.directory):
        serve_group(plane, "external.metrics.k8s.io", "v1beta1", "prometheus-adapter", port)
        yield


def serving_flags(plane: ControlPlane, name: str, port: int) -> Sequence[str]:
    """Return the flags by which a server behind the API server listens, and asks it who may do what."""
    return (
        "--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={plane.directory / name}",
        f"--authentication-kubeconfig={plane.kubeconfig}", f"--authorization-kubeconfig={plane.kubeconfig}",
    )  # fmt: skip


def serve_group(plane: ControlPlane, group: str, version: str, name: str, port: int) -> None:
    """Register an API group that a process of this machine serves; wait until the API server reaches it."""
    service = {"name": name, "namespace": "kube-system", "port": port}
    objects = [
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": f"{version}.{group}"},
            "spec": {
                "group": group, "version": version, "service": service, "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100, "versionPriority": 100,
            },
        },
    ]  # fmt: skip
    file = plane.directory / f"{name}.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    plane.kubectl("apply", "--server-side", "-f", str(file))
    # Until then the API server answers 503 in plain text.
    plane.kubectl("wait", f"apiservice/{version}.{group}", "--for=condition=Available", "--timeout=25s")
