"""Watches against an API server that is a list of answers: what a gap has swallowed is found out by the next list."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from lightkube import AsyncClient, KubeConfig
from lightkube.config.models import Cluster as ClusterConfig
from lightkube.config.models import User

from evalrun_operator.cluster import Cluster
from evalrun_operator.kinds import KINDS
from evalrun_operator.observed import Ref, Seen
from evalrun_operator.watching import Children, Watch, Watches

CONFIG = KubeConfig.from_one(cluster=ClusterConfig(server="http://api"), user=User()).get()
UID = "u-1"
KEY = ("evals", "run")


def pod(name: str, version: str = "1") -> dict[str, Any]:
    labels = {"evalrun.dev/run-uid": UID, "evalrun.dev/run": "run"}
    return {"metadata": {"name": name, "namespace": "evals", "labels": labels, "resourceVersion": version}}


@dataclass
class Server:
    """Gives each list in turn, the last one for ever; watches are answered with `code`."""

    lists: list[list[dict[str, Any]]]
    code: int = 410
    events: list[dict[str, Any]] = field(default_factory=list)
    """Of the first watch."""
    requests: list[httpx2.Request] = field(default_factory=list)

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if request.method == "DELETE":
            return httpx2.Response(200, json={"kind": "Status", "status": "Success"}, request=request)
        if "watch=true" in str(request.url):
            if self.events:
                lines, self.events = [json.dumps(event) for event in self.events], []
                return httpx2.Response(200, content="\n".join(lines).encode(), request=request)
            body = {"kind": "Status", "status": "Failure", "code": self.code, "reason": "Expired", "message": "made up"}
            return httpx2.Response(self.code, json=body, request=request)
        items = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        return httpx2.Response(200, json={"metadata": {"resourceVersion": "7"}, "items": items}, request=request)


@asynccontextmanager
async def client_of(server: Server) -> AsyncIterator[AsyncClient]:
    transport = httpx2.MockTransport(server.answer)
    async with AsyncClient(CONFIG, field_manager="x", transport=transport) as client:
        yield client


@asynccontextmanager
async def watching(server: Server) -> AsyncIterator[tuple[Children, asyncio.Queue[tuple[str, str]]]]:
    woken: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    children = Children(woken.put_nowait)
    async with client_of(server) as client:
        watches = Watches(client, [KINDS["Pod"]], [], children)
        await watches.start(5)
        try:
            yield children, woken
        finally:
            await watches.stop()


async def until_there_are(children: Children, woken: asyncio.Queue[tuple[str, str]], names: set[str]) -> None:
    async with asyncio.timeout(10):
        while {ref.name for ref in children.of(UID)} != names:
            assert await woken.get() == KEY


async def test_what_went_in_a_gap_is_forgotten_by_the_next_list_and_its_run_is_woken() -> None:
    async with watching(Server([[pod("a"), pod("b")], [pod("a")]])) as (children, woken):
        await until_there_are(children, woken, {"a"})


async def test_what_came_in_a_gap_is_found_by_the_next_list() -> None:
    async with watching(Server([[], [pod("a"), pod("b")]])) as (children, woken):
        await until_there_are(children, woken, {"a", "b"})


async def test_events_between_two_lists_are_taken_over() -> None:
    added, gone = {"type": "ADDED", "object": pod("b", "8")}, {"type": "DELETED", "object": pod("a", "9")}
    server = Server([[pod("a")], [pod("b", "8")]], events=[added, gone])
    async with watching(server) as (children, woken):
        await until_there_are(children, woken, {"b"})
    watch = next(request for request in server.requests if "watch=true" in str(request.url))
    assert watch.url.params["resourceVersion"] == "7"  # from where the list ended
    assert watch.url.params["labelSelector"] == "evalrun.dev/run-uid"  # not every pod of the cluster


@pytest.mark.parametrize("kind", ["RayCluster", "ScaledObject"])
async def test_a_kind_that_is_not_served_keeps_nothing_from_starting(kind: str) -> None:
    def missing(request: httpx2.Request) -> httpx2.Response:
        body = {"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "made up"}
        return httpx2.Response(404, json=body, request=request)

    children = Children(lambda _: None)
    async with AsyncClient(CONFIG, field_manager="x", transport=httpx2.MockTransport(missing)) as client:
        watch = Watch(client, KINDS[kind], None, children)
        task = asyncio.create_task(watch.run())
        async with asyncio.timeout(5):
            await watch.synced.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert children.missing_kinds == {kind}


async def test_what_is_deleted_takes_its_pods_along() -> None:
    server = Server([[]])
    async with client_of(server) as client:
        seen = Seen(Ref("Job", "run-gen-1"), "j", owned=True, component="generator", applied="", deleted_at=None)
        await Cluster(client).delete(seen, "evals")
    (request,) = server.requests
    assert request.url.path == "/apis/batch/v1/namespaces/evals/jobs/run-gen-1"
    assert request.url.params["propagationPolicy"] == "Background"  # the API's default orphans a Job's pods
