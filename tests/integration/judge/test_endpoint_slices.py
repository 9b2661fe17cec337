"""Sandboxes found through the Kubernetes API: requests and answers as an API server gives them, over real HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from evalrun_judge.pool.discovery import DiscoveryError
from evalrun_judge.pool.endpoint_slices import ApiServer, EndpointSliceDiscovery

PATH = "/apis/discovery.k8s.io/v1/namespaces/judging/endpointslices"


def endpoint(address: str, ready: bool | None = True) -> dict[str, Any]:
    return {"addresses": [address], "conditions": {} if ready is None else {"ready": ready}, "targetRef": {"name": "p"}}


def slices(*groups: list[dict[str, Any]]) -> dict[str, Any]:
    ports = [{"name": "http", "port": 8080, "protocol": "TCP"}, {"name": "metrics", "port": 9090}]
    items = [{"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": group, "ports": ports} for group in groups]
    return {"kind": "EndpointSliceList", "metadata": {"resourceVersion": "7"}, "items": items}


class FakeApiServer:
    """Lists what it is told, and ends a watch with one event when it is told of a change."""

    def __init__(self) -> None:
        self.answer = web.json_response(slices())
        self.seen: list[web.Request] = []
        self.watched, self.event = asyncio.Event(), asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        if request.query.get("watch") != "1":
            return self.answer
        response = web.StreamResponse()
        await response.prepare(request)
        self.watched.set()
        await self.event.wait()
        await response.write(json.dumps({"type": "MODIFIED", "object": {}}).encode() + b"\n")
        return response


@asynccontextmanager
async def watching(tmp_path: Path, port: str = "http") -> AsyncIterator[tuple[FakeApiServer, EndpointSliceDiscovery]]:
    server = FakeApiServer()
    application = web.Application()
    application.router.add_get(PATH, server.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    (tmp_path / "token").write_text("first\n")
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    discovery = EndpointSliceDiscovery(f"k8s:///judging/sandbox:{port}", ApiServer(url, tmp_path / "token"))
    try:
        yield server, discovery
    finally:
        await discovery.close()
        await runner.cleanup()


async def test_discovery_finds_the_ready_pods_of_every_slice_at_the_named_port(tmp_path: Path) -> None:
    async with watching(tmp_path) as (server, discovery):
        server.answer = web.json_response(
            slices([endpoint("10.0.0.1"), endpoint("10.0.0.2", ready=False)], [endpoint("fd00::1", ready=None)])
        )
        assert await discovery.find() == {"http://10.0.0.1:8080", "http://[fd00::1]:8080"}
    (asked,) = server.seen
    assert asked.headers["Authorization"] == "Bearer first"
    assert asked.query["labelSelector"] == "kubernetes.io/service-name=sandbox"


async def test_discovery_without_pods_is_empty_and_a_port_may_be_a_number(tmp_path: Path) -> None:
    async with watching(tmp_path, "9090") as (server, discovery):
        assert await discovery.find() == frozenset()
        server.answer = web.json_response(slices([endpoint("10.0.0.1")]))
        assert await discovery.find() == {"http://10.0.0.1:9090"}


@pytest.mark.parametrize(("ready", "found"), [(True, {"http://10.0.0.1:8080"}), (False, {"http://[fd00::1]:8080"})])
async def test_a_pod_with_addresses_of_both_families_is_one_sandbox(
    tmp_path: Path, ready: bool, found: set[str]
) -> None:
    answer = slices([endpoint("fd00::1")], [endpoint("10.0.0.1", ready=ready)])
    answer["items"][0]["addressType"] = "IPv6"
    async with watching(tmp_path) as (server, discovery):
        server.answer = web.json_response(answer)
        assert await discovery.find() == found


async def test_watch_reports_a_change_and_reads_the_token_again(tmp_path: Path) -> None:
    async with watching(tmp_path) as (server, discovery):
        await discovery.find()
        (tmp_path / "token").write_text("second")
        change = asyncio.create_task(discovery.wait())
        await server.watched.wait()
        assert not change.done()
        server.event.set()
        await asyncio.wait_for(change, 60)
    assert server.seen[1].query["resourceVersion"] == "7"
    assert server.seen[1].headers["Authorization"] == "Bearer second"


@pytest.mark.parametrize(
    ("status", "body"), [(403, '{"message": "forbidden"}'), (200, "<html>"), (200, '{"items": 1}')]
)
async def test_invalid_answer_of_api_server_is_a_discovery_error(tmp_path: Path, status: int, body: str) -> None:
    async with watching(tmp_path) as (server, discovery):
        server.answer = web.Response(status=status, text=body)
        with pytest.raises(DiscoveryError, match="k8s:///judging/sandbox:http"):
            await discovery.find()


async def test_unreachable_api_server_is_a_discovery_error(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    discovery = EndpointSliceDiscovery("k8s:///a/b:80", ApiServer("http://127.0.0.1:1", tmp_path / "token"))
    with pytest.raises(DiscoveryError):
        await discovery.find()
    await discovery.close()
