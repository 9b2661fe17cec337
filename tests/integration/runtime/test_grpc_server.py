"""A gRPC server of the runtime: health, reflection and the token, over a real connection."""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health_pb2

from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.connections.grpc_channel import open_channel, token_metadata
from evalrun_runtime.connections.grpc_server import GrpcServer
from evalrun_runtime.settings import ServiceSettings

NAME = "evalrun.example.Echo"


async def echo(request: bytes, context: object) -> bytes:
    del context
    return request


@pytest.fixture
async def address() -> AsyncIterator[str]:
    server = GrpcServer(ServiceSettings(token="s3cret"), [])
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {"Say": grpc.unary_unary_rpc_method_handler(echo)}
    server.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, handlers),))
    yield await server.start()
    await server.stop(0)


async def test_a_call_with_the_token_passes_and_one_without_does_not(address: str) -> None:
    async with open_channel(address) as channel:
        say: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{NAME}/Say")
        assert await say(b"hello", metadata=token_metadata(BearerTokens("s3cret"))) == b"hello"
        for metadata in (
            (),
            token_metadata(BearerTokens("other")),
            (("authorization", "Bearer "),),
            (("authorization", "Bearer"),),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await say(b"hello", metadata=metadata)
            assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_of_thousands_of_calls_at_once_none_is_cancelled(address: str) -> None:
    """gRPC's own limit on calls that wait for the event loop would cancel some of them without a reason."""
    async with open_channel(address) as channel:
        say: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{NAME}/Say")
        metadata = token_metadata(BearerTokens("s3cret"))
        answers = await asyncio.gather(*(say(b"%d" % number, metadata=metadata) for number in range(4000)))
    assert answers == [b"%d" % number for number in range(4000)]


async def test_health_needs_no_token(address: str) -> None:
    async with open_channel(address) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        answer = await check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_reflection_needs_the_token(address: str) -> None:
    """What a service is made of is nobody's business who may not call it."""
    async with open_channel(address) as channel:
        ask: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        )
        list_services = b"\x3a\x01*"
        with pytest.raises(grpc.aio.AioRpcError) as error:
            # It sends nothing: a message written while the refusal arrives makes grpcio's client report INTERNAL.
            await ask().read()
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
        told = [answer async for answer in ask(iter([list_services]), metadata=token_metadata(BearerTokens("s3cret")))]
        assert b"grpc.health.v1.Health" in told[0]


async def test_taken_port_is_an_error_that_names_the_port(address: str) -> None:
    port = int(address.rpartition(":")[2])
    with pytest.raises(OSError, match=str(port)):
        await GrpcServer(ServiceSettings(port=port), []).start()


@pytest.mark.parametrize("sent", [b"", b"PRI * HTTP/2.0\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0"])
async def test_a_handshake_that_is_never_finished_is_closed(sent: bytes) -> None:
    server = GrpcServer(ServiceSettings(token="s3cret"), [], handshake_seconds=0.2)
    host, _, port = (await server.start()).removeprefix("grpc://").rpartition(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        try:
            while await reader.read(4096):  # its own settings may come first
                pass
        except ConnectionResetError:
            pass
        writer.close()
    finally:
        await server.stop(0)
