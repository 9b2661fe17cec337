"""KEDA beside the test control plane: its operator, and its metrics server behind the API server.

Each asks the other with a certificate of its own, so both get the same one, made here.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from builders.cluster.controlplane import ControlPlane, run_builder, running_process
from builders.cluster.metrics_apis import self_signed, serve_group, serving_flags
from builders.ports import free_ports

KEDA_PROGRAMS = ("keda-operator", "keda-adapter")
VARIABLES = ("env", "WATCH_NAMESPACE=", "POD_NAMESPACE=keda", "KEDA_CLUSTER_OBJECT_NAMESPACE=keda")
"""As its own manifests set them: all namespaces."""


def keda_crds() -> Path:
    """Return the directory of KEDA's CRDs, in its own source."""
    (source,) = run_builder("--source", "keda", wanted="KEDA's CRDs")
    return source / "config" / "crd" / "bases"


@contextmanager
def running_keda(plane: ControlPlane, binaries: Mapping[str, Path]) -> Iterator[None]:
    """Run KEDA; it is gone again afterwards, as its ScaledObjects are not.

    Args:
        plane: the API server, with `aggregation_flags` and `keda_crds` applied.
        binaries: `KEDA_PROGRAMS` and where they lie.
    """
    measures, health, metrics, adapter, adapter_metrics = free_ports(5)
    directory = plane.directory / "keda-adapter"
    if not directory.exists():
        directory.mkdir()
        self_signed(directory / "tls.key", directory / "tls.crt", "keda")
        shutil.copy(directory / "tls.crt", directory / "ca.crt")
    operator = [
        *VARIABLES, str(binaries["keda-operator"]), f"--kubeconfig={plane.kubeconfig}", f"--cert-dir={directory}",
        f"--metrics-service-bind-address=127.0.0.1:{measures}", f"--health-probe-bind-address=127.0.0.1:{health}",
        f"--metrics-bind-address=127.0.0.1:{metrics}",
    ]  # fmt: skip
    server = [
        *VARIABLES, str(binaries["keda-adapter"]), *serving_flags(plane, "keda-adapter", adapter),
        f"--kubeconfig={plane.kubeconfig}", f"--lister-kubeconfig={plane.kubeconfig}",
        f"--metrics-service-address=localhost:{measures}", f"--port={adapter_metrics}",
    ]  # fmt: skip
    with ExitStack() as stack:
        stack.enter_context(running_process("keda-operator", operator, plane.directory))
        stack.enter_context(running_process("keda-adapter", server, plane.directory))
        serve_group(plane, "external.metrics.k8s.io", "v1beta1", "keda-adapter", adapter)
        yield
