"""An HTTP listener that gives a connection a few seconds for the head of its first request."""

import asyncio
from typing import Final

from aiohttp import web

HEAD_SECONDS: Final = 10.0
"""Without it, whoever can reach the port holds as many connections as the process has descriptors, with no token: half
a head is enough. After a request, aiohttp's own keep-alive time closes what sends no other."""
MAX_HEAD_BYTES: Final = 64 * 1024
END_OF_HEAD: Final = b"\r\n\r\n"


class HeadWatch(asyncio.Protocol):
    """Stands before the server's own protocol until the first head is whole, and cuts the connection if it is late."""

    def __init__(self, inner: asyncio.Protocol, seconds: float = HEAD_SECONDS) -> None:
        self._inner = inner
        self._seconds = seconds
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the time."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
            self._timer = asyncio.get_running_loop().call_later(self._seconds, transport.abort)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Look for the head's end; from there on the server's own protocol is asked directly."""
        self._head += data
        if END_OF_HEAD in self._head or len(self._head) > MAX_HEAD_BYTES:
            self._stop()
            if self._transport is not None:
                self._transport.set_protocol(self._inner)
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass it on."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """Pass it on."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """Pass it on."""
        self._stop()
        self._inner.connection_lost(error)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class WatchedSite(web.BaseSite):
    """As `web.TCPSite`, with a `HeadWatch` before each connection."""

    def __init__(self, runner: web.BaseRunner, host: str, port: int, head_seconds: float = HEAD_SECONDS) -> None:
        super().__init__(runner)
        self._host = host
        self._port = port
        self._head_seconds = head_seconds

    @property
    def name(self) -> str:
        """The address asked for."""
        return f"http://{self._host}:{self._port}"

    async def start(self) -> None:
        """Listen. Raises OSError where the port is taken."""
        await super().start()
        server = self._runner.server
        if server is None:
            raise RuntimeError("the runner is not set up")

        def watched() -> HeadWatch:
            return HeadWatch(server(), self._head_seconds)

        self._server = await asyncio.get_running_loop().create_server(
            watched, self._host, self._port, backlog=self._backlog
        )


async def serve(
    application: web.Application, host: str, port: int, *, drain_seconds: float
) -> tuple[web.AppRunner, str]:
    """Listen and return the runner with its address. A client that closes its connection cancels its request.

    Raises:
        OSError: the port is taken.
    """
    runner = web.AppRunner(application, handler_cancellation=True, access_log=None, shutdown_timeout=drain_seconds)
    await runner.setup()
    await WatchedSite(runner, host, port).start()
    bound, number = runner.addresses[0][:2]
    return runner, f"http://[{bound}]:{number}" if ":" in bound else f"http://{bound}:{number}"
