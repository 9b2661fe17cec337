"""A gRPC server as every service wants it: health, reflection, a token, mutual TLS, sizes and connection ages."""

# grpcio's stubs are generic, its classes are not.
from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from errno import EADDRINUSE
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.connections.grpc_channel import MAX_MESSAGE_BYTES
from evalrun_runtime.connections.tls_files import TlsFiles, TlsIdentity, TlsSource
from evalrun_runtime.settings import ServiceSettings

CONNECTION_AGE_SECONDS = 60
"""Streams reopen after this long, so that new pods get their share (a gRPC stream sticks to one pod)."""

HANDSHAKE_SECONDS = 20.0
"""For a new connection's HTTP/2 preface: one that never sends it whole holds a descriptor, without any token."""

MAX_WAITING_CALLS = 65_536
"""Calls that have arrived and wait for the event loop. gRPC cancels some of them from 1,000 on and all from 3,000 on,
without a word that the caller could act upon: of 3,000 calls sent at once, 545 were lost. Here each is refused by its
service, which says when to come again. What waits is bounded by the connections' flow control too."""

OPEN_METHODS = ("/grpc.health.v1.Health/",)
"""Methods that the cluster's probes call without a token."""

REFLECTION = "grpc.reflection.v1alpha.ServerReflection"


class GrpcServer:
    """A grpc.aio server with health and reflection. `stop` reports NOT_SERVING first, then drains."""

    def __init__(
        self,
        settings: ServiceSettings,
        service_names: Sequence[str],
        handshake_seconds: float = HANDSHAKE_SECONDS,
        *,
        own_tokens: Mapping[str, BearerTokens] | None = None,
    ) -> None:
        """Create the server; it listens once started.

        Args:
            settings: the service's own.
            service_names: for health and reflection.
            handshake_seconds: for a new connection's first bytes.
            own_tokens: by method, as `/package.Service/Method`, tokens that it accepts instead of the service's.
        """
        tokens = BearerTokens.load(settings.token, settings.token_file)
        interceptors = [] if tokens is None else [TokenCheck(tokens, own_tokens)]
        self._tls = TlsFiles.load(settings.tls_folder)
        self._settings = settings
        self._names = [*service_names, health.SERVICE_NAME]
        self._health = health.aio.HealthServicer()
        self.server = grpc.aio.server(
            interceptors=interceptors,
            options=[
                ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.server_handshake_timeout_ms", int(handshake_seconds * 1000)),
                ("grpc.max_connection_age_ms", CONNECTION_AGE_SECONDS * 1000),
                ("grpc.max_connection_age_grace_ms", int(settings.drain_seconds * 1000)),
                ("grpc.server.max_pending_requests", MAX_WAITING_CALLS),
                ("grpc.server.max_pending_requests_hard_limit", MAX_WAITING_CALLS),
                # Where two services are told the same port, the second must fail, not share it.
                ("grpc.so_reuseport", 0),
            ],
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)
        self._probed: grpc.aio.Server | None = None
        describe: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self._describe)
        handlers = {"ServerReflectionInfo": describe}
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(REFLECTION, handlers),))

    async def _describe(
        self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[bytes]:
        """Answer reflection. Its package is imported here since few ask: it took a start 0.04 CPU seconds."""
        from grpc_reflection.v1alpha import reflection, reflection_pb2

        servicer = reflection.aio.ReflectionServicer([*self._names, REFLECTION])
        parsed = (reflection_pb2.ServerReflectionRequest.FromString(request) async for request in requests)
        async for answer in servicer.ServerReflectionInfo(parsed, context):  # type: ignore[attr-defined]  # its stub says coroutine
            yield answer.SerializeToString()

    async def start(self) -> str:
        """Bind and serve. Return the address as `grpc://host:port`. Raises OSError where a port is taken."""
        host, health_port = self._settings.host, self._settings.health_port
        credentials = None if self._tls is None else server_credentials(self._tls)
        port = _bind(self.server, f"{host}:{self._settings.port}", credentials)
        if health_port is not None:
            self._probed = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
            health_pb2_grpc.add_HealthServicer_to_server(self._health, self._probed)
            _bind(self._probed, f"{host}:{health_port}", None)
            await self._probed.start()
        await self.server.start()
        for name in self._names:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return f"grpc://{host}:{port}"

    async def stop(self, grace: float) -> None:
        """Refuse new calls and let those in flight end within `grace` seconds."""
        await self._health.enter_graceful_shutdown()
        await self.server.stop(grace)
        if self._probed is not None:
            await self._probed.stop(0)


def _bind(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    """Listen and return the port. Raises OSError where it is taken."""
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise OSError(EADDRINUSE, str(error), address) from error


def server_credentials(tls: TlsSource) -> grpc.ServerCredentials:
    """Return a server's credentials: each handshake takes the identity of that moment, and asks for the client's."""

    def configuration(identity: TlsIdentity) -> grpc.ServerCertificateConfiguration:
        pairs = [(identity.key, identity.certificate)]
        return grpc.ssl_server_certificate_configuration(pairs, identity.authorities)

    return grpc.dynamic_ssl_server_credentials(
        configuration(tls.current), lambda: configuration(tls.current), require_client_authentication=True
    )


class TokenCheck(grpc.aio.ServerInterceptor):
    """Refuses calls without a token of the service or, where it has its own, of the method (UNAUTHENTICATED), health
    excepted."""

    def __init__(self, tokens: BearerTokens, own_tokens: Mapping[str, BearerTokens] | None = None) -> None:
        self._tokens = tokens
        self._own_tokens = own_tokens or {}

        async def refuse(_requests: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            await context.abort(
                grpc.StatusCode.UNAUTHENTICATED, "send this service's token as 'authorization: Bearer ...'"
            )

        self._refusal: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(refuse)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Pass the call on if it is authorised."""
        given = dict(handler_call_details.invocation_metadata or ()).get("authorization", "")
        method = handler_call_details.method
        if method.startswith(OPEN_METHODS) or self._own_tokens.get(method, self._tokens).accept(str(given)):
            return await continuation(handler_call_details)
        return self._refusal
