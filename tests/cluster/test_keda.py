"""KEDA's own operator follows the load of a run's judge from zero: it starts a sandbox when answers wait, and also when
its Prometheus is gone. The run says when KEDA itself is.

`make test-autoscaling` runs this, and the long form with real sandboxes.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from builders.aggregator.prometheus import running_prometheus, static_job
from builders.aggregator.waiting_answers import WaitingAnswers
from builders.cluster.controllers import NODE_PROGRAMS, apply_crds, running_nodes
from builders.cluster.controlplane import (
    ROOT,
    ControlPlane,
    MissingBinariesError,
    find_binaries,
    running_control_plane,
    until,
)
from builders.cluster.keda import KEDA_PROGRAMS, keda_crds, running_keda
from builders.cluster.metrics_apis import aggregation_flags
from builders.operator.evalruns import evalrun_manifest
from builders.operator.running_operator import (
    Run,
    ScriptedLedger,
    make_namespace,
    operator_kubeconfig,
    running_operator,
    serving_ledger,
)

PROGRAMS = ("etcd", "kube-apiserver", "kubectl", *NODE_PROGRAMS, *KEDA_PROGRAMS)
CHANGES = {
    "spec.output": {"url": "s3://bucket/x"},
    "spec.judge": {
        "gateway": {"minReplicas": 1, "maxReplicas": 1},
        "sandbox": {"minReplicas": 0, "maxReplicas": 4, "slots": 1},
    },
    "spec.placement": {"generator": {"nodeSelector": {"nowhere": "here"}}},  # the run stays at work
}
LIMIT = 250.0


@pytest.fixture(scope="module")
def binaries() -> dict[str, Path]:
    """The programs, where they are built."""
    try:
        return find_binaries(PROGRAMS, build=False)
    except MissingBinariesError as error:
        pytest.skip(f"a build of KEDA takes most of an hour, so no test starts one: {error}")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory, binaries: dict[str, Path]) -> Iterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("keda")
    with ExitStack() as stack:
        flags = aggregation_flags(directory / "aggregation")
        plane = stack.enter_context(running_control_plane(binaries, directory / "plane", flags))
        apply_crds(plane, ROOT / "k8s" / "crd.yaml", keda_crds())
        stack.enter_context(running_nodes(plane, binaries, count=1, gpus=0))
        yield plane


@pytest.mark.skipif(
    os.environ.get("EVALRUN_TEST_KEDA") != "required", reason="waits for minutes: make test-autoscaling"
)
@pytest.mark.timeout(900)
def test_judge_at_zero_replicas_starts_for_waiting_answers_and_stays_without_measurement(
    plane: ControlPlane, binaries: dict[str, Path]
) -> None:
    ledger, answers = ScriptedLedger(), WaitingAnswers()
    make_namespace(plane, "by-keda")
    with ExitStack() as stack:
        stack.enter_context(answers.serving())
        keda_held, prometheus_held = (stack.enter_context(ExitStack()) for _ in range(2))
        keda_held.enter_context(running_keda(plane, binaries))
        job = static_job("aggregator", answers.port, namespace="by-keda", run="run")
        prometheus = prometheus_held.enter_context(running_prometheus(plane.directory, [job]))
        address = stack.enter_context(serving_ledger(ledger))
        flags = ("--namespace=by-keda", "--autoscaling=keda", f"--keda-prometheus={prometheus.url}", "--poll-seconds=1")
        stack.enter_context(running_operator(plane, operator_kubeconfig(plane, "keda"), address, flags))
        run = Run(plane, "by-keda", "run").create(evalrun_manifest(CHANGES))
        run.wait_for("Generated", "False", "Generating")
        until(lambda: sandboxes(run) == 0, "KEDA to take the sandboxes away", LIMIT)

        ledger.generated = 5
        run.wait_for("Judged", "False", "WaitingForServices")
        assert "5 answers wait, and Deployment run-sandbox has 0 replicas." in run.conditions()["Judged"]["message"]
        answers.number = lambda: 5
        until(lambda: sandboxes(run) > 0, "the first sandbox", LIMIT)
        run.wait_for("Judged", "False", "Judging")
        run.wait_for("ScalingActive", "True", "Measured")

        ledger.judged, answers.number = 5, lambda: 0
        prometheus_held.close()
        run.wait_for("ScalingActive", "False", "NotMeasured", limit=LIMIT)
        assert "See to KEDA and its Prometheus" in run.conditions()["ScalingActive"]["message"]
        assert sandboxes(run) > 0  # nobody knows whether they are needed

        keda_held.close()  # its ScaledObjects stay as they were: the autoscaler that it made of one says it
        gone = "HorizontalPodAutoscaler keda-hpa-run-sandbox: FailedGetExternalMetric"
        until(lambda: gone in run.conditions()["ScalingActive"]["message"], "a word about KEDA", LIMIT)
        assert sandboxes(run) > 0


def sandboxes(run: Run) -> int:
    path = f"/apis/apps/v1/namespaces/{run.namespace}/deployments/run-sandbox"
    return int(run.plane.request("GET", path).body["spec"].get("replicas", 1))
