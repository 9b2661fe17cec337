"""Connects to a port of a pod through the API server like `kubectl port-forward`, but over a socket file.

The kubelet connects to the pod's loopback, so servers that listen on 127.0.0.1 there are reached too. Each connection
is a WebSocket of its own with two channels, data and errors; the first frame of each holds the port.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import httpx2
from httpx2.websockets import AsyncWebSocketSession, HTTPXWSException, WebSocketUpgradeError

logger = logging.getLogger(__name__)

PROTOCOL: Final = "v4.channel.k8s.io"
DATA, ERROR = 0, 1
PORT_BYTES: Final = 2
CHUNK: Final = 32 * 1024


@dataclass(frozen=True)
class Refusal:
    """Why a connection to a pod was refused."""

    code: int
    """HTTP status of the API server; 0 if nothing listens in the pod."""
    text: str


class PortForward:
    """Passes connections to a socket file on to a pod's port.

    Args:
        http: the client of the API server.
        namespace, pod, port: where connections lead.
    """

    def __init__(self, http: httpx2.AsyncClient, namespace: str, pod: str, port: int) -> None:
        self._http = http
        self._path = f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward"
        self._port = port
        self.refused: Refusal | None = None
        """Why the last connection was refused; None if it was not refused."""

    @asynccontextmanager
    async def open_socket(self) -> AsyncIterator[Path]:
        """Yield the socket file, which only this user can reach: a TCP port would be open to all users of the
        machine."""
        with TemporaryDirectory(prefix="evalrun-forward-") as directory:
            path = Path(directory) / "pod"
            passing: set[asyncio.Task[None]] = set()

            # A coroutine in its place would be a task that only asyncio knows. It would outlive the socket, since a pod
            # need not end its side, and Python 3.11 prints a traceback when the end of the loop cancels it.
            def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.create_task(self._pass_on(reader, writer))
                passing.add(task)
                task.add_done_callback(passing.discard)

            server = await asyncio.start_unix_server(accept, path)
            try:
                yield path
            finally:
                server.close()
                for task in passing:
                    task.cancel()
                await asyncio.gather(*passing, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._http.websocket(
                self._path, params={"ports": str(self._port)}, subprotocols=[PROTOCOL]
            ) as socket:
                self.refused = None
                sending = asyncio.create_task(_send(reader, socket))
                try:
                    await self._receive(socket, writer)
                finally:
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)
        # httpx2's session wraps what comes out of it into a group.
        except* WebSocketUpgradeError as group:
            codes = [each.response.status_code for each in group.exceptions if isinstance(each, WebSocketUpgradeError)]
            self.refused = Refusal(codes[0] if codes else 500, "the API server refuses")
        except* (HTTPXWSException, httpx2.HTTPError, ConnectionError) as group:
            logger.debug("connection to %s: %s", self._path, group.exceptions)
        finally:
            writer.close()

    async def _receive(self, socket: AsyncWebSocketSession, writer: asyncio.StreamWriter) -> None:
        """Pass on the bytes that the pod sends. The first frame of each channel holds the port alone."""
        begun = {DATA: False, ERROR: False}
        while True:
            frame = await socket.receive_bytes()
            channel, content = frame[0], frame[1:]
            if not begun.get(channel, True):
                begun[channel], content = True, content[PORT_BYTES:]
            if not content:
                continue
            if channel == ERROR:
                self.refused = Refusal(0, content.decode(errors="replace"))
                return
            writer.write(content)
            await writer.drain()


async def _send(reader: asyncio.StreamReader, socket: AsyncWebSocketSession) -> None:
    while content := await reader.read(CHUNK):
        await socket.send_bytes(bytes([DATA]) + content)
