"""An HTTP listener that gives a connection a few seconds for its handshake and the head of its first request."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, cast

from aiohttp import web

from evalrun_runtime.connections.tls_files import TlsFiles, make_listener_context
from evalrun_runtime.settings import ServiceSettings

HEAD_SECONDS: Final = 10.0
"""Without it, whoever can reach the port holds as many connections as the process has descriptors, with no token: half
a head is enough. After a request, aiohttp's own keep-alive time closes what sends no other."""
MAX_HEAD_BYTES: Final = 64 * 1024
END_OF_HEAD: Final = b"\r\n\r\n"
AT_ONCE_SECONDS: Final = 0.001
"""Seconds of a drain that waits for no request: aiohttp takes 0 for a drain without end."""
MAX_WAITING_CONNECTIONS: Final = 4096
"""Connections that the kernel holds until the event loop takes them. With aiohttp's 128 it drops the rest of a burst,
and each of their clients tries again a second or more later. `net.core.somaxconn`, 4096 by default, bounds it too."""


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
        # uvloop's transport is no asyncio.Transport by its class.
        self._transport = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._transport.abort)
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
    """A `web.TCPSite` with a `HeadWatch` before each connection."""

    def __init__(
        self,
        runner: web.BaseRunner,
        host: str,
        port: int,
        head_seconds: float = HEAD_SECONDS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(runner, ssl_context=tls, backlog=MAX_WAITING_CONNECTIONS)
        self._host = host
        self._port = port
        self._head_seconds = head_seconds

    @property
    def name(self) -> str:
        """The address asked for."""
        return _url(self._host, self._port, self._ssl_context)

    async def start(self) -> None:
        """Listen. Raises OSError where the port is taken."""
        await super().start()
        server = self._runner.server
        if server is None:
            raise RuntimeError("the runner is not set up")

        def make_watch() -> HeadWatch:
            return HeadWatch(server(), self._head_seconds)

        self._server = await asyncio.get_running_loop().create_server(
            make_watch,
            self._host,
            self._port,
            backlog=self._backlog,
            ssl=self._ssl_context,
            ssl_handshake_timeout=None if self._ssl_context is None else self._head_seconds,
        )


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpServer:
    """Serves an application as the service's settings say: where, with which certificates, health on which port.

    Args:
        application: the application to serve.
        settings: the service's own.
        health: path and handler of health checks, for the health port, which serves nothing else.
        cancel_handlers: a client that closes its connection cancels its request.

    Raises:
        BadInputError: the certificates cannot be used.
    """

    def __init__(
        self,
        application: web.Application,
        settings: ServiceSettings,
        health: tuple[str, Handler],
        *,
        cancel_handlers: bool = True,
    ) -> None:
        path, handler = health
        probed = web.Application()
        probed.router.add_get(path, handler)
        self._settings = settings
        tls = TlsFiles.load(settings.tls_folder)
        self._tls = None if tls is None else make_listener_context(tls)
        self._runner = web.AppRunner(
            application,
            handler_cancellation=cancel_handlers,
            access_log=None,
            shutdown_timeout=max(settings.drain_seconds, AT_ONCE_SECONDS),
        )
        self._probed = web.AppRunner(probed, access_log=None, shutdown_timeout=AT_ONCE_SECONDS)

    async def start(self) -> str:
        """Listen and return the address. Raises OSError where a port is taken."""
        settings = self._settings
        try:
            if settings.health_port is not None:
                await self._probed.setup()
                await WatchedSite(self._probed, settings.host, settings.health_port).start()
            await self._runner.setup()
            await WatchedSite(self._runner, settings.host, settings.port, tls=self._tls).start()
        except OSError:
            await self.stop()
            raise
        host, port = self._runner.addresses[0][:2]
        return _url(host, port, self._tls)

    async def stop(self) -> None:
        """Refuse new connections, wait for requests in flight, then end."""
        await self._runner.cleanup()
        await self._probed.cleanup()


def _url(host: str, port: int, tls: ssl.SSLContext | None) -> str:
    scheme = "http" if tls is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
