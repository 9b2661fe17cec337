"""Kubernetes' own HPA controller follows the load of runs' judges: by CPU through metrics-server, and by our own series
through prometheus-adapter with the rules that we ship. Up only: down comes after five quiet minutes.

The long form, both ways and with figures, is `make test-autoscaling`.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from builders.aggregator.prometheus import running_prometheus, static_job
from builders.cluster.controllers import NODE_PROGRAMS, apply_crds, running_nodes
from builders.cluster.controlplane import (
    ROOT,
    ControlPlane,
    MissingBinariesError,
    find_binaries,
    running_control_plane,
    until,
)
from builders.cluster.metrics_apis import (
    ADAPTER_PROGRAMS,
    METRICS_PROGRAMS,
    USAGE_ANNOTATION,
    aggregation_flags,
    running_metrics_server,
    running_prometheus_adapter,
    usage_configs,
)
from builders.judge.held_load import HeldLoad
from builders.operator.evalruns import evalrun_manifest
from builders.operator.running_operator import (
    MERGE,
    Run,
    ScriptedLedger,
    make_namespace,
    operator_kubeconfig,
    running_operator,
    serving_ledger,
)

PROGRAMS = ("etcd", "kube-apiserver", "kubectl", *NODE_PROGRAMS, *METRICS_PROGRAMS, *ADAPTER_PROGRAMS)
MODES = ("cpu", "custom")
IN_FLIGHT = 6
CHANGES = {
    "spec.output": {"url": "s3://bucket/x"},
    "spec.judge": {
        "gateway": {"minReplicas": 1, "maxReplicas": 1},
        "sandbox": {"minReplicas": 1, "maxReplicas": 4, "slots": 1},
    },
    "spec.placement": {"generator": {"nodeSelector": {"nowhere": "here"}}},  # the run stays at work
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane whose HPA controller looks every 2 s, and whose nodes tell their pods' usage."""
    try:
        binaries = find_binaries(PROGRAMS, build=False)
    except MissingBinariesError as error:
        pytest.skip(f"a build of these takes many minutes, so no test starts one: {error}")
    directory = tmp_path_factory.mktemp("autoscalers")
    often = ("--horizontal-pod-autoscaler-sync-period=2s",)
    with ExitStack() as stack:
        flags = aggregation_flags(directory / "aggregation")
        plane = stack.enter_context(running_control_plane(binaries, directory / "plane", flags))
        apply_crds(plane, ROOT / "k8s" / "crd.yaml")
        usage = usage_configs()
        stack.enter_context(running_nodes(plane, binaries, count=1, gpus=0, usage=usage, controller_flags=often))
        stack.enter_context(running_metrics_server(plane, binaries))
        load = stack.enter_context(HeldLoad(directory, sandboxes=1, slots=1))
        job = static_job("gateway", load.metrics_port, namespace="by-custom", run="run")
        prometheus = stack.enter_context(running_prometheus(directory, [job]))
        stack.enter_context(running_prometheus_adapter(plane, binaries, prometheus.url, relist="2s"))
        load.in_flight = IN_FLIGHT
        yield plane


@pytest.fixture(scope="module")
def runs(plane: ControlPlane) -> Iterator[dict[str, Run]]:
    """A run for each mode, whose first sandbox has used a whole CPU since its start; they scale side by side."""
    with ExitStack() as stack:
        found = {mode: stack.enter_context(started(plane, mode)) for mode in MODES}
        for run in found.values():
            pod, *_ = first_sandbox(run)
            busy = {"metadata": {"annotations": {USAGE_ANNOTATION: "1"}}}
            path = f"/api/v1/namespaces/{run.namespace}/pods/{pod['metadata']['name']}"
            assert plane.request("PATCH", path, busy, MERGE).status == 200  # its one slot's CPU; its target is 500m
        yield found


@contextmanager
def started(plane: ControlPlane, mode: str) -> Iterator[Run]:
    """Start an operator with a mode, in a namespace of its own, and a run."""
    namespace = f"by-{mode}"
    make_namespace(plane, namespace)
    flags = (f"--namespace={namespace}", f"--autoscaling={mode}", "--poll-seconds=0.3")
    with (
        serving_ledger(ScriptedLedger()) as address,
        running_operator(plane, operator_kubeconfig(plane), address, flags),
    ):
        run = Run(plane, namespace, "run").create(evalrun_manifest(CHANGES))
        run.wait_for("Generated", "False", "Generating")
        yield run


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", MODES)
def test_a_judge_under_load_gets_a_second_sandbox(runs: dict[str, Run], mode: str) -> None:
    run = runs[mode]
    until(lambda: len(sandboxes(run)) > 1, "a second sandbox", limit=150)
    (metric,) = scaler(run)["status"]["currentMetrics"]
    measured = metric["resource" if mode == "cpu" else "external"]["current"]
    assert measured["averageValue"] != "0"
    run.wait_for("ScalingActive", reason="Measured")


def first_sandbox(run: Run) -> list[dict[str, Any]]:
    until(lambda: bool(sandboxes(run)), "the first sandbox")
    return sandboxes(run)


def sandboxes(run: Run) -> list[dict[str, Any]]:
    return [pod for pod in run.objects("pods") if "-sandbox-" in pod["metadata"]["name"]]


def scaler(run: Run) -> dict[str, Any]:
    (found,) = [one for one in run.objects("horizontalpodautoscalers") if one["metadata"]["name"].endswith("-sandbox")]
    return found
