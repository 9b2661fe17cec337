"""A NetworkPolicy that keeps gateways from DNS: the run says so soon, and goes on once the chart names DNS."""

import os
from collections import Counter
from pathlib import Path

import pytest
from builders.cluster.controlplane import until
from builders.cluster.install import Installed
from builders.cluster.runs import small
from builders.cluster.tasks import DEMO

TOLD_SECONDS = 90.0
"""A gateway waits 10 s for DNS. Before that, the pods start and the first answer is drawn."""


@pytest.mark.skipif(not os.environ.get("EVALRUN_POLICY_DROPS"), reason="policies may not be enforced")
@pytest.mark.usefixtures("all_faults")
def test_run_without_dns_names_the_cause_and_continues_once_dns_is_allowed(
    install: Installed, quick: dict[str, object], tmp_path: Path, provoked_drops: Counter[str]
) -> None:
    nowhere = [{"podSelector": {"matchLabels": {"k8s-app": "no-dns"}}}]
    operator = {"podSelector": {"matchLabels": {"app.kubernetes.io/component": "operator"}}}
    # The operator needs DNS to hear of it. A chart to which no API server was named leaves it open.
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "operator-dns"}}
    install.cluster.apply(install.system, {**policy, "spec": {**operator, "policyTypes": ["Egress"], "egress": [{}]}})
    with install.upgraded({"networkPolicy": {"dns": nowhere}}):
        spec = small(output={"retain": True})
        run = install.start(DEMO.manifest("no-dns", "", quick, **spec), tmp_path)

        def told() -> str:
            found = install.cluster.get(install.runs, "evalrun", run).get("status", {}).get("conditions", [])
            return " ".join(one["message"] for one in found if one["type"] == "Judged")

        until(lambda: "DNS does not answer the gateway" in told(), "the run to say what it lacks", TOLD_SECONDS)
        assert "networkPolicy.dns" in told()
        for pod in install.cluster.pods(install.runs, run, "judge"):
            provoked_drops[f"egress {install.runs}/{pod}"] += 1000
    install.cluster.kubectl("delete", "networkpolicy", "operator-dns", "--namespace", install.system)
    status = install.wait(run)["status"]
    assert (status["phase"], status["notJudged"], status["attempts"]) == ("Succeeded", "0", 1), status["conditions"]
