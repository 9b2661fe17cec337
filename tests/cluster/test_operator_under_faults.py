"""The operator while the API server answers badly: conflicts, timeouts before and after the work, 503, watches that
break or are too old. No run gets stuck, and none ends otherwise than in good weather.
"""

import asyncio
import json
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import kopf
import pytest
from builders.cluster.controlplane import ControlPlane
from builders.operator.evalruns import evalrun_manifest
from builders.operator.running_operator import (
    Run,
    ScriptedLedger,
    make_namespace,
    operator_kubeconfig,
    remove_namespace,
    serving_ledger,
)
from builders.operator.world import operator_settings
from prometheus_client import CollectorRegistry

from evalrun_operator.app import build_operator
from evalrun_operator.handlers import build_registry

NAMESPACE = "faults"
SEED = 20260131


class FaultyTransport(httpx2.AsyncBaseTransport):
    """Passes requests on to a real server, but for a share of them."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, chance: random.Random) -> None:
        self._inner = inner
        self._chance = chance
        self.faults = {"409": 0, "503": 0, "lost answer": 0, "no answer": 0, "broken watch": 0, "410": 0}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer, well or badly."""
        luck = self._chance.random()
        if "watch=true" in str(request.url):
            if luck < 0.3:
                return self._refusal(request, 410, "Expired", "410")
            response = await self._inner.handle_async_request(request)
            return httpx2.Response(
                response.status_code,
                headers=response.headers,
                stream=BrokenStream(response, self._chance.randrange(2, 40), self.faults),
                request=request,
            )
        if luck < 0.08:
            self.faults["no answer"] += 1
            raise httpx2.ConnectTimeout("made up", request=request)
        if luck < 0.14:
            return self._refusal(request, 503, "ServiceUnavailable", "503")
        if request.method != "GET" and luck < 0.30:
            return self._refusal(request, 409, "Conflict", "409")
        response = await self._inner.handle_async_request(request)
        if request.method != "GET" and luck < 0.36:
            self.faults["lost answer"] += 1
            await response.aread()
            raise httpx2.ReadTimeout("made up: the work is done", request=request)
        return response

    def _refusal(self, request: httpx2.Request, code: int, reason: str, fault: str) -> httpx2.Response:
        self.faults[fault] += 1
        status = {
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
            "message": f"made up: {reason}",
        }  # fmt: skip
        headers = {"Content-Type": "application/json"}
        return httpx2.Response(code, headers=headers, content=json.dumps(status).encode(), request=request)

    async def aclose(self) -> None:
        await self._inner.aclose()


class BrokenStream(httpx2.AsyncByteStream):
    """A watch that breaks after so many chunks."""

    def __init__(self, response: httpx2.Response, chunks: int, faults: dict[str, int]) -> None:
        self._response = response
        self._chunks = chunks
        self._faults = faults

    async def __aiter__(self) -> AsyncIterator[bytes]:
        count = 0
        async for chunk in self._response.aiter_raw():
            yield chunk
            count += 1
            if count >= self._chunks:
                self._faults["broken watch"] += 1
                raise httpx2.ReadError("made up: the connection broke")

    async def aclose(self) -> None:
        await self._response.aclose()


@asynccontextmanager
async def operator_in_this_process(plane: ControlPlane, ledger: str) -> AsyncIterator[FaultyTransport]:
    context = ssl.create_default_context(cafile=str(plane.ca_file))
    transport = FaultyTransport(httpx2.AsyncHTTPTransport(verify=context), random.Random(SEED))
    settings = operator_settings(
        namespace=[NAMESPACE], aggregator_address=ledger, poll_seconds=0.3, backoff_seconds=0.1, request_seconds=5
    )
    operator = build_operator(settings, transport=transport, registry=CollectorRegistry())
    stop, ready = asyncio.Event(), asyncio.Event()
    registry = build_registry(operator)
    running = asyncio.create_task(
        kopf.operator(registry=registry, standalone=True, namespaces=[NAMESPACE], stop_flag=stop, ready_flag=ready)
    )
    await asyncio.wait_for(ready.wait(), 90)
    try:
        yield transport
    finally:
        stop.set()
        await asyncio.wait_for(running, 90)


@pytest.fixture
def account(kuberay: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The operator's own rights, in the environment that its clients read."""
    path = operator_kubeconfig(kuberay)
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


async def test_no_run_gets_stuck_while_requests_fail(kuberay: ControlPlane, account: Path) -> None:
    del account
    await asyncio.to_thread(make_namespace, kuberay, NAMESPACE)
    ledger = ScriptedLedger()
    manifest = evalrun_manifest({"spec.output": {"url": "s3://bucket/x"}}, rollout=True)
    with serving_ledger(ledger) as address:
        async with operator_in_this_process(kuberay, address) as transport:
            run = await asyncio.to_thread(Run(kuberay, NAMESPACE, "faulty").create, manifest)
            await asyncio.to_thread(run.wait_for, "Generated", "False", "Generating", 90)
            await asyncio.to_thread(run.patch, {"suspend": True})
            await asyncio.to_thread(run.wait_for, "Suspended", "True", "", 90)
            assert await asyncio.to_thread(run.names, "rayclusters") == []
            await asyncio.to_thread(run.patch, {"suspend": False})
            await asyncio.to_thread(run.wait_for, "Generated", "False", "Generating", 90)
            ledger.generated = 164
            await asyncio.to_thread(run.wait_until, "the GPUs to be free", "rayclusters", [], 90)
            ledger.judged = 164
            await asyncio.to_thread(run.wait_for, "Succeeded", "True", "", 90)
            status = (await asyncio.to_thread(run.get))["status"]
        assert status["attempts"] == 1
        assert status["phase"] == "Succeeded"
        assert all(transport.faults.values()), transport.faults
    assert len(ledger.tokens) == 1
    await asyncio.to_thread(remove_namespace, kuberay, NAMESPACE)
