"""Passes of the controller against an API server that is a dictionary: what is asked of it, and what is not."""

import asyncio
import base64
import gc
import json
import threading
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import grpc
import httpx2
import pytest
from builders.operator.evalruns import TLS_SECRETS
from builders.operator.running_operator import ScriptedLedger, serving_ledger
from builders.operator.simulated_aggregators import SimulatedAggregators
from builders.operator.world import START, UID, evalrun, generating, operator_settings
from lightkube import KubeConfig
from lightkube.config.models import Cluster as ClusterConfig
from lightkube.config.models import User
from prometheus_client import CollectorRegistry, generate_latest

from evalrun_cluster.client import Cluster, ExactClient
from evalrun_operator.aggregator_client import AggregatorError, GrpcAggregators
from evalrun_operator.ledger_status import LedgerStatus
from evalrun_operator.metrics import OperatorMetrics
from evalrun_operator.observation.children import Children
from evalrun_operator.observation.records import ObjectKey
from evalrun_operator.reconcilers.controller import THERE_SECONDS, Controller
from evalrun_operator.reconcilers.reconciler import CONFLICT_SECONDS
from evalrun_operator.reconcilers.work_queue import FIRST
from evalrun_operator.resources.run_tokens import LedgerAccess
from evalrun_proto.ledger.v1 import ledger_pb2

CONFIG = KubeConfig.from_one(cluster=ClusterConfig(server="http://api"), user=User()).get()
KEY = ("evals", "run")


@dataclass
class Server:
    """Keeps what is applied; tells nobody of it, as if every watch had a gap."""

    run: dict[str, Any] | None
    applied: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: int = 0
    """How often the run was looked up."""
    code: int = 200
    """What writes of the status are answered with."""
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By kind, what writes are answered with instead."""
    cause: str = ""
    """Of those refusals, for programs."""
    there: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Objects that are there without our doing, by kind and name."""
    events: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    patches: list[list[dict[str, Any]]] = field(default_factory=list)

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        name = request.url.path.rpartition("/")[2]
        if request.url.path.endswith("/evalruns"):
            self.asked += 1
            items = [] if self.run is None else [self.run]
            return httpx2.Response(200, json={"metadata": {"resourceVersion": "9"}, "items": items}, request=request)
        if request.url.path.endswith("/status"):
            return self._status(request)
        if request.method == "GET" and "fieldSelector" in request.url.params:
            wanted = request.url.params["fieldSelector"].removeprefix("metadata.name=")
            found = [item for known, item in self.there.items() if known.endswith(f"/{wanted}")]
            return httpx2.Response(200, json={"metadata": {"resourceVersion": "9"}, "items": found}, request=request)
        if request.method == "GET":
            secret = self.there.get(f"Secret/{name}")
            return self._missing(request) if secret is None else httpx2.Response(200, json=secret, request=request)
        if request.method == "DELETE":
            self.deleted.append(f"{name} {request.url.params['uid']}")
            return httpx2.Response(200, json={"kind": "Status", "status": "Success"}, request=request)
        body = json.loads(request.content)
        if request.method == "PATCH" and isinstance(body, list):
            self.patches.append(body)
            return httpx2.Response(200, json={}, request=request)
        code, message = self.refused.get(body["kind"], (200, ""))
        known = f"{body['kind']}/{body['metadata'].get('name', name)}"
        if known in self.there:
            code, message = 409, "already exists"
        if code != 200:
            status = {"kind": "Status", "status": "Failure", "code": code, "message": message}
            if self.cause:
                status["details"] = {"causes": [{"reason": self.cause, "message": "in its own words"}]}
            return httpx2.Response(code, json=status, request=request)
        if body["kind"] == "Event":
            self.events.append(f"{body['reason']}: {body['message']}")
        else:
            self.applied[known] = body
        return httpx2.Response(200, json=body, request=request)

    def _status(self, request: httpx2.Request) -> httpx2.Response:
        if self.run is None:
            return self._missing(request)
        sent = json.loads(request.content)
        stale = sent["metadata"]["resourceVersion"] != self.run["metadata"]["resourceVersion"]
        code = 409 if stale else self.code
        if code != 200:
            status = {"kind": "Status", "status": "Failure", "code": code, "message": "made up"}
            return httpx2.Response(code, json=status, request=request)
        version = str(int(self.run["metadata"]["resourceVersion"]) + 1)
        metadata = {**self.run["metadata"], "resourceVersion": version}
        self.run = {**self.run, "metadata": metadata, "status": sent["status"]}
        return httpx2.Response(200, json=self.run, request=request)

    def _missing(self, request: httpx2.Request) -> httpx2.Response:
        status = {"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "not found"}
        return httpx2.Response(404, json=status, request=request)


def manifest(uid: str = UID) -> dict[str, Any]:
    wire = evalrun(rollout=False).to_wire()
    return {**wire, "metadata": {**wire["metadata"], "uid": uid}}


@asynccontextmanager
async def controlling(
    server: Server,
    woken: list[float] | None = None,
    times: list[float] | None = None,
    aggregators: SimulatedAggregators | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[Controller, Children, CollectorRegistry]]:
    """Return a controller on a server; `woken` is told the delays that it asks for, the last of `times` is the time."""
    asked, clock = [] if woken is None else woken, times or [0.0]
    children, registry = Children(lambda _: None), CollectorRegistry()
    client = ExactClient(CONFIG, field_manager="x", transport=httpx2.MockTransport(server.answer))
    async with client:
        yield (
            Controller(
                operator_settings(**settings), Cluster(client), children,
                aggregators or SimulatedAggregators(1.0, lambda: 0.0), OperatorMetrics(registry),
                lambda key, delay: asked.append(delay), now=lambda: START, clock=lambda: clock[-1],
                new_token=lambda: "token",
            ),
            children,
            registry,
        )  # fmt: skip


def deleted(server: Server) -> None:
    server.run = None


def made_anew(server: Server) -> None:
    server.run = manifest(uid="another")


async def test_a_run_that_is_there_gets_its_objects() -> None:
    server = Server(manifest())
    async with controlling(server) as (controller, _, _):
        controller.saw(manifest())
        assert await controller.work(KEY) == 0.0  # startTime first
        assert server.applied == {}
        await controller.work(KEY)
    assert "StatefulSet/run-aggregator" in server.applied


async def test_a_pass_that_is_cancelled_at_its_first_write_has_begun_no_other() -> None:
    """It is when the operator stops; what was begun and never awaited was complained of much later, in another test."""

    class Stopping(Server):
        def answer(self, request: httpx2.Request) -> httpx2.Response:
            if request.method != "GET" and not request.url.path.endswith("/status"):
                raise asyncio.CancelledError
            return super().answer(request)

    async with controlling(Stopping(manifest())) as (controller, _, _):
        controller.saw(manifest())
        await controller.work(KEY)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with pytest.raises(asyncio.CancelledError):
                await controller.work(KEY)
            gc.collect()
    assert said == []


async def test_forbidden_read_is_reported_by_one_event() -> None:
    """It had been tried again without end, and only the operator's log said so."""

    class WithoutRight(Server):
        def answer(self, request: httpx2.Request) -> httpx2.Response:
            if request.method == "GET" and "/secrets/" in request.url.path:
                status = {"kind": "Status", "status": "Failure", "code": 403, "message": "secrets are forbidden"}
                return httpx2.Response(403, json=status, request=request)
            return super().answer(request)

    server = WithoutRight(manifest())
    async with controlling(server) as (controller, _, _):
        controller.saw(manifest())
        for _ in range(3):
            await controller.work(KEY)
    refused = [event for event in server.events if event.startswith("Refused")]
    assert len(refused) == 1
    assert "secrets are forbidden" in refused[0]


@pytest.mark.parametrize("data", [None, {"other": "eA=="}, {"token": ""}])
async def test_secret_without_its_tokens_is_reported_with_the_remedy(data: dict[str, str] | None) -> None:
    server = Server(manifest())
    owner = {"kind": "EvalRun", "name": "run", "uid": UID, "controller": True}
    metadata = {"name": "run-token", "namespace": "evals", "uid": "s", "ownerReferences": [owner]}
    server.there["Secret/run-token"] = {"kind": "Secret", "metadata": metadata, **({"data": data} if data else {})}
    async with controlling(server) as (controller, _, _):
        controller.saw(manifest())
        for _ in range(2):
            await controller.work(KEY)
    refused = [event for event in server.events if event.startswith("Refused")]
    assert refused == ["Refused: Secret run-token lacks a token: delete it, and the operator makes new ones"]


async def test_run_waits_for_the_authority_of_the_charts_judge_and_reports_the_wait() -> None:
    parts = ("gateway", "sandbox", "authority_secret", "gateway_secret", "sandbox_secret", "caller_secret")
    judge = {"namespace": "judging", **{part: part for part in parts}}
    wire = evalrun({"spec.judgeRef": {"name": "gateway", "namespace": "judging"}}, rollout=False).to_wire()
    server, times = Server(wire), [0.0]
    seed = {"kind": "Secret", "metadata": {"name": "authority_secret", "namespace": "judging", "uid": "s"}}
    async with controlling(server, times=times, shared_judge=judge) as (controller, _, _):
        controller.saw(wire)
        for data in ({}, {}, {"seed": in_base64("what nobody knows")}):
            server.there["Secret/authority_secret"] = {**seed, "data": data}
            made = {name for name in server.applied if "judge-tls" in name or "StatefulSet" in name}
            assert made == set()
            await controller.work(KEY)
    (refused,) = [event for event in server.events if event.startswith("Refused")]
    assert "Secret judging/authority_secret lacks the key seed. The operator writes it within half a minute" in refused
    (secret,) = [item for name, item in server.applied.items() if name.startswith("Secret/run-judge-tls-")]
    assert secret["stringData"].keys() == {"tls.crt", "tls.key", "ca.crt"}
    assert "StatefulSet/run-aggregator" in server.applied


async def test_ledger_is_called_with_the_named_certificate_and_a_missing_one_is_reported() -> None:
    """Other parts' Secrets are missed by their pods; the operator's is mounted by nobody."""

    class Asked(SimulatedAggregators):
        shown: ClassVar[list[tuple[str, str, str] | None]] = []

        async def status(self, address: str, access: LedgerAccess) -> LedgerStatus:
            self.shown.append(access.certificate)
            return await super().status(address, access)

    world = generating(rollout=False, changes={"spec.tlsSecretRefs": TLS_SECRETS})
    run = {**manifest(), **world.run.to_wire()}
    server, aggregators = Server(run), Asked(1.0, lambda: 0.0)
    owner = {"kind": "EvalRun", "name": "run", "uid": UID, "controller": True}
    metadata = {"name": "run-token", "namespace": "evals", "uid": "s", "ownerReferences": [owner]}
    server.there["Secret/run-token"] = {"kind": "Secret", "metadata": metadata, "data": {"token": in_base64("t")}}
    async with controlling(server, aggregators=aggregators) as (controller, children, _):
        for item in world.objects.values():
            children.put(item)
        controller.saw(run)
        await controller.work(KEY)
        assert not aggregators.shown
        named = {"kind": "Secret", "metadata": {"name": "operator-tls", "namespace": "evals", "uid": "o"}}
        server.there["Secret/operator-tls"] = {**named, "data": {"tls.crt": in_base64("c"), "keystore.jks": "/u3+7Q=="}}
        await controller.work(KEY)
        assert not aggregators.shown
        judged = {one["type"]: one["message"] for one in (server.run or {})["status"]["conditions"]}["Judged"]
        assert "not answer yet. Secret operator-tls of spec.tlsSecretRefs.operator lacks tls.key, ca.crt: " in judged
        held = {"tls.crt": "c", "tls.key": "k", "ca.crt": "a"}
        server.there["Secret/operator-tls"] = {**named, "data": {key: in_base64(text) for key, text in held.items()}}
        await controller.work(KEY)
        assert aggregators.shown == [("c", "k", "a")]


async def test_error_of_an_unreachable_aggregator_is_in_the_conditions() -> None:
    class Refusing(SimulatedAggregators):
        async def status(self, address: str, access: LedgerAccess) -> LedgerStatus:
            raise AggregatorError(f"{address}: UNAVAILABLE: Tls handshake failed")

    world = generating(rollout=False)
    run = {**manifest(), **world.run.to_wire()}
    server = Server(run)
    owner = {"kind": "EvalRun", "name": "run", "uid": UID, "controller": True}
    metadata = {"name": "run-token", "namespace": "evals", "uid": "s", "ownerReferences": [owner]}
    server.there["Secret/run-token"] = {"kind": "Secret", "metadata": metadata, "data": {"token": in_base64("t")}}
    async with controlling(server, aggregators=Refusing(1.0, lambda: 0.0)) as (controller, children, _):
        for item in world.objects.values():
            children.put(item)
        controller.saw(run)
        await controller.work(KEY)
    judged = {one["type"]: one["message"] for one in (server.run or {})["status"]["conditions"]}["Judged"]
    assert judged.endswith(
        "does not answer yet. dns:///run-aggregator.evals.svc:50051: UNAVAILABLE: Tls handshake failed"
    )


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize("gone", [deleted, made_anew])
async def test_run_deleted_in_a_gap_of_the_watch_gets_no_objects_and_is_forgotten(
    gone: Callable[[Server], None],
) -> None:
    server, times = Server(manifest()), [0.0]
    async with controlling(server, times=times) as (controller, _, registry):
        controller.saw(manifest())
        await controller.work(KEY)
        times.append(THERE_SECONDS)
        gone(server)  # its event fell into a gap of the watch, and the list that follows does not speak of it
        assert await controller.work(KEY) is None
        assert server.applied == {}
        assert await controller.work(KEY) is None
    assert 'evalrun_runs{phase="Preparing"} 0.0' in generate_latest(registry).decode()


async def test_run_deleted_with_its_last_object_is_forgotten() -> None:
    ended = generating(rollout=False, changes={"spec.aggregator.keepSecondsAfterFinished": 0}).generate_all().settle()
    run = {**manifest(), "status": ended.judge_all().settle().status.to_wire()}
    run["spec"]["aggregator"]["keepSecondsAfterFinished"] = 0
    server, times = Server(run), [0.0]
    async with controlling(server, times=times) as (controller, _, registry):
        controller.saw(run)
        assert await controller.work(KEY) is None
        assert 'evalrun_runs{phase="Succeeded"} 1.0' in generate_latest(registry).decode()
        times.append(THERE_SECONDS)
        deleted(server)
        await controller.work(KEY)  # its volume was seen to go
        assert 'evalrun_runs{phase="Succeeded"} 0.0' in generate_latest(registry).decode()
    assert server.applied == {}


@pytest.mark.parametrize("schedule", ["nightly", ""])
async def test_a_failed_gate_shows_which_schedule_made_the_run(schedule: str) -> None:
    gate = {"spec.gates": [{"baseline": "s3://runs/before", "dataset": "humaneval"}]}
    run = {**manifest(), "spec": evalrun(gate, rollout=False).to_wire()["spec"]}
    ended = generating(rollout=False, changes=gate).generate_all().settle().judge_all().settle()
    run["status"] = ended.status.to_wire()
    run["status"]["conditions"] = [
        {**one, "status": "False"} if one["type"] == "GatePassed" else one for one in run["status"]["conditions"]
    ]
    if schedule:
        owner = {"apiVersion": "evalrun.dev/v1alpha1", "kind": "EvalSchedule", "name": schedule, "uid": "u"}
        run["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    async with controlling(Server(run)) as (controller, _, registry):
        controller.saw(run)
        await controller.work(KEY)
    shown = generate_latest(registry).decode()
    assert f'evalrun_gate_passed{{namespace="evals",run="run",schedule="{schedule}"}} 0.0' in shown


async def test_run_past_its_ttl_is_deleted_with_its_uid_as_precondition() -> None:
    deletions: list[tuple[str, str]] = []

    class Deleting(Server):
        def answer(self, request: httpx2.Request) -> httpx2.Response:
            if request.method == "DELETE":
                deletions.append((request.url.path, request.url.params.get("uid", "") + request.content.decode()))
                return httpx2.Response(200, json={"kind": "Status", "status": "Success"}, request=request)
            return super().answer(request)

    ended = generating(rollout=False).generate_all().settle().judge_all().settle()
    run = {**manifest(), "status": ended.status.to_wire()}
    run["spec"]["ttlSecondsAfterFinished"] = 0
    async with controlling(Deleting(run)) as (controller, _, _):
        controller.saw(run)
        assert await controller.work(KEY) is None
    ((path, precondition),) = deletions
    assert path.endswith("/namespaces/evals/evalruns/run")
    assert UID in precondition


async def test_run_is_looked_up_only_if_not_seen_for_long_and_objects_must_be_created() -> None:
    server, times = Server(manifest()), [0.0]
    async with controlling(server, times=times) as (controller, children, _):
        controller.saw(manifest())
        for _ in range(2):
            await controller.work(KEY)
        assert server.asked == 0  # its status was written just now
        for item in server.applied.values():
            if item["kind"] != "Secret":
                children.put({**item, "metadata": {**item["metadata"], "uid": f"uid-{item['kind']}"}})
        await controller.work(KEY)  # the status now says that the autoscalers are there
        times.append(THERE_SECONDS)
        await controller.work(KEY)
        assert server.asked == 0  # all is there
        children.drop((("evals", UID), ObjectKey("ConfigMap", "run-order"), KEY, "uid-ConfigMap"))
        for _ in range(2):
            await controller.work(KEY)
        assert server.asked == 1
        assert server.applied.pop("ConfigMap/run-order")


@pytest.mark.parametrize(
    ("code", "waits"),
    [
        (409, [0.05, 0.1, 0.2, 0.4]),  # somebody else wrote: soon
        (503, [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]),
        (422, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]),  # it will be refused again
    ],
)
async def test_a_pass_that_fails_is_repeated_ever_later_and_forgiven_once_one_succeeds(
    code: int, waits: list[float]
) -> None:
    server = Server(manifest(), code=code)
    async with controlling(server) as (controller, _, _):
        controller.saw(manifest())
        assert [await controller.work(KEY) for _ in waits] == waits
        server.code = 200
        assert await controller.work(KEY) == 0.0
        controller.saw(server.run or {})
        server.code = code
        assert await controller.work(KEY) == waits[0]


async def test_a_run_that_took_over_a_name_in_a_gap_begins_afresh() -> None:
    server, aggregators = Server(manifest(), code=503), SimulatedAggregators(1.0, lambda: 0.0)
    async with controlling(server, aggregators=aggregators) as (controller, _, _):
        controller.saw(manifest())
        assert [await controller.work(KEY) for _ in range(3)] == [0.5, 1.0, 2.0]
        server.run = manifest("another")
        controller.saw(server.run)
        controller.saw(manifest(), gone=True)  # what the list shows no more is forgotten last
        assert await controller.work(KEY) == 0.5
    assert list(aggregators.forgotten) == ["dns:///run-aggregator.evals.svc:50051"]


async def test_run_is_woken_only_by_new_changes() -> None:
    woken: list[float] = []
    server = Server(manifest())
    async with controlling(server, woken) as (controller, _, _):
        first = manifest()
        controller.saw(first)
        assert woken == [FIRST]  # what a user has asked for goes before everything
        await controller.work(KEY)
        controller.saw(server.run or {})  # our own write comes back
        controller.saw(first)  # and so does what was before it
        assert woken == [FIRST]
        assert await controller.work(KEY) != CONFLICT_SECONDS  # it goes on from its own write
        changed = {**(server.run or {})}
        changed["metadata"] = {**changed["metadata"], "resourceVersion": "99", "generation": 2}
        controller.saw(changed)
        assert woken == [FIRST, FIRST]


async def test_new_runs_are_worked_on_before_known_ones_after_a_takeover() -> None:
    woken: list[float] = []
    new, old = manifest(), manifest(uid="old")
    old["metadata"] = {**old["metadata"], "name": "old"}
    old["status"] = {"phase": "Generating"}
    async with controlling(Server(new), woken) as (controller, _, _):
        controller.saw(old)
        controller.saw(new)
        controller.wake_all()
    assert woken == [0.0, FIRST] * 2


async def test_run_deleted_during_a_reconciliation_leaves_no_series() -> None:
    server = Server(manifest())
    async with controlling(server) as (controller, _, registry):
        controller.saw(manifest())
        deleted(server)
        await controller.work(KEY)  # the first reconciliation makes nothing but the status, which is refused
    assert server.asked == 0
    shown = generate_latest(registry).decode().splitlines()
    assert not [line for line in shown if line.startswith("evalrun_runs{") and not line.endswith("} 0.0")]


QUOTA = (403, "poddisruptionbudgets.policy is forbidden: exceeded quota: q")


async def test_lasting_refusal_is_reported_in_the_status_and_the_run_continues() -> None:
    """It froze the status: 8 reconciliations, one status write, phase Preparing without a reason."""
    server = Server(manifest(), refused={"PodDisruptionBudget": QUOTA})
    async with controlling(server) as (controller, _, registry):
        controller.saw(manifest())
        for _ in range(3):
            await controller.work(KEY)
        shown = generate_latest(registry).decode()
    assert {"StatefulSet/run-aggregator", "Deployment/run-judge", "Deployment/run-sandbox"} <= server.applied.keys()
    conditions = {one["type"]: one for one in (server.run or {})["status"]["conditions"]}
    applied = conditions["Applied"]
    assert (applied["status"], applied["reason"]) == ("False", "Refused")
    assert "exceeded quota: q" in applied["message"]
    assert "The run goes on without it. Raise the ResourceQuota" in applied["message"]
    assert conditions["Judged"]["message"].startswith("aggregator, judge, sandbox not ready yet")
    assert [event for event in server.events if event.startswith("Refused")] == [f"Refused: {applied['message']}"]
    assert 'evalrun_run_refused{namespace="evals",run="run"} 1.0' in shown


async def test_a_refusal_that_ends_is_taken_back() -> None:
    server = Server(manifest(), refused={"PodDisruptionBudget": QUOTA})
    async with controlling(server) as (controller, _, registry):
        controller.saw(manifest())
        await controller.work(KEY)
        await controller.work(KEY)
        server.refused.clear()
        await controller.work(KEY)
        assert 'evalrun_run_refused{namespace="evals",run="run"} 0.0' in generate_latest(registry).decode()
    applied = next(one for one in (server.run or {})["status"]["conditions"] if one["type"] == "Applied")
    assert (applied["status"], applied["reason"], applied["message"]) == ("True", "AllApplied", "")


@pytest.mark.parametrize(
    ("cause", "reason"), [("NamespaceTerminating", "AllApplied"), ("", "Refused"), ("FieldValueInvalid", "Refused")]
)
async def test_write_into_a_terminating_namespace_is_recognized_by_its_cause(cause: str, reason: str) -> None:
    server = Server(manifest(), refused={"PodDisruptionBudget": (403, "forbidden")}, cause=cause)
    async with controlling(server) as (controller, _, _):
        controller.saw(manifest())
        for _ in range(3):
            await controller.work(KEY)
    applied = next(one for one in (server.run or {})["status"]["conditions"] if one["type"] == "Applied")
    assert applied["reason"] == reason
    assert any(event.startswith("Refused") for event in server.events) is (reason == "Refused")


async def test_refused_secret_prevents_the_creation_of_every_other_object() -> None:
    """Each reconciliation draws another token while there is none: pods made with it would start again and again."""
    server = Server(manifest(), refused={"Secret": (403, "secrets is forbidden: exceeded quota: q")})
    async with controlling(server) as (controller, _, _):
        controller.saw(manifest())
        for _ in range(3):
            await controller.work(KEY)
    assert server.applied == {}
    applied = next(one for one in (server.run or {})["status"]["conditions"] if one["type"] == "Applied")
    assert "creating secret run-token" in applied["message"].lower()


@pytest.mark.parametrize(
    ("kind", "name"), [("Service", "run-judge"), ("ConfigMap", "run-order"), ("Secret", "run-token")]
)
async def test_object_of_another_owner_is_never_taken_over(kind: str, name: str) -> None:
    """An EvalRun named like the chart's release took the shared judge's Service, and deleted it with the run."""
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    theirs = {"kind": kind, "metadata": {"name": name, "namespace": "evals", "uid": "theirs", "labels": labels}}
    server = Server(manifest(), there={f"{kind}/{name}": theirs})
    async with controlling(server) as (controller, _, _):
        controller.saw(manifest())
        for _ in range(3):
            await controller.work(KEY)
    assert f"{kind}/{name}" not in server.applied
    assert server.patches == []
    applied = next(one for one in (server.run or {})["status"]["conditions"] if one["type"] == "Applied")
    assert (applied["status"], applied["reason"]) == ("False", "NameTaken")
    assert f"{kind} {name} is there already, and the run did not make it (managed by Helm)" in applied["message"]
    assert "give the run another name" in applied["message"]


async def test_an_object_that_is_ours_already_is_no_conflict() -> None:
    """The watch is behind, or the answer to its creation was lost."""
    server = Server(manifest())
    async with controlling(server) as (controller, _, _):
        controller.saw(manifest())
        for _ in range(2):
            await controller.work(KEY)
        server.there = {known: item for known, item in server.applied.items() if not known.startswith("Secret")}
        await controller.work(KEY)
    applied = next(one for one in (server.run or {})["status"]["conditions"] if one["type"] == "Applied")
    assert applied["status"] == "True"


async def test_an_object_of_an_earlier_run_of_the_name_is_waited_for() -> None:
    owner = {"apiVersion": "evalrun.dev/v1alpha1", "kind": "EvalRun", "name": "run", "uid": "gone", "controller": True}
    old = {"kind": "ConfigMap", "metadata": {"name": "run-order", "uid": "old", "ownerReferences": [owner]}}
    server = Server(manifest(), there={"ConfigMap/run-order": old})
    async with controlling(server) as (controller, _, _):
        controller.saw(manifest())
        for _ in range(6):
            await controller.work(KEY)
        applied = next(one for one in (server.run or {})["status"]["conditions"] if one["type"] == "Applied")
        assert applied["reason"] == "WriteFailed"
        assert "belongs to an earlier EvalRun run and is still being deleted" in applied["message"]
        server.there.clear()
        await controller.work(KEY)
    assert "ConfigMap/run-order" in server.applied


async def test_a_run_that_is_deleted_early_leaves_no_channel_to_its_ledger() -> None:
    aggregators = SimulatedAggregators(1.0, lambda: 0.0)
    async with controlling(Server(manifest()), aggregators=aggregators) as (controller, _, _):
        controller.saw(manifest())
        controller.saw(manifest(), gone=True)
    assert list(aggregators.forgotten) == ["dns:///run-aggregator.evals.svc:50051"]


async def test_ledger_forgotten_during_a_call_still_answers_the_call() -> None:
    """Closing the channel at once had cancelled the call, and with it the queue's worker, for good."""
    asked, go_on = threading.Event(), threading.Event()

    class Slow(ScriptedLedger):
        def GetStatus(  # noqa: N802 - the contract's name
            self, request: ledger_pb2.GetStatusRequest, context: grpc.ServicerContext
        ) -> ledger_pb2.GetStatusResponse:
            asked.set()
            go_on.wait(30)
            return super().GetStatus(request, context)

    aggregators = GrpcAggregators(30.0)
    with serving_ledger(Slow()) as address:
        question = asyncio.create_task(aggregators.status(address, LedgerAccess("token")))
        await asyncio.to_thread(asked.wait, 30)
        aggregators.forget(address)
        await asyncio.sleep(0)
        go_on.set()
        assert (await question).total == 164
        await aggregators.close()


async def test_a_channel_that_is_forgotten_is_closed() -> None:
    aggregators = GrpcAggregators(0.2)
    with pytest.raises(AggregatorError):
        await aggregators.status("127.0.0.1:1", LedgerAccess("token"))
    with pytest.raises(AggregatorError):
        await aggregators.end_run("127.0.0.1:1", LedgerAccess("token"), "late")
    assert list(aggregators._channels) == ["127.0.0.1:1"]
    aggregators.forget("127.0.0.1:1")
    assert not aggregators._channels
    await aggregators.close()
    assert not aggregators._closing
