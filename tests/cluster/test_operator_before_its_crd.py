"""An operator on a cluster that lacks things: it waits for its CRD, does without KubeRay, keeps to its namespace."""

from pathlib import Path

import pytest
from builders.cluster.controlplane import ControlPlane, until
from builders.cluster.install import CRDS
from builders.operator.evalruns import evalrun_manifest
from builders.operator.running_operator import OperatorProcess, Run, make_namespace, operator_kubeconfig
from builders.ports import free_ports

CRD = Path(__file__).parents[2] / "k8s" / "crd.yaml"
GROUP = "/apis/evalrun.dev/v1alpha1"


@pytest.fixture
def bare(bare_control_plane: ControlPlane) -> ControlPlane:
    """An API server without our CRDs, which an earlier module may have made, and without any controller."""
    bare_control_plane.kubectl("delete", "crd", *CRDS, "--ignore-not-found", "--timeout=100s")
    until(lambda: bare_control_plane.request("GET", GROUP).status == 404, "our kinds to be served no more")
    return bare_control_plane


def test_operator_without_its_crd_waits_and_then_serves_only_its_namespace(bare: ControlPlane) -> None:
    kubeconfig = operator_kubeconfig(bare)
    make_namespace(bare, "ours")
    make_namespace(bare, "theirs")
    port, metrics_port = free_ports(2)
    operator = OperatorProcess(
        bare, kubeconfig, "127.0.0.1:1", bare.directory / "operator.log", metrics_port, port, flags=["--namespace=ours"]
    )
    try:
        operator.launch()
        until(lambda: "EvalRuns are not served" in operator.log.read_text(), "the operator to say what it lacks")
        bare.kubectl("apply", "--server-side", "-f", str(CRD))
        bare.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=100s")
        until(operator.is_live, "the operator's liveness", 120)
        manifest = evalrun_manifest(rollout=True)
        theirs, ours = (Run(bare, namespace, "run").create(manifest) for namespace in ("theirs", "ours"))
        ours.wait_for("Accepted")
        until(lambda: "KubeRay is not installed" in ours.conditions()["ClusterReady"]["message"], "what is missing")
        assert ours.names("statefulsets") == ["run-aggregator"]
        assert theirs.conditions() == {}
        assert theirs.names("statefulsets,configmaps") == []
    finally:
        operator.kill()
