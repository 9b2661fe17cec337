"""Many runs at once on a real API server: the operator keeps three active at a time, fair between namespaces."""

from collections.abc import Iterator

import pytest
from builders.cluster.controlplane import ControlPlane, until
from builders.operator.evalruns import evalrun_manifest
from builders.operator.running_operator import (
    RUNS,
    OperatorProcess,
    apply,
    make_namespace,
    operator_kubeconfig,
    remove_namespace,
    running_operator,
    volume,
)
from builders.operator.simulated_aggregators import SIMULATED_OPERATOR

RUN_COUNT = 30
LIMIT = 3
NAMESPACE = "queue"
CROWD, OTHER = "crowd", "other"
CROWD_COUNT = 200
CHANGES: dict[str, object] = {"spec.output": {"url": "s3://bucket/x"}, "spec.judge.gateway.maxReplicas": 1}
FLAGS = (
    "--poll-seconds=0.2",
    "--backoff-seconds=0.1",
    f"--max-active-runs={LIMIT}",
)


@pytest.fixture
def operator(nodes: ControlPlane) -> Iterator[OperatorProcess]:
    make_namespace(nodes, NAMESPACE)
    apply(nodes, *(volume(f"{NAMESPACE}-ledger-{number}") for number in range(RUN_COUNT)))
    with running_operator(
        nodes, operator_kubeconfig(nodes), "unused", flags=FLAGS, program=(*SIMULATED_OPERATOR, "0.5")
    ) as process:
        yield process
    remove_namespace(nodes, NAMESPACE)


@pytest.fixture
def crowded(nodes: ControlPlane) -> Iterator[ControlPlane]:
    """Two tenants: hundreds of runs whose ledger fits no node, and room for the runs of another namespace."""
    for namespace in (CROWD, OTHER):
        make_namespace(nodes, namespace)
    apply(nodes, *(volume(f"{CROWD}-ledger-{number}") for number in range(2 * LIMIT)))
    program = (*SIMULATED_OPERATOR, "0.5")
    with running_operator(nodes, operator_kubeconfig(nodes), "unused", flags=FLAGS, program=program):
        yield nodes
    for namespace in (CROWD, OTHER):
        remove_namespace(nodes, namespace)


def condition(run: dict[str, object], kind: str) -> dict[str, str]:
    status = run.get("status")
    conditions = status.get("conditions", []) if isinstance(status, dict) else []
    return next((one for one in conditions if one["type"] == kind), {})


def test_thirty_runs_at_once_all_succeed_in_order_three_at_a_time(
    nodes: ControlPlane, operator: OperatorProcess
) -> None:
    names = [f"run-{number:02}" for number in range(RUN_COUNT)]
    runs = [evalrun_manifest({**CHANGES, "metadata": {"name": name, "namespace": NAMESPACE}}) for name in names]
    apply(nodes, *runs)
    most, numbers = 0, set()

    def all_complete() -> bool:
        nonlocal most
        found = nodes.request("GET", RUNS.format(namespace=NAMESPACE)).body["items"]
        started = [run for run in found if run.get("status", {}).get("startTime")]
        most = max(most, sum(condition(run, "Complete").get("status") == "False" for run in started))
        for run in found:
            admitted = condition(run, "Admitted")
            if admitted.get("status") == "False":
                numbers.add(int(admitted["message"].split()[1]))
                assert run["status"]["reason"] == "TooManyActiveRuns"
        return sum(condition(run, "Complete").get("status") == "True" for run in found) == RUN_COUNT

    try:
        until(all_complete, f"{RUN_COUNT} runs to end", 120)
    except TimeoutError as error:
        raise AssertionError(f"{error}: {nodes.kubectl('describe', 'er', '-n', NAMESPACE)[:6000]}") from error
    assert most <= LIMIT
    assert RUN_COUNT - LIMIT in numbers  # the last one was told its number
    ended = nodes.request("GET", RUNS.format(namespace=NAMESPACE)).body["items"]
    assert {run["status"]["phase"] for run in ended} == {"Succeeded"}
    started = sorted(ended, key=lambda run: str(run["status"]["startTime"]))
    places = {str(run["metadata"]["name"]): place for place, run in enumerate(started)}
    # Those that are admitted at the same time, when several have ended, start in any order.
    assert max(abs(places[name] - number) for number, name in enumerate(names)) < LIMIT


def start_beside(plane: ControlPlane, name: str) -> None:
    """Make a run, and wait until the operator has seen it: long before a run that fits no node gives its place up."""
    manifest = evalrun_manifest({**CHANGES, "metadata": {"name": name, "namespace": OTHER}})
    path = RUNS.format(namespace=OTHER)
    assert plane.request("POST", path, manifest).status == 201
    until(lambda: plane.request("GET", f"{path}/{name}").body.get("status", {}).get("conditions"), "a status", 30)


def test_queued_runs_of_one_namespace_that_fit_no_node_hold_up_no_other(crowded: ControlPlane) -> None:
    start_beside(crowded, "alone")
    large = {**CHANGES, "spec.aggregator.resources": {"requests": {"cpu": "100"}}}
    for number in range(CROWD_COUNT):
        manifest = evalrun_manifest({**large, "metadata": {"name": f"large-{number:03}", "namespace": CROWD}})
        assert crowded.request("POST", RUNS.format(namespace=CROWD), manifest).status == 201
    start_beside(crowded, "beside")

    def all_complete() -> bool:
        found = crowded.request("GET", RUNS.format(namespace=OTHER)).body["items"]
        return [condition(run, "Complete").get("status") for run in found] == ["True", "True"]

    until(all_complete, "the other namespace's runs to end", 120)

    def stalled_runs() -> list[dict[str, str]]:
        found = crowded.request("GET", RUNS.format(namespace=CROWD)).body["items"]
        return [condition(run, "Stalled") for run in found if condition(run, "Stalled").get("status") == "True"]

    until(lambda: bool(stalled_runs()), "a run of the crowd to stall")
    stalled = stalled_runs()
    assert len(stalled) <= LIMIT  # those beyond wait, or they would fill the cluster half-built
    assert "fits none of the nodes" in stalled[0]["message"]
    assert "The run fails at" in stalled[0]["message"]
