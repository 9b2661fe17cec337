"""A real control plane for the tests of this directory, each part started once a session, when a test first asks for
it.

The binaries are found, or built, after collection and outside every test's time limit: a first build takes minutes.
Without them the tests are skipped with the reason; with CI=true they fail.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.cluster.controllers import (
    KUBERAY_PROGRAMS,
    NODE_PROGRAMS,
    apply_crds,
    kuberay_crds,
    running_kuberay,
    running_nodes,
)
from builders.cluster.controlplane import ControlPlane, MissingBinariesError, find_binaries, running_control_plane
from builders.cluster.kueue import KUEUE_PROGRAMS, running_kueue
from builders.tools import missing

HERE = Path(__file__).parent
CRD = HERE.parents[1] / "k8s" / "crd.yaml"
NEEDS = {
    "control_plane": ("etcd", "kube-apiserver", "kubectl"),
    "bare_control_plane": ("etcd", "kube-apiserver", "kubectl"),
    "nodes": NODE_PROGRAMS,
    "kuberay": KUBERAY_PROGRAMS,
    "kueue": KUEUE_PROGRAMS,
}
"""The programs that a fixture needs."""
BINARIES = pytest.StashKey[dict[str, dict[str, Path] | str]]()
"""Of each fixture its programs, or why there are none."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow the tests of this directory more time: the first ones wait for the whole control plane to start."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(600))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find or build the programs that the tests of this directory ask for."""
    if session.config.option.collectonly:
        return
    asked_for = {
        name
        for item in session.items
        if HERE in item.path.parents and isinstance(item, pytest.Function)
        for name in item.fixturenames
    }
    binaries: dict[str, dict[str, Path] | str] = {}
    for fixture, programs in NEEDS.items():
        if fixture in asked_for:
            try:
                binaries[fixture] = find_binaries(programs)
            except MissingBinariesError as error:
                binaries[fixture] = str(error)
    session.config.stash[BINARIES] = binaries


def binaries_of(config: pytest.Config, fixture: str) -> dict[str, Path]:
    """Return the programs of a fixture; skip the test if there are none, or fail it in CI."""
    binaries = config.stash[BINARIES][fixture]
    if isinstance(binaries, str):
        missing(binaries)
    return binaries


@pytest.fixture(scope="session")
def control_plane(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A running API server, empty but for what Kubernetes itself makes."""
    binaries = binaries_of(pytestconfig, "control_plane")
    with running_control_plane(binaries, tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane


@pytest.fixture(scope="session")
def bare_control_plane(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A second API server, on which no controller ever runs, for modules that change what the whole cluster shares.

    Each such module makes or removes the CRDs that it needs first, and removes its admission policies afterwards. To
    start an API server for every module would cost each of them many seconds of CPU.
    """
    binaries = binaries_of(pytestconfig, "bare_control_plane")
    with running_control_plane(binaries, tmp_path_factory.mktemp("bare-control-plane")) as plane:
        yield plane


@pytest.fixture(scope="session")
def nodes(pytestconfig: pytest.Config, control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with controllers, scheduler and two nodes of 8 GPUs; kwok pretends that their pods run."""
    with_ray = not isinstance(pytestconfig.stash[BINARIES].get("kuberay", ""), str)
    apply_crds(control_plane, CRD, *(kuberay_crds() if with_ray else []))
    with running_nodes(control_plane, binaries_of(pytestconfig, "nodes"), count=2, gpus=8):
        yield control_plane


@pytest.fixture(scope="session")
def kuberay(pytestconfig: pytest.Config, nodes: ControlPlane) -> Iterator[ControlPlane]:
    with running_kuberay(nodes, binaries_of(pytestconfig, "kuberay")):
        yield nodes


@pytest.fixture(scope="module")
def kueue(pytestconfig: pytest.Config, kuberay: ControlPlane) -> Iterator[ControlPlane]:
    """All of that with Kueue, for one module: without it, its webhooks would hold up every Job."""
    with running_kueue(kuberay, binaries_of(pytestconfig, "kueue")):
        yield kuberay
