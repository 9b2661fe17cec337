"""The edges: what is understood of errors and answers, what may be done, what is shown."""

import os
import time
from pathlib import Path
from typing import Any

import httpx2
import kopf
import pytest
from builders.operator.simulated_aggregators import SimulatedAggregators, simulated_status
from builders.operator.world import evalrun, generating, operator_settings
from prometheus_client import CollectorRegistry, generate_latest
from pydantic import ValidationError

from evalrun_api.v1alpha1 import EvalRunStatus
from evalrun_cluster.client import translate_error
from evalrun_cluster.errors import ClusterError, ConflictError, RefusedError, UnreachableError
from evalrun_cluster.kinds import EVAL_RUN, KINDS
from evalrun_operator.aggregator_client import from_wire
from evalrun_operator.handlers import configure
from evalrun_operator.ledger_status import GateState, RunState
from evalrun_operator.metrics import OperatorMetrics, make_subject
from evalrun_operator.observation.children import Children
from evalrun_operator.rbac import role_rules
from evalrun_operator.resources.run_tokens import LedgerAccess
from evalrun_proto.ledger.v1 import ledger_pb2

REQUEST = httpx2.Request("PATCH", "https://api/x")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (409, ConflictError), (429, UnreachableError), (500, UnreachableError), (503, UnreachableError),
        (403, RefusedError), (422, RefusedError), (400, RefusedError),
    ],
)  # fmt: skip
def test_translate_error_chooses_the_error_class_by_status(code: int, error: type[ClusterError]) -> None:
    response = httpx2.Response(code, request=REQUEST, text="why")
    found = translate_error(httpx2.HTTPStatusError("why", request=REQUEST, response=response), "applying Job x")
    assert type(found) is error
    assert "applying Job x" in str(found)


@pytest.mark.parametrize("error", [httpx2.ReadTimeout("t"), httpx2.ConnectError("c"), httpx2.RemoteProtocolError("p")])
def test_a_broken_connection_is_tried_again(error: httpx2.HTTPError) -> None:
    assert isinstance(translate_error(error, "x"), UnreachableError)


def test_status_message_of_a_ledger_is_read() -> None:
    answer = ledger_pb2.GetStatusResponse(state=ledger_pb2.RUN_STATE_DEGRADED, output_url="s3://x")
    answer.datasets.add(name="a", total=5, generated=5, judged=3, accepted=2, not_judged=2)
    status = from_wire(answer)
    assert status.state is RunState.DEGRADED
    assert (status.total, status.pending, status.judged, status.not_judged) == (5, 0, 3, 2)
    assert status.datasets[0].accepted_at_1 is None
    assert status.gate is GateState.PENDING
    answer.warnings.append("rollout.enforceEager: write false")
    assert from_wire(answer).warnings == ("rollout.enforceEager: write false",)
    answer.gate, answer.gpu_seconds = ledger_pb2.GATE_DECISION_FAILED, 12.5
    assert from_wire(answer).gate is GateState.FAILED
    assert from_wire(answer).gpu_seconds == 12.5
    assert from_wire(answer).replica_hosts is None
    answer.replicas.add(address="10.0.0.1:4321", gpus=2, up=True)
    answer.replicas.add(address="[fd00::7]:4321", gpus=2)
    answer.replicas.add(gpus=2)
    answer.replicas.add(address="10.0.0.2:4321", gpus=2, released_at=17.0)
    assert from_wire(answer).replica_hosts == ("10.0.0.1", "fd00::7", "")
    assert from_wire(ledger_pb2.GetStatusResponse()).state is RunState.PREPARING
    early = ledger_pb2.GetStatusResponse(
        state=ledger_pb2.RUN_STATE_JUDGING, ended_early="late", generating_seconds=2.0, working_seconds=3.0
    )
    early.datasets.add(name="a", total=5, generated=3)
    status = from_wire(early)
    assert (status.ended_early, status.generating_seconds, status.working_seconds) == ("late", 2.0, 3.0)
    assert not status.all_generated  # though it writes
    assert (status.paused, status.stopped_by_user) == (False, False)
    told = from_wire(ledger_pb2.GetStatusResponse(paused=True, stopped_by_user=True))
    assert (told.paused, told.stopped_by_user) == (True, True)


def test_status_of_a_preparing_ledger_claims_neither_all_nor_missing_answers() -> None:
    status = from_wire(ledger_pb2.GetStatusResponse(state=ledger_pb2.RUN_STATE_PREPARING))
    assert not status.all_generated
    assert not status.some_missing


async def test_simulated_ledgers_fill_and_end() -> None:
    times = iter([0.0, 0.0, 5.0, 12.0, 21.0])
    aggregators = SimulatedAggregators(10.0, lambda: next(times))
    states = [(await aggregators.status("a", LedgerAccess("t"))).state for _ in range(4)]
    assert states == [RunState.GENERATING, RunState.GENERATING, RunState.JUDGING, RunState.SUCCEEDED]
    assert simulated_status(2.0).judged == simulated_status(2.0).total


async def test_simulated_ledgers_in_a_directory_outlive_the_operator(tmp_path: Path) -> None:
    asked = [SimulatedAggregators(10.0, time.time, tmp_path), SimulatedAggregators(10.0, time.time, tmp_path)]
    assert (await asked[0].status("dns:///a:1", LedgerAccess("t"))).state is RunState.GENERATING
    os.utime(tmp_path / "dns%3A%2F%2F%2Fa%3A1", (time.time() - 15,) * 2)  # as if it had been asked 15 s ago
    assert (await asked[1].status("dns:///a:1", LedgerAccess("t"))).state is RunState.JUDGING


@pytest.mark.parametrize("mode", ["cpu", "custom", "keda"])
def test_role_allows_only_the_needed_verbs(mode: str) -> None:
    rules = role_rules(mode)  # type: ignore[arg-type]  # the parameter's words
    allowed: dict[tuple[str, str], set[str]] = {}
    for rule in rules:
        for group in rule["apiGroups"]:
            for plural in rule["resources"]:
                allowed.setdefault((group, plural), set()).update(rule["verbs"])
    assert not [verb for verbs in allowed.values() for verb in verbs if verb == "*"]
    assert allowed["", "secrets"] == {"create", "get"}
    assert allowed["", "pods"] == {"delete", "list", "watch"}  # of lost nodes; a policy says which
    # create, delete: schedules; delete also for ttlSecondsAfterFinished
    assert allowed[EVAL_RUN.group, "evalruns"] == {"create", "delete", "list", "watch"}
    assert allowed[EVAL_RUN.group, "evalschedules"] == {"list", "watch"}
    assert ("", "pods/log") not in allowed
    unused = "HorizontalPodAutoscaler" if mode == "keda" else "ScaledObject"
    for kind in KINDS.values():
        assert {"list", "watch"} <= allowed[kind.group, kind.plural]
        assert not kind.made or kind.kind == unused or {"create", "patch"} <= allowed[kind.group, kind.plural]
    assert "delete" not in allowed["", "persistentvolumeclaims"]
    assert "delete" in allowed["ray.io", "rayclusters"]
    leftover = KINDS[unused]  # made before the mode was changed: it can be taken away, and never made
    assert allowed[leftover.group, leftover.plural] == {"delete", "list", "watch"}


def test_metrics_count_runs_by_phase_and_show_results_until_the_run_is_gone() -> None:
    registry = CollectorRegistry()
    metrics = OperatorMetrics(registry)
    shown = generate_latest(registry).decode()
    assert 'evalrun_runs{phase="Generating"} 0.0' in shown  # sets are there from the start
    world = generating().generate_all().judge_all().settle()
    metrics.show(("evals", "run"), world.status, "nightly", make_subject(world.run.spec))
    shown = generate_latest(registry).decode()
    assert 'evalrun_runs{phase="Succeeded"} 1.0' in shown
    about = f'model="{world.run.spec.model.path}",namespace="evals",phase="",run="run",schedule="nightly",step=""'
    assert f"evalrun_run_info{{{about}}} 1.0" in shown
    assert 'evalrun_run_accepted_at_1{dataset="humaneval",namespace="evals",run="run"} 0.5' in shown
    metrics.forget(("evals", "run"))
    assert "evalrun_run_accepted_at_1{" not in generate_latest(registry).decode()
    assert 'evalrun_runs{phase="Succeeded"} 0.0' in generate_latest(registry).decode()


def test_scrape_survives_runs_that_start_during_the_scrape() -> None:
    """A scrape runs in a thread of its own: 33 of them failed while 4,000 runs started."""
    registry = CollectorRegistry()
    metrics = OperatorMetrics(registry)

    shown: list[str] = []

    class Busy(str):
        __slots__ = ()

        def __hash__(self) -> int:
            shown.append(f"run-{len(shown)}")  # another run comes while the runs are counted by phase
            metrics.show(("evals", shown[-1]), EvalRunStatus.model_validate({}))
            return str.__hash__(self)

    phase: Any = Busy("Judging")
    metrics.show(("evals", "run"), EvalRunStatus.model_construct(phase=phase, conditions=[], datasets=[]))
    assert 'evalrun_runs{phase="Judging"} 1.0' in generate_latest(registry).decode()
    assert shown


def test_gate_metric_appears_once_the_gate_is_decided() -> None:
    registry = CollectorRegistry()
    metrics = OperatorMetrics(registry)
    run = evalrun({"spec.gates": [{"baseline": "s3://runs/before", "dataset": "humaneval"}]})
    world = generating(changes={"spec.gates": run.spec.to_wire()["gates"]})
    metrics.show(("evals", "run"), world.status)
    assert "evalrun_gate_passed{" not in generate_latest(registry).decode()
    assert [condition.type for condition in world.status.conditions].count("GatePassed") == 1


def test_children_wake_their_run_only_when_something_changed() -> None:
    woken: list[tuple[str, str]] = []
    children = Children(woken.append)
    labels = {"evalrun.dev/run-uid": "u", "evalrun.dev/run": "run"}
    pod = {"kind": "Pod", "metadata": {"name": "p", "namespace": "evals", "labels": labels}, "status": {}}
    children.put(pod)
    children.put({**pod, "metadata": {**pod["metadata"], "resourceVersion": "2"}})  # type: ignore[dict-item]
    assert woken == [("evals", "run")]
    known = children.put({**pod, "status": {"phase": "Failed"}})
    assert known is not None
    children.drop(known)
    assert len(woken) == 3
    assert children.find_for_run("evals", "u") == []


@pytest.mark.parametrize(("version", "known"), [("2.51.9", False), ("2.52.0", True), ("2.60.0", True), ("3.0.1", True)])
def test_ray_version_without_token_support_requires_ray_auth_disabled(version: str, known: bool) -> None:
    assert operator_settings(ray_version=version, ray_auth="disabled").ray_version == version
    if known:
        assert operator_settings(ray_version=version).ray_auth == "token"
        return
    with pytest.raises(ValidationError, match="set ray_auth to disabled"):
        operator_settings(ray_version=version)


def test_kopf_needs_no_rights_beyond_the_role() -> None:
    settings = kopf.OperatorSettings()
    configure(settings)
    assert settings.peering.standalone
    assert not settings.posting.enabled  # events are ours
    assert settings.scanning.disabled  # it would list CRDs and namespaces


def test_every_kind_that_is_made_can_be_watched() -> None:
    assert {kind.kind for kind in KINDS.values() if not kind.made} == {"Pod"}
