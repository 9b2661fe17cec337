"""A real Prometheus with the scrape job that we ship scrapes a real gateway and the operator.

Debian's Prometheus is built without discovery by Kubernetes' API, and pods do not run here. So the test hands over
what that would find (`discovered`: meta labels of the pods that the operator made), and one more rule says that a
gateway's address is that of one that runs on this machine. The rules that label the series are the shipped ones.
"""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import math
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from builders.aggregator.prometheus import (
    Prometheus,
    as_grafana_asks,
    needs_the_operator,
    running_prometheus,
    static_job,
)
from builders.cluster.controlplane import ControlPlane, until
from builders.operator.evalruns import evalrun_manifest
from builders.operator.evalschedules import evalschedule_manifest
from builders.operator.running_operator import (
    OperatorProcess,
    Run,
    ScriptedLedger,
    apply,
    make_namespace,
    operator_kubeconfig,
    remove_namespace,
    running_operator,
    serving_ledger,
)
from builders.operator.world import operator_settings
from builders.ports import free_ports
from generate_monitoring import DASHBOARDS
from monitoring.alerts import ALERTS

from evalrun_api.v1alpha1 import EvalRun
from evalrun_operator.lifecycle.situation import make_identity
from evalrun_operator.resources import RunPlan
from evalrun_operator.resources.autoscaling import load_query
from evalrun_proto.ledger.v1 import ledger_pb2
from evalrun_runtime.ready_line import parse_ready_line

SCRAPE_JOB = Path(__file__).parents[2] / "k8s" / "prometheus" / "scrape-evalrun.yaml"
NAMESPACE = "watched"


class GatedLedger(ScriptedLedger):
    """A ledger whose gate fails."""

    def GetStatus(  # noqa: N802 - the contract's name
        self, request: ledger_pb2.GetStatusRequest, context: grpc.ServicerContext
    ) -> ledger_pb2.GetStatusResponse:
        answer = super().GetStatus(request, context)
        if answer.state == ledger_pb2.RUN_STATE_SUCCEEDED:
            answer.gate = ledger_pb2.GATE_DECISION_FAILED
        return answer


@dataclass(frozen=True)
class Watched:
    """A run, what its ledger says, and the Prometheus that watches it."""

    run: Run
    ledger: GatedLedger
    prometheus: Prometheus
    operator: OperatorProcess

    def has_data(self, expression: str, what: str) -> list[dict[str, Any]]:
        """Wait for an expression's data, and give it."""
        found: list[dict[str, Any]] = []

        def asked() -> bool:
            found[:] = self.prometheus.query(as_grafana_asks(expression))
            return any(math.isfinite(float(series["value"][1])) for series in found)

        until(asked, f"data of {what}: {expression}")
        return found


@pytest.fixture(scope="module")
def watched(nodes: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    directory = tmp_path_factory.mktemp("monitoring")
    ledger = GatedLedger()
    ledger.generated = ledger.total
    make_namespace(nodes, NAMESPACE)
    remember_a_checkpoint(nodes)
    with serving_ledger(ledger) as address, running_operator(nodes, operator_kubeconfig(nodes), address) as operator:
        gate = {"baseline": "s3://bucket/before", "dataset": "humaneval"}
        manifest = evalrun_manifest({"spec.output": {"url": "s3://bucket/x"}, "spec.gates": [gate]})
        run = Run(nodes, NAMESPACE, "run").create(manifest)
        run.wait_for("Generated")
        with gateway() as port:
            until(lambda: bool(gateways(run)), "the gateways' pods")
            jobs = [scrape_job(run, port), static_job("operator", operator.metrics_port, namespace="evalrun-system")]
            with running_prometheus(directory, jobs) as prometheus:
                yield Watched(run, ledger, prometheus, operator)
    remove_namespace(nodes, NAMESPACE)


def remember_a_checkpoint(plane: ControlPlane) -> None:
    """Make a schedule that is due in years, with the status that a night has left."""
    manifest = evalschedule_manifest({"metadata.namespace": NAMESPACE, "spec.schedule": "0 3 29 2 *"})
    apply(plane, manifest)
    datasets = [{"name": "mbpp_reg", "total": 100, "acceptedAt1": "0.58"}]
    result = {"run": "nightly-0123456789", "step": 120, "gate": "False", "datasets": datasets}
    # A result that no evaluated checkpoint vouches for would be dropped.
    evaluated = {"digests": [{"digest": "0123456789".ljust(32, "0"), "step": 120}]}
    night = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    status = {"latestResult": result, "evaluated": evaluated, "lastScheduleTime": night}
    path = f"/apis/evalrun.dev/v1alpha1/namespaces/{NAMESPACE}/evalschedules/nightly/status"
    answer = plane.request("PATCH", path, {"status": status}, "application/merge-patch+json")
    assert answer.status == 200, answer.message


@contextmanager
def gateway() -> Iterator[int]:
    """Run a gateway without sandboxes; gives its metrics' port."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "evalrun_judge", "--sandbox=http://127.0.0.1:1", f"--metrics-port={port}"]
    process = subprocess.Popen([*command, "--allow-uncontained"], stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout is None or not any(parse_ready_line(line) for line in process.stdout):
            raise RuntimeError(f"the gateway ended with {process.wait()}")
        yield port
    finally:
        process.kill()
        process.communicate()


def gateways(run: Run) -> set[str]:
    return {pod["metadata"]["name"] for pod in run.objects("pods") if "-judge-" in pod["metadata"]["name"]}


def scrape_job(run: Run, gateway_port: int) -> dict[str, Any]:
    """Return the job that we ship, with the run's pods as its discovery, and the gateways' addresses as said above."""
    job: dict[str, Any] = yaml.safe_load(SCRAPE_JOB.read_text(encoding="utf-8"))
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    job["static_configs"] = [target for pod in run.objects("pods") for target in discovered(pod)]
    here = {"target_label": "__address__", "replacement": f"127.0.0.1:{gateway_port}"}
    job["relabel_configs"] += [{"source_labels": ["component"], "regex": "judge", "action": "keep"}, here]
    return job


def discovered(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return what Prometheus' discovery with `role: pod` makes of a pod: a target a port, with these meta labels.

    Source: Prometheus' documentation, configuration, kubernetes_sd_config.
    """
    metadata = pod["metadata"]
    labels = {
        "namespace": metadata["namespace"],
        "pod_name": metadata["name"],
        "pod_phase": pod["status"]["phase"],
        **{f"pod_label_{safe(name)}": value for name, value in metadata.get("labels", {}).items()},
        **{f"pod_annotation_{safe(name)}": value for name, value in metadata.get("annotations", {}).items()},
    }
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", [{}]):
            found = {**labels, "pod_container_name": container["name"], "pod_container_port_name": port.get("name", "")}
            address = f"{pod['status'].get('podIP', '192.0.2.1')}:{port.get('containerPort', 80)}"
            meta = {f"__meta_kubernetes_{name}": value for name, value in found.items()}
            yield {"targets": [address], "labels": meta}


def safe(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def test_the_autoscalers_query_finds_the_runs_gateways(watched: Watched) -> None:
    run = EvalRun.from_wire(watched.run.get())
    query = load_query(RunPlan(make_identity(run), run.spec, operator_settings(), "token"))
    (load,) = watched.has_data(query, "the judge's load")
    assert float(load["value"][1]) == 0
    found = watched.prometheus.query("evalrun_judge_queue_depth")
    assert {series["metric"]["pod"] for series in found} == gateways(watched.run)
    for series in found:
        assert (series["metric"]["run"], series["metric"]["namespace"]) == ("run", NAMESPACE)


def test_the_operators_panels_and_alerts_have_data(watched: Watched) -> None:
    watched.ledger.judged = watched.ledger.total
    watched.run.wait_for("Complete")
    panels = [
        (panel.title, query.expression)
        for dashboard in DASHBOARDS
        for panel in dashboard.panels
        for query in panel.queries
        if needs_the_operator(query.expression)
    ]
    assert len(panels) == 12
    for title, expression in panels:
        watched.has_data(expression, title)
    (gate,) = watched.has_data(dict(panels)["Gates passed"], "the gate")
    assert gate["metric"] == {"namespace": NAMESPACE, "run": "run"}  # not the operator's own namespace
    assert float(gate["value"][1]) == 0
    rules = [alert for alert in ALERTS if needs_the_operator(alert.expression)]
    names = [
        "EvalrunRunNotStarting", "EvalrunWritesRefused", "EvalrunOperatorDown", "EvalrunRunFailed", "EvalrunGateFailed",
    ]  # fmt: skip
    of_schedules = [alert for alert in rules if alert.name not in names]
    assert [alert.name for alert in rules if alert not in of_schedules] == names
    assert len(of_schedules) == 5
    for alert in of_schedules:
        if alert.name != "EvalrunReplicasNotReady":  # its metric is there while kept replicas are not ready
            watched.has_data(alert.expression, alert.name)
    fires = {alert.name for alert in of_schedules if watched.prometheus.query(str(alert.to_rule()["expr"]))}
    assert fires == {"EvalrunCheckpointGateFailed"}
    for alert in rules:
        if alert.name in {"EvalrunOperatorDown", "EvalrunRunFailed"}:
            watched.has_data(alert.expression, alert.name)
            assert not watched.prometheus.query(str(alert.to_rule()["expr"])), (
                alert.name
            )  # one works, the run ended well
    (gate_failed,) = (alert for alert in rules if alert.name == "EvalrunGateFailed")
    assert watched.prometheus.query(str(gate_failed.to_rule()["expr"]))  # it fires: the gate has failed
    assert watched.prometheus.value(f'evalrun_run_over{{namespace="{NAMESPACE}"}}') == 1
