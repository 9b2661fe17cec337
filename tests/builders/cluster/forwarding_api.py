"""A double of the API server for one EvalRun: the run, its aggregator's pod, and a port-forward to a port of ours.

The port-forward speaks as the kubelet does (k8s.io/kubelet/pkg/cri/streaming/portforward/websocket.go): a WebSocket per
connection, a data and an error channel, whose first frames hold the port.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from evalrun_api import names

PROTOCOL = "v4.channel.k8s.io"
NOT_FOUND = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "message": "not found"}


class ForwardingApi:
    """What the double answers with; a test changes it while it runs.

    Args:
        run: the EvalRun as JSON, with uid, in namespace evals.
        port: of this machine, where the pod's port leads.
    """

    def __init__(self, run: dict[str, Any], port: int) -> None:
        self.run = run
        self.others: list[dict[str, Any]] = []
        """EvalRuns that are listed beside it."""
        self.port = port
        self.has_pod = True
        self.may_list = True
        self.is_forbidden = False
        self.is_away = False
        self.answers = asyncio.Event()
        """Cleared: requests wait."""
        self.answers.set()
        self.gets = 0
        """Of the EvalRun itself."""
        self.execs_held = 0
        """Commands in the pod that were asked for, none of which is answered."""
        self._sockets: set[web.WebSocketResponse] = set()

    async def cut(self) -> None:
        """Break every connection to the pod."""
        for socket in list(self._sockets):
            await socket.close()

    def application(self) -> web.Application:
        """Return what is served."""

        @web.middleware
        async def reachable(request: web.Request, handler: Any) -> web.StreamResponse:
            await self.answers.wait()
            if self.is_away:
                return web.Response(status=503, text="the API server is away")
            answer: web.StreamResponse = await handler(request)
            return answer

        app = web.Application(middlewares=[reachable])
        pods = "/api/v1/namespaces/evals/pods"
        app.add_routes(
            [
                web.get("/apis/evalrun.dev/v1alpha1/namespaces/evals/evalruns/{name}", self._run),
                web.get("/apis/evalrun.dev/v1alpha1/namespaces/evals/evalruns", self._runs),
                web.get(pods, self._pods),
                web.get(f"{pods}/{{pod}}/portforward", self.forward),
                web.get(f"{pods}/{{pod}}/exec", self._hold),
            ]
        )
        return app

    async def _run(self, request: web.Request) -> web.StreamResponse:
        self.gets += 1
        if request.match_info["name"] != self.run["metadata"]["name"]:
            return _json({**NOT_FOUND, "details": {"name": request.match_info["name"]}}, status=404)
        return _json(self.run)

    async def _runs(self, _: web.Request) -> web.StreamResponse:
        if not self.may_list:
            return _json({**NOT_FOUND, "code": 403, "message": "evalruns is forbidden"}, status=403)
        return _json(
            {
                "kind": "EvalRunList",
                "apiVersion": "evalrun.dev/v1alpha1",
                "metadata": {},
                "items": [self.run, *self.others],
            }
        )

    async def _pods(self, request: web.Request) -> web.StreamResponse:
        pod = {
            "metadata": {"name": "run-aggregator-0", "labels": {names.COMPONENT_LABEL: names.AGGREGATOR}},
            "spec": {"containers": [{"name": "aggregator"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
        items = [pod] if self.has_pod else []
        return _json({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})

    async def _hold(self, _: web.Request) -> web.StreamResponse:
        self.execs_held += 1
        await asyncio.Event().wait()
        raise web.HTTPServiceUnavailable

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Pass a connection to a pod's port on."""
        if self.is_forbidden:
            return _json({**NOT_FOUND, "code": 403, "message": "pods/portforward is forbidden"}, status=403)
        asked = request.query.get("ports", request.query.get("port"))  # of the API server, of a kubelet
        assert asked == str(names.SAMPLES_PORT)
        socket = web.WebSocketResponse(protocols=[PROTOCOL])
        await socket.prepare(request)
        self._sockets.add(socket)
        for channel in (0, 1):
            await socket.send_bytes(bytes([channel]) + names.SAMPLES_PORT.to_bytes(2, "little"))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError as error:
            await socket.send_bytes(bytes([1]) + f"failed to connect to localhost: {error}".encode())
            await socket.close()
            return socket
        sending = asyncio.create_task(_send(reader, socket))
        async for message in socket:
            if message.type is WSMsgType.BINARY and message.data[0] == 0:
                writer.write(message.data[1:])
                await writer.drain()
        sending.cancel()
        writer.close()
        self._sockets.discard(socket)
        return socket


def _json(content: dict[str, Any], status: int = 200) -> web.Response:
    # Without a charset, as the API server's own: lightkube compares the whole header.
    return web.Response(body=json.dumps(content).encode(), content_type="application/json", status=status)


async def _send(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
    while content := await reader.read(32 * 1024):
        await socket.send_bytes(bytes([0]) + content)


@asynccontextmanager
async def kubelet_served(api: ForwardingApi, tls: ssl.SSLContext) -> AsyncIterator[int]:
    """Serve the port-forward alone as a node's kubelet does, for a real API server; give the port."""
    app = web.Application()
    app.router.add_get("/portForward/{namespace}/{pod}", api.forward)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield runner.addresses[0][1]
    finally:
        await api.cut()
        await runner.cleanup()


@asynccontextmanager
async def api_served(api: ForwardingApi, directory: Path) -> AsyncIterator[Path]:
    """Serve the double, and give a kubeconfig for it."""
    runner = web.AppRunner(api.application(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        config = directory / "kubeconfig"
        config.write_text(json.dumps(_kubeconfig(runner.addresses[0][1])))
        yield config
    finally:
        await api.cut()
        await runner.cleanup()


def _kubeconfig(port: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "me", "user": {"token": "mine"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "me", "namespace": "evals"}}],
    }  # fmt: skip
