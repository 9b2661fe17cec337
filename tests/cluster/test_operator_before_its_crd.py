"""An operator on a cluster that lacks things: it waits for its CRD, does without KubeRay, keeps to its namespace."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.cluster.controlplane import ControlPlane, find_binaries, running_control_plane, until
from builders.operator.evalruns import evalrun_manifest
from builders.operator.running_operator import OperatorProcess, Run, make_namespace, operator_kubeconfig
from builders.ports import free_ports

CRD = Path(__file__).parents[2] / "k8s" / "crd.yaml"


@pytest.fixture
def bare(control_plane: ControlPlane, tmp_path: Path) -> Iterator[ControlPlane]:
    """Another API server, without any CRD or controller."""
    del control_plane  # asked for so that its binaries are there, or the test is skipped with the reason
    with running_control_plane(find_binaries(), tmp_path) as plane:
        yield plane


def test_it_waits_for_its_crd_and_serves_its_namespace_alone(bare: ControlPlane) -> None:
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
