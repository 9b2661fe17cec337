"""Thirty runs at once on a node that holds three, and a run in a namespace that governs what its pods may be."""

import json
from pathlib import Path

import pytest
import yaml
from builders.cluster.cluster import RESTRICTED, CommandFailedError, Object
from builders.cluster.faults import described, quota
from builders.cluster.install import Installed
from builders.cluster.runs import small
from builders.cluster.tasks import DEMO, demo_verdicts
from builders.command_line import evalrun, verdicts

pytestmark = pytest.mark.usefixtures("all_faults")

RUN_COUNT = 30
LIMIT = 3
SECONDS = 1500
"""Half of it on two CPUs that others use too."""
SHORT_SECONDS = 240
GOVERNED = Path(__file__).parents[3] / "k8s" / "samples" / "governed.yaml"
LIMITED = {
    "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"},
    "spec": {"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]},
}  # fmt: skip
POLICY = "evalrun-e2e-team"
"""A policy that asks each pod of a namespace with the label `policy: team` for the label `team`."""


def team_policy() -> list[Object]:
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": POLICY}}
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    asks = {
        "expression": "has(object.metadata.labels) && 'team' in object.metadata.labels",
        "message": "every pod has the label team",
    }
    policy = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [pods]}, "validations": [asks]}
    chosen = {"namespaceSelector": {"matchLabels": {"policy": "team"}}}
    binding = {"policyName": POLICY, "validationActions": ["Deny"], "matchResources": chosen}
    return [
        {**kind, "kind": "ValidatingAdmissionPolicy", "spec": policy},
        {**kind, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
    ]


@pytest.mark.timeout(1800)
def test_thirty_runs_at_once_all_succeed_in_order_three_at_a_time(install: Installed, quick: Object) -> None:
    datasets = [{**DEMO.datasets[0], "maxProblems": 2}]
    names = [f"many-{number:02}" for number in range(RUN_COUNT)]
    spec = small(output={"retain": True}, datasets=datasets)
    spec["aggregator"]["keepSecondsAfterFinished"] = 1
    with install.another_namespace("many") as there, install.upgraded({"operator": {"maxActiveRuns": LIMIT}}):
        there.cluster.apply(there.runs, *(DEMO.manifest(name, "", quick, **spec) for name in names))
        told = ""
        while "Number " not in told:  # the operator has not looked at it yet
            told = described(there, names[-1])
        assert "(operator.maxActiveRuns). It starts when those before it have ended" in told
        there.cluster.kubectl(
            "wait", "--namespace", there.runs, "evalrun", "--all", "--for=condition=Complete",
            f"--timeout={SECONDS}s", seconds=SECONDS + 10,
        )  # fmt: skip
        found = sorted(there.cluster.get(there.runs, "evalruns")["items"], key=lambda run: str(run["metadata"]["name"]))
    ended = [run["status"] for run in found]
    assert {status["phase"] for status in ended} == {"Succeeded"}
    assert {status["progress"] for status in ended} == {"2/2"}
    assert len({json.dumps(status["datasets"]) for status in ended}) == 1
    started = sorted(range(RUN_COUNT), key=lambda number: ended[number]["startTime"])
    print(f"in the order of their starts: {started}")
    # Those that are admitted at the same time write so in any order.
    assert max(abs(place - number) for place, number in enumerate(started)) < LIMIT
    for status in ended:
        began = status["startTime"]
        active = [one for one in ended if one["startTime"] <= began < one["completionTime"]]
        assert len(active) <= LIMIT


def test_run_in_a_governed_namespace_succeeds_with_the_documented_settings(
    install: Installed, quick: Object, tmp_path: Path
) -> None:
    manifest = yaml.safe_load(GOVERNED.read_text())
    manifest["spec"] |= {"endpoints": [quick], "model": DEMO.manifest("x", "", quick)["spec"]["model"]}
    manifest["spec"]["judge"]["sandbox"]["resources"]["requests"]["cpu"] = "100m"  # the node has two CPUs for all
    install.cluster.apply("default", *team_policy())
    try:
        with install.another_namespace("governed", {**RESTRICTED, "policy": "team"}) as there:
            there.cluster.apply(there.runs, quota("limits", **{"limits.cpu": "8", "limits.memory": "8Gi"}), LIMITED)
            with pytest.raises(CommandFailedError, match="every pod has the label team"):
                there.mount("nobodys")
            name = there.start(manifest, tmp_path)
            status = there.wait(name, SHORT_SECONDS)["status"]
            assert status["phase"] == "Succeeded", described(there, name)
            brought = evalrun("results", name, "--namespace", there.runs, "--output", tmp_path / "out")
            assert brought.returncode == 0, brought.stdout + brought.stderr
            found = {problem: verdict for (_, problem, _), verdict in verdicts(tmp_path / "out").items()}
            assert found == demo_verdicts()
    finally:
        install.cluster.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", POLICY)
