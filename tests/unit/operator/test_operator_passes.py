"""Passes of the controller against an API server that is a dictionary: what is asked of it, and what is not."""

import asyncio
import gc
import json
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from builders.operator import START, UID, evalrun, generating, operator_settings
from lightkube import AsyncClient, KubeConfig
from lightkube.config.models import Cluster as ClusterConfig
from lightkube.config.models import User
from prometheus_client import CollectorRegistry, generate_latest

from evalrun_operator.cluster import Cluster
from evalrun_operator.controller import CONFLICT_SECONDS, THERE_SECONDS, Controller
from evalrun_operator.metrics import OperatorMetrics
from evalrun_operator.observed import Ref
from evalrun_operator.simulated_aggregators import SimulatedAggregators
from evalrun_operator.watching import Children
from evalrun_operator.work_queue import FIRST

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

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        name = request.url.path.rpartition("/")[2]
        if request.url.path.endswith("/evalruns"):
            self.asked += 1
            items = [] if self.run is None else [self.run]
            return httpx2.Response(200, json={"metadata": {"resourceVersion": "9"}, "items": items}, request=request)
        if request.url.path.endswith("/status"):
            return self._status(request)
        if request.method == "GET":
            return self._missing(request)
        body = json.loads(request.content)
        if body["kind"] != "Event":
            self.applied[f"{body['kind']}/{body['metadata'].get('name', name)}"] = body
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
    server: Server, woken: list[float] | None = None, times: list[float] | None = None
) -> AsyncIterator[tuple[Controller, Children, CollectorRegistry]]:
    """Give a controller on a server; `woken` is told the delays that it asks for, the last of `times` is the time."""
    asked, clock = [] if woken is None else woken, times or [0.0]
    children, registry = Children(lambda _: None), CollectorRegistry()
    async with AsyncClient(CONFIG, field_manager="x", transport=httpx2.MockTransport(server.answer)) as client:
        yield (
            Controller(
                operator_settings(), Cluster(client), children, SimulatedAggregators(1.0, lambda: 0.0),
                OperatorMetrics(registry), lambda key, delay: asked.append(delay), now=lambda: START,
                clock=lambda: clock[-1], new_token=lambda: "token",
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
        controller.saw_run(manifest())
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
        controller.saw_run(manifest())
        await controller.work(KEY)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with pytest.raises(asyncio.CancelledError):
                await controller.work(KEY)
            gc.collect()
    assert said == []


@pytest.mark.parametrize("gone", [deleted, made_anew])
async def test_a_run_that_went_while_nobody_looked_gets_nothing_and_is_forgotten(
    gone: Callable[[Server], None],
) -> None:
    server, times = Server(manifest()), [0.0]
    async with controlling(server, times=times) as (controller, _, registry):
        controller.saw_run(manifest())
        await controller.work(KEY)
        times.append(THERE_SECONDS)
        gone(server)  # its event fell into a gap of the watch, and the list that follows does not speak of it
        assert await controller.work(KEY) is None
        assert server.applied == {}
        assert await controller.work(KEY) is None
    assert 'evalrun_runs{phase="Preparing"} 0.0' in generate_latest(registry).decode()


async def test_a_run_whose_last_object_went_with_it_is_forgotten() -> None:
    past_its_ttl = generating(rollout=False, changes={"spec.ttlSecondsAfterFinished": 0}).generate_all().settle()
    status = past_its_ttl.judge_all().settle().status.to_wire()
    run = {**manifest(), "status": status}
    run["spec"]["ttlSecondsAfterFinished"] = 0
    server, times = Server(run), [0.0]
    async with controlling(server, times=times) as (controller, _, registry):
        controller.saw_run(run)
        assert await controller.work(KEY) is None
        assert 'evalrun_runs{phase="Succeeded"} 1.0' in generate_latest(registry).decode()
        times.append(THERE_SECONDS)
        deleted(server)
        await controller.work(KEY)  # its volume was seen to go
        assert 'evalrun_runs{phase="Succeeded"} 0.0' in generate_latest(registry).decode()
    assert server.applied == {}


async def test_a_run_is_looked_up_only_where_it_was_not_shown_for_long_and_something_is_to_be_made() -> None:
    server, times = Server(manifest()), [0.0]
    async with controlling(server, times=times) as (controller, children, _):
        controller.saw_run(manifest())
        for _ in range(2):
            await controller.work(KEY)
        assert server.asked == 0  # its status was written just now
        for item in server.applied.values():
            if item["kind"] != "Secret":
                children.put({**item, "metadata": {**item["metadata"], "uid": "x"}})
        times.append(THERE_SECONDS)
        await controller.work(KEY)
        assert server.asked == 0  # all is there
        children.drop(UID, Ref("ConfigMap", "run-order"), KEY)
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
        controller.saw_run(manifest())
        assert [await controller.work(KEY) for _ in waits] == waits
        server.code = 200
        assert await controller.work(KEY) == 0.0
        controller.saw_run(server.run or {})
        server.code = code
        assert await controller.work(KEY) == waits[0]


async def test_only_what_is_new_of_a_run_wakes_it() -> None:
    woken: list[float] = []
    server = Server(manifest())
    async with controlling(server, woken) as (controller, _, _):
        first = manifest()
        controller.saw_run(first)
        assert woken == [FIRST]  # what a user has asked for goes before everything
        await controller.work(KEY)
        controller.saw_run(server.run or {})  # our own write comes back
        controller.saw_run(first)  # and so does what was before it
        assert woken == [FIRST]
        assert await controller.work(KEY) != CONFLICT_SECONDS  # it goes on from its own write
        changed = {**(server.run or {})}
        changed["metadata"] = {**changed["metadata"], "resourceVersion": "99", "generation": 2}
        controller.saw_run(changed)
        assert woken == [FIRST, FIRST]


async def test_a_run_that_goes_during_a_pass_leaves_no_series() -> None:
    server = Server(manifest())
    async with controlling(server) as (controller, _, registry):
        controller.saw_run(manifest())
        deleted(server)
        await controller.work(KEY)  # the first pass makes nothing but the status, which is refused
    assert server.asked == 0
    shown = generate_latest(registry).decode().splitlines()
    assert not [line for line in shown if line.startswith("evalrun_runs{") and not line.endswith("} 0.0")]
