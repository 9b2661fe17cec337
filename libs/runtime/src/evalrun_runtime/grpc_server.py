"""A gRPC server as every service wants it: health, reflection, a token, sizes and connection ages."""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from errno import EADDRINUSE
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from evalrun_runtime.grpc_channel import MAX_MESSAGE_BYTES
from evalrun_runtime.settings import ServiceSettings

CONNECTION_AGE_SECONDS = 60
"""Streams reopen after this long, so that new pods get their share (a gRPC stream sticks to one pod)."""

HANDSHAKE_SECONDS = 20.0
"""For a new connection's HTTP/2 preface: one that never sends it whole holds a descriptor, without any token."""

OPEN_METHODS = ("/grpc.health.v1.Health/",)
"""What the cluster's probes ask, without a token."""

REFLECTION = "grpc.reflection.v1alpha.ServerReflection"


class GrpcServer:
    """A grpc.aio server with health and reflection. `stop` reports NOT_SERVING first, then drains."""

    def __init__(
        self, settings: ServiceSettings, service_names: Sequence[str], handshake_seconds: float = HANDSHAKE_SECONDS
    ) -> None:
        interceptors = [] if settings.token is None else [TokenCheck(settings.token.get_secret_value())]
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
                ("grpc.so_reuseport", 0),  # two services asked for one port: the second must fail, not share it
            ],
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)
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
        """Bind and serve; gives the address as `grpc://host:port`. Raises OSError where the port is taken."""
        try:
            port = self.server.add_insecure_port(f"{self._settings.host}:{self._settings.port}")
        except RuntimeError as error:
            raise OSError(EADDRINUSE, str(error), f"{self._settings.host}:{self._settings.port}") from error
        await self.server.start()
        for name in self._names:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return f"grpc://{self._settings.host}:{port}"

    async def stop(self, grace: float) -> None:
        """Refuse new calls and let those in flight end within `grace` seconds."""
        await self._health.enter_graceful_shutdown()
        await self.server.stop(grace)


class TokenCheck(grpc.aio.ServerInterceptor):
    """Refuses calls without the run's token (UNAUTHENTICATED), health excepted."""

    def __init__(self, token: str) -> None:
        if not token.strip():
            raise ValueError("an empty token would let anyone in")
        self._expected = f"Bearer {token}"

        async def refuse(_requests: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "send the run's token as 'authorization: Bearer ...'")

        self._refusal: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(refuse)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Pass the call on if it is authorised."""
        given = dict(handler_call_details.invocation_metadata or ()).get("authorization", "")
        open_method = handler_call_details.method.startswith(OPEN_METHODS)
        if open_method or hmac.compare_digest(str(given).encode(), self._expected.encode()):
            return await continuation(handler_call_details)
        return self._refusal
