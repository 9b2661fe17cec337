"""Two operators, of which the one at work is killed again and again: no run is lost, and nothing is done twice.

`benchmarks/operator_scale.py --kill-every 30` does the same with 1,000 runs, and measures.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from builders.cluster.controlplane import ControlPlane, until
from builders.operator.evalruns import evalrun_manifest
from builders.operator.running_operator import (
    GROUPS,
    RUNS,
    apply,
    make_namespace,
    operator_kubeconfig,
    remove_namespace,
    volume,
)
from builders.operator.two_operators import Operators

from evalrun_operator.policies.leadership import LEASE_SECONDS

NAMESPACE = "killed"
RUN_COUNT = 20
KILLS = 2
LEDGER_SECONDS = LEASE_SECONDS + 8.0
"""Longer than no operator leads: a simulated ledger needs no generator, so that it would be complete before its run has
got a Job. With 6 s, a run's attempt had been counted, with its RayCluster, and its RayJob was never made.
"""
FLAGS = ("--poll-seconds=0.5", "--backoff-seconds=60")
"""kwok ends a Job's pods at once; before another attempt is due, the ledger is complete."""
MADE = ("statefulsets", "services", "configmaps", "persistentvolumeclaims")


@pytest.fixture
def operators(nodes: ControlPlane) -> Iterator[Operators]:
    make_namespace(nodes, NAMESPACE)
    apply(nodes, *(volume(f"{NAMESPACE}-ledger-{number}") for number in range(RUN_COUNT)))
    both = Operators(nodes, operator_kubeconfig(nodes), LEDGER_SECONDS, FLAGS)
    both.start()
    yield both
    both.kill()
    remove_namespace(nodes, NAMESPACE)


def test_objects_of_runs_survive_repeated_kills_of_the_leader(nodes: ControlPlane, operators: Operators) -> None:
    def uids(kinds: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for kind in kinds:
            path = f"/{GROUPS[kind]}/namespaces/{NAMESPACE}/{kind}"
            items = nodes.request("GET", path, labelSelector="evalrun.dev/run").body["items"]
            found |= {f"{kind}/{one['metadata']['name']}": one["metadata"]["uid"] for one in items}
        return found

    changes = {"spec.judgeRef": {"name": "shared"}, "spec.output": {"url": "s3://bucket/x"}}
    names = [f"run-{number:02}" for number in range(RUN_COUNT)]
    apply(nodes, *(evalrun_manifest({**changes, "metadata": {"name": x, "namespace": NAMESPACE}}) for x in names))
    made: dict[str, str] = {}

    def some_made_and_one_leads() -> bool:
        made.update(uids(MADE))
        enough = sum(what.startswith("statefulsets/") for what in made) > len(operators.kills) * RUN_COUNT // 2
        return enough and operators.leader() is not None

    for kill in range(KILLS):
        until(some_made_and_one_leads, f"runs to be begun, and an operator to lead, before kill {kill + 1}")
        operators.kill_leader()
    assert len(operators.kills) == KILLS
    found: list[dict[str, Any]] = []

    def all_over() -> bool:
        found[:] = nodes.request("GET", RUNS.format(namespace=NAMESPACE)).body["items"]
        return all("completionTime" in run.get("status", {}) for run in found)

    until(all_over, "every run to end", 120)
    assert len(found) == RUN_COUNT
    assert {run["status"]["phase"] for run in found} == {"Succeeded"}
    attempts = [run["status"]["attempts"] for run in found]
    assert max(attempts) <= 1  # 0 where the ledger was complete before anybody looked after the run
    now = uids([*MADE, "jobs"])
    assert {what: now[what] for what in made} == made
    assert sum(what.startswith("jobs/") for what in now) == sum(attempts)
