"""Mutual TLS on real sockets, over gRPC and HTTP: who is refused, and a rotation under load."""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import asyncio
import secrets
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import grpc
import pytest
from aiohttp import web
from builders.ports import free_port
from builders.tls_directories import PARTS, TlsDirectory, authority, shown
from grpc_health.v1 import health_pb2

from evalrun_judge.sandboxes.http_calls import HttpCalls
from evalrun_operator.certificates.issuing import VALID_FOR, Issued, Usage, issue
from evalrun_runtime.connections.grpc_channel import open_channel
from evalrun_runtime.connections.grpc_server import GrpcServer
from evalrun_runtime.connections.http_site import HttpServer
from evalrun_runtime.connections.tls_files import TlsFiles
from evalrun_runtime.connections.tls_remedies import add_remedy
from evalrun_runtime.exits import BadInputError
from evalrun_runtime.settings import ServiceSettings

NAME = "evalrun.example.Echo"
Call = Callable[[], Awaitable[bytes]]
REFUSED = (grpc.aio.AioRpcError, OSError, aiohttp.ClientError)


async def echo(request: bytes, context: object) -> bytes:
    del context
    return request


async def pong(request: web.Request) -> web.Response:
    del request
    return web.Response(body=b"pong")


@asynccontextmanager
async def grpc_server(directory: Path | None, health_port: int | None = None) -> AsyncIterator[str]:
    server = GrpcServer(ServiceSettings(tls_folder=directory, health_port=health_port), [])
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {"Say": grpc.unary_unary_rpc_method_handler(echo)}
    server.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, handlers),))
    try:
        yield await server.start()
    finally:
        await server.stop(0)


@asynccontextmanager
async def http_server(directory: Path | None, health_port: int | None = None) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_get("/say", pong)
    settings = ServiceSettings(tls_folder=directory, health_port=health_port, drain_seconds=0)
    server = HttpServer(application, settings, ("/v1/ping", pong))
    try:
        yield await server.start()
    finally:
        await server.stop()


async def say(channel: grpc.aio.Channel) -> bytes:
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{NAME}/Say")
    return await call(b"pong", timeout=60)


async def over_grpc(address: str, directory: Path | None) -> bytes:
    async with open_channel(address, TlsFiles.load(directory)) as channel:
        return await say(channel)


def http_calls(address: str, directory: Path | None, server_name: str | None = None) -> HttpCalls:
    return HttpCalls(address, {}, connect_seconds=60, tls=TlsFiles.load(directory), server_name=server_name)


async def over_http(address: str, directory: Path | None, server_name: str | None = None) -> bytes:
    calls = http_calls(address if directory is not None else address.replace("https", "http"), directory, server_name)
    try:
        _, body = await calls.call("GET", "/say", max_seconds=60, max_bytes=1000)
    finally:
        await calls.close()
    return body


@pytest.mark.parametrize(("serve", "ask"), [(grpc_server, over_grpc), (http_server, over_http)])
async def test_only_a_certificate_of_the_same_authority_opens_a_port(
    tmp_path: Path,
    serve: Callable[[Path], AbstractAsyncContextManager[str]],
    ask: Callable[[str, Path | None], Awaitable[bytes]],
) -> None:
    own, other = authority(), authority()
    server = TlsDirectory(tmp_path / "server").write("server", own)
    async with serve(server) as address:
        assert await ask(address, TlsDirectory(tmp_path / "client").write("client", own)) == b"pong"
        refused = {
            "no TLS": None,
            "another authority's": TlsDirectory(tmp_path / "other").write("client", other, own),
            "a server's, which may not call": TlsDirectory(tmp_path / "sandbox").write("server", own),
            "a server that it does not know": TlsDirectory(tmp_path / "wary").write("client", own, other),
        }
        for directory in refused.values():
            with pytest.raises(REFUSED):
                await ask(address, directory)
        with pytest.raises(REFUSED):
            await shows_nothing(address, own)


REMEDIES = {
    "the server's has expired": "renew the server's certificate",
    "the server's is of another authority": "of no authority in the caller's ca.crt",
    "the server's names another host": "must name the host that it is called by",
    "the server's may not serve": "needs the usage 'server auth'",
    "the server has none": "the server speaks plain text",
    "the caller's has expired": "of no authority in the server's ca.crt",
    "the caller's is of another authority": "of no authority in the server's ca.crt",
    "the caller's may not call": "lacks the usage 'client auth'",
}
"""By what is wrong with whose certificate, a part of what the caller is told to do."""


@pytest.mark.parametrize("kind", ["grpc", "http"])
async def test_connection_that_fails_by_its_certificates_names_the_remedy(tmp_path: Path, kind: str) -> None:
    own, other = authority(), authority()
    long_ago = datetime.now(UTC) - 2 * VALID_FOR
    expired = issue("evalrun test", PARTS, long_ago, secrets.token_hex(32))
    elsewhere = issue("evalrun test", {**PARTS, "server": Usage(["judge.ns.svc"])}, datetime.now(UTC), "another seed")

    def directory(part: str, issued: Issued, trusted: Issued = own) -> Path:
        return TlsDirectory(tmp_path / secrets.token_hex(4)).write(part, issued, trusted)

    sides = {
        "the server's has expired": (directory("server", expired), directory("client", own, expired)),
        "the server's is of another authority": (directory("server", other), directory("client", own)),
        "the server's names another host": (directory("server", elsewhere), directory("client", own, elsewhere)),
        "the server's may not serve": (directory("client", own), directory("client", own)),
        "the server has none": (None, directory("client", own)),
        "the caller's has expired": (directory("server", own, expired), directory("client", expired, own)),
        "the caller's is of another authority": (directory("server", own), directory("client", other)),
        "the caller's may not call": (directory("server", own), directory("server", own)),
    }
    told = {}
    for wrong, (server, client) in sides.items():
        async with (grpc_server if kind == "grpc" else http_server)(server) as address:
            told[wrong] = add_remedy(await cause_of_failure(kind, address, client))
    assert {wrong: text for wrong, text in told.items() if REMEDIES[wrong] not in text} == {}


async def cause_of_failure(kind: str, address: str, client: Path) -> str:
    try:
        if kind == "grpc":
            await over_grpc(address, client)
        else:
            await over_http(address.replace("http:", "https:"), client)
    except grpc.aio.AioRpcError as error:
        return str(error.details())
    except OSError as error:
        return str(error)
    return "it was answered"


async def shows_nothing(address: str, own: Issued) -> None:
    host, _, port = address.partition("://")[2].rpartition(":")
    context = ssl.create_default_context(cadata=own.authority)
    context.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    writer.write(b"GET /say HTTP/1.1\r\nHost: a\r\n\r\n")
    try:
        if await reader.read(1) == b"":
            raise ConnectionError("closed")
    finally:
        writer.close()


async def test_a_server_found_by_address_must_have_the_name_of_its_service(tmp_path: Path) -> None:
    own = authority()
    client = TlsDirectory(tmp_path / "client").write("client", own)
    async with http_server(TlsDirectory(tmp_path / "server").write("server", own)) as address:
        assert await over_http(address, client, "sandbox.ns.svc") == b"pong"
        with pytest.raises(ssl.SSLCertVerificationError, match=r"judge\.ns\.svc"):
            await over_http(address, client, "judge.ns.svc")


@pytest.mark.parametrize("kind", ["grpc", "http"])
async def test_certificates_and_their_authority_change_under_load_and_no_call_is_lost(
    tmp_path: Path, kind: str
) -> None:
    old, new = authority(), authority()
    servers, clients = TlsDirectory(tmp_path / "server"), TlsDirectory(tmp_path / "client")
    server, client = servers.write("server", old), clients.write("client", old)
    answers: list[bytes] = []
    over = asyncio.Event()
    tls = TlsFiles(client)

    async with (
        (grpc_server if kind == "grpc" else http_server)(server) as address,
        open_channel(address, tls) as channel,
    ):
        calls = http_calls(address, client) if kind == "http" else None

        async def ask() -> bytes:
            if calls is None:
                return await say(channel)
            return (await calls.call("GET", "/say", max_seconds=60, max_bytes=1000))[1]

        async def load() -> None:
            while not over.is_set():
                answers.append(await ask())

        async def answered(more: int) -> None:
            wanted = len(answers) + more
            while len(answers) < wanted:  # noqa: ASYNC110 - the load brings it about
                await asyncio.sleep(0.01)

        async with asyncio.timeout(300), asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(load())
            await answered(20)
            for issued, trusted in ((old, (old, new)), (new, (new, old)), (new, (new,))):
                servers.write("server", issued, *trusted)
                clients.write("client", issued, *trusted)
                await taken(server, address)
                await answered(20)
            over.set()
        if calls is not None:
            await calls.close()
        assert set(answers) == {b"pong"}
        stale = TlsDirectory(tmp_path / "stale").write("client", old, new)
        with pytest.raises(REFUSED):
            await (over_grpc if kind == "grpc" else over_http)(address, stale)


async def taken(server: Path, address: str) -> None:
    """Wait until both sides have looked: no step of a rotation begins before all have taken the last one."""
    await asyncio.sleep(1.2)  # they look once a second
    wanted = ssl.PEM_cert_to_DER_cert((server / "tls.crt").read_text())
    while await shown(address) != wanted:  # noqa: ASYNC110 - a handshake makes the server look
        await asyncio.sleep(0.05)


async def test_health_answers_in_plain_text_on_a_port_that_answers_nothing_else(tmp_path: Path) -> None:
    directory, port = TlsDirectory(tmp_path / "server").write("server", authority()), free_port()
    async with grpc_server(directory, port), open_channel(f"127.0.0.1:{port}") as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        assert (await check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await say(channel)
        assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
    port = free_port()
    async with http_server(directory, port), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        async with session.get("/v1/ping") as answer:
            assert (answer.status, await answer.read()) == (200, b"pong")
        async with session.get("/say") as answer:
            assert answer.status == 404


def test_unusable_tls_files_are_named(tmp_path: Path) -> None:
    own = authority()
    directory = TlsDirectory(tmp_path / "tls").write("server", own)
    for text in ("nothing", ""):
        (directory / "ca.crt").write_text(text)
        with pytest.raises(BadInputError, match=r"ca\.crt holds no certificates"):
            TlsFiles(directory)
    (directory / "tls.key").write_text(own.by_part["client"].key)
    with pytest.raises(BadInputError, match=r"tls\.crt and tls\.key are no certificate and its key"):
        TlsFiles(directory)
    (directory / "tls.key").write_text("")
    with pytest.raises(BadInputError, match=r"no certificate and its key: one of them is not PEM"):
        TlsFiles(directory)
    (directory / "tls.crt").unlink()
    with pytest.raises(BadInputError, match=r"tls\.crt: No such file"):
        TlsFiles(directory)
