"""Stock SandboxFusion in a run's pods, our slot proxy beside it. A double stands in for the published image."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from builders.cluster import Cluster
from builders.cluster_install import Installed, load_images
from builders.cluster_runs import read_outcome, small
from builders.cluster_stock import stock_image
from builders.cluster_tasks import Tasks
from builders.images import find_images

FILED = json.loads((Path(__file__).parents[1] / "unit" / "data" / "demo_expected.json").read_text())
EXPECTED = {key.removesuffix("/0"): entry["final_status"] for key, entry in FILED.items() if key.endswith("/0")}
DEMO = Tasks([{"name": "demo", "source": "builtin:demo"}], {}, ["builtin:demo"], ["builtin:demo"], len(EXPECTED))
BASELINE = {"pod-security.kubernetes.io/enforce": "baseline"}
"""The stock image knows no user but root, which `restricted` refuses."""
SECONDS = 120


@pytest.fixture
def stock(cluster: Cluster, images: dict[str, str], tmp_path: Path) -> str:
    """The name of the double's image in the cluster's nodes."""
    del images  # its layers are there then
    return load_images(cluster, {"stock": stock_image(find_images())}, tmp_path)["stock"]


@pytest.fixture
def baseline(install: Installed) -> Iterator[Installed]:
    """The same installation, with another namespace for runs."""
    name = f"evalrun-e2e-stock-{secrets.token_hex(3)}"
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": BASELINE}}
    key = install.cluster.get(install.runs, "secret", "answers")
    install.cluster.apply("default", space)
    try:
        copied = {"metadata": {"name": "answers"}, "data": key["data"]}
        install.cluster.apply(name, {"apiVersion": "v1", "kind": "Secret", **copied})
        yield replace(install, runs=name)
    finally:
        install.cluster.kubectl("delete", "evalruns", "--namespace", name, "--all", "--timeout=50s")
        install.cluster.kubectl("delete", "namespace", name, "--wait=false")


def test_a_stock_server_behind_our_sidecar_gives_the_same_verdicts(
    install: Installed, baseline: Installed, stock: str, tmp_path: Path
) -> None:
    install.serve_answers("demo-answers", DEMO)
    sandbox = {"backend": "SandboxFusion", "image": stock, "maxReplicas": 1, "slots": 2}
    judge = {"gateway": {"maxReplicas": 1}, "sandbox": sandbox}
    spec = small(judge=judge, output={"retain": True})
    name = baseline.start(DEMO.manifest("stock", "", install.endpoint("demo-answers"), **spec), tmp_path)
    status = baseline.wait(name, SECONDS)["status"]
    assert status["phase"] == "Succeeded", status["conditions"]
    claim, _, path = status["outputURL"].removeprefix("pvc://").partition("/")
    baseline.mount("reader", claim)
    run = read_outcome(baseline, name, status, f"/{claim}/{path}", "reader")
    assert {problem: verdict for (_, problem, _), verdict in run.verdicts.items()} == EXPECTED
    assert run.info["containment_levels"] == ["full"]
