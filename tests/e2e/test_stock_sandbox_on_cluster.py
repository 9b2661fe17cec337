"""Stock SandboxFusion in a run's pods, our slot proxy beside it. A double stands in for the published image."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.cluster.cluster import Cluster
from builders.cluster.images import find_images
from builders.cluster.install import Installed, load_images
from builders.cluster.runs import read_outcome, small
from builders.cluster.stock import stock_image
from builders.cluster.tasks import DEMO, demo_verdicts

BASELINE = {"pod-security.kubernetes.io/enforce": "baseline"}
"""The stock image knows no user but root, which `restricted` refuses."""


@pytest.fixture
def stock(cluster: Cluster, images: dict[str, str], tmp_path: Path) -> str:
    del images  # its layers are there then
    return load_images(cluster, {"stock": stock_image(find_images())}, tmp_path)["stock"]


@pytest.fixture
def baseline(install: Installed) -> Iterator[Installed]:
    """The same installation, with another namespace for runs."""
    with install.another_namespace("stock", BASELINE) as there:
        yield there


def test_a_stock_server_behind_our_sidecar_gives_the_same_verdicts(
    install: Installed, baseline: Installed, stock: str, tmp_path: Path
) -> None:
    install.serve_answers("demo-answers", DEMO)
    sandbox = {"backend": "SandboxFusion", "image": stock, "maxReplicas": 1, "slots": 2}
    judge = {"gateway": {"maxReplicas": 1}, "sandbox": sandbox}
    spec = small(judge=judge, output={"retain": True})
    name = baseline.start(DEMO.manifest("stock", "", install.endpoint("demo-answers"), **spec), tmp_path)
    status = baseline.wait(name)["status"]
    assert status["phase"] == "Succeeded", status["conditions"]
    claim, _, path = status["outputURL"].removeprefix("pvc://").partition("/")
    baseline.mount("reader", claim)
    run = read_outcome(baseline, name, status, f"/{claim}/{path}", "reader")
    assert {problem: verdict for (_, problem, _), verdict in run.verdicts.items()} == demo_verdicts()
    assert run.info["containment_levels"] == ["full"]
