"""A run to which everything happens at once that is not its own fault: refusals, strangers, upgrades, lost namespaces.

Its verdicts are those of the demo set when nobody disturbs it. One such run is always made; the others, each in a test
of its own, by `make test-e2e-faults`.
"""

import time
from pathlib import Path

import pytest
from builders.cluster.cluster import Object
from builders.cluster.faults import described, pods_of, quota, strange_config_map, strange_pod
from builders.cluster.install import Installed
from builders.cluster.runs import progress, small
from builders.cluster.tasks import DEMO, demo_verdicts
from builders.command_line import evalrun, verdicts

NO_BUDGETS = {"count/poddisruptionbudgets.policy": "0", "count/networkpolicies.networking.k8s.io": "0"}
RUN_IMAGES = ("aggregator", "judge", "sandbox", "generator")
SECONDS = 240


def nosuch(*images: str) -> Object:
    """Return values with a tag of those images that nothing has, and with other defaults for runs."""
    return {"images": {image: {"tag": "nosuch"} for image in images}, "runDefaults": {"sandboxSlots": 1}}


def begin(there: Installed, endpoint: Object, name: str, directory: Path) -> str:
    """Start a run of the demo set; wait until something of it is judged."""
    two_gateways = {"gateway": {"minReplicas": 2, "maxReplicas": 2}, "sandbox": {"maxReplicas": 1}}
    spec = small(judge=two_gateways, output={"retain": True})
    run = there.start(DEMO.manifest(name, "", endpoint, **spec), directory)
    next(judged for judged, _ in progress(there, run) if judged)
    return run


def is_over(there: Installed, run: str) -> bool:
    return "completionTime" in there.cluster.get(there.runs, "evalrun", run)["status"]


def judged_as_in_peace(there: Installed, run: str, directory: Path) -> None:
    """Wait for a run, and compare its verdicts with those of the demo set."""
    status = there.wait(run, SECONDS)["status"]
    assert status["phase"] == "Succeeded", status["conditions"]
    assert status["attempts"] == 1
    brought = evalrun("results", run, "--namespace", there.runs, "--output", directory / run)
    assert brought.returncode == 0, brought.stdout + brought.stderr
    assert {problem: verdict for (_, problem, _), verdict in verdicts(directory / run).items()} == demo_verdicts()


def test_run_amid_refusals_foreign_objects_and_an_upgrade_gets_the_expected_verdicts(
    install: Installed, slow: Object, tmp_path: Path
) -> None:
    with install.another_namespace("amid") as there:
        there.cluster.apply(there.runs, quota("none", **NO_BUDGETS), strange_config_map())
        run = begin(there, slow, "amid", tmp_path)
        there.cluster.apply(there.runs, strange_pod(there, run))
        before = pods_of(there, run)
        told = described(there, run)
        assert "exceeded quota: none" in told
        assert "The run goes on without it. Raise the ResourceQuota" in told
        with install.upgraded(nosuch(*RUN_IMAGES)):
            assert not is_over(there, run), "the run was over before the upgrade"
            assert pods_of(there, run) == before
        assert not is_over(there, run), "the run was over before the rollback"
        assert pods_of(there, run) == before
        judged_as_in_peace(there, run, tmp_path)
        assert there.cluster.get(there.runs, "pod", "stranger")["status"]["phase"] == "Failed"


@pytest.mark.usefixtures("all_faults")
def test_rollback_of_an_unpullable_operator_image_does_not_disturb_a_run(
    install: Installed, slow: Object, tmp_path: Path
) -> None:
    with install.another_namespace("bad-tag") as there:
        run = begin(there, slow, "bad-tag", tmp_path)
        before = pods_of(there, run)
        install.apply_values(nosuch("operator", *RUN_IMAGES))
        time.sleep(15)  # what is left of the old operator goes on; there is nothing to wait for
        install.roll_back()
        assert not is_over(there, run), "the run was over before the rollback"
        assert pods_of(there, run) == before
        judged_as_in_peace(there, run, tmp_path)


@pytest.mark.usefixtures("all_faults")
def test_a_lost_namespace_disturbs_no_run_of_another(install: Installed, slow: Object, tmp_path: Path) -> None:
    with install.another_namespace("stays") as there:
        lost = there.runs.replace("stays", "lost")
        space: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": lost}}
        install.cluster.apply("default", space)
        with install.upgraded({"operator": {"watchNamespaces": [install.runs, there.runs, lost]}}):
            run = begin(there, slow, "stays", tmp_path)
            install.cluster.kubectl("delete", "namespace", lost, "--timeout=50s")
            install.cluster.kubectl("rollout", "restart", "--namespace", install.system, "deployment/evalrun-operator")
            install.wait_for_operator()
            assert not is_over(there, run), "the run was over before the operator restarted"
            pods = install.cluster.kubectl(
                "logs", "--namespace", install.system, "--selector", "app.kubernetes.io/component=operator",
                "--tail=-1",
            )  # fmt: skip
            assert f"namespace {lost}: evalruns cannot be followed" in pods
            judged_as_in_peace(there, run, tmp_path)
