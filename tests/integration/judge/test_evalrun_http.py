"""The client of `evalrun-sandbox` against a server that misbehaves in every way: each fault gets its type."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web

from evalrun_executor.api import CONTENT_TYPE, Busy, Limits, Refused, RunRequest, SandboxInfo, digest_inputs
from evalrun_judge.sandboxes import (
    RunRefusedError,
    SandboxBusyError,
    SandboxError,
    SandboxFailedError,
    SandboxTimeoutError,
    SandboxUnreachableError,
    evalrun_http,
)
from evalrun_judge.sandboxes.evalrun_http import EvalrunSandbox, timeout_seconds
from evalrun_judge.sandboxes.fake import echo, ended
from evalrun_judge.sandboxes.remote_inputs import WORTH_BYTES
from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.deadlines import HEADER, until
from evalrun_sandbox.kept_inputs import KeptInputs, UnknownInputs

REQUEST = RunRequest(language="python", code="print(input())", inputs=[b"\xff\x00 1", b""])
GOOD = msgspec.msgpack.encode(echo(REQUEST))

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(run: Handler, info: Handler | None = None) -> AsyncIterator[str]:
    app = web.Application(client_max_size=2**30)
    app.router.add_post("/v1/run", run)
    if info is not None:
        app.router.add_get("/v1/info", info)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def answering(status: int, body: bytes) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=status, body=body, content_type=CONTENT_TYPE)

    return handler


async def truncated(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": str(len(GOOD))})
    await response.prepare(request)
    await response.write(GOOD[: len(GOOD) // 2])
    assert request.transport is not None
    request.transport.close()
    return response


async def reset(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@pytest.mark.parametrize(("seconds", "told"), [(None, set()), (20.0, {"19", "20"}), (float("inf"), {"1000000"})])
async def test_caller_deadline_reaches_the_sandbox(seconds: float | None, told: set[str]) -> None:
    headers: list[str | None] = []

    async def run(request: web.Request) -> web.Response:
        headers.append(request.headers.get(HEADER))
        await request.read()
        return web.Response(body=GOOD, content_type=CONTENT_TYPE)

    async with serving(run) as url, EvalrunSandbox(url) as sandbox:
        async with until(None if seconds is None else asyncio.get_running_loop().time() + seconds):
            await asyncio.create_task(sandbox.run(REQUEST))  # as a hedge is
        await sandbox.run(REQUEST)
    assert {str(round(int(header) / 1000)) for header in headers[:1] if header is not None} <= told
    assert (headers[0] is None, headers[1]) == (seconds is None, None)


FAULTS: list[tuple[str, Handler, type[Exception], str]] = [
    ("500", answering(500, b"Traceback"), SandboxFailedError, "500"),
    ("503", answering(503, b""), SandboxFailedError, "503"),
    ("401", answering(401, b"who are you"), SandboxFailedError, "401"),
    ("not MessagePack", answering(200, b"<html>"), SandboxFailedError, "no answer"),
    ("half an answer", answering(200, GOOD[:-3]), SandboxFailedError, "no answer"),
    ("another type", answering(200, msgspec.msgpack.encode({"runs": 1})), SandboxFailedError, "no answer"),
    ("empty", answering(200, b""), SandboxFailedError, "no answer"),
    ("runs missing", answering(200, msgspec.msgpack.encode(msgspec.structs.replace(echo(REQUEST), runs=[ended()]))),
     SandboxFailedError, "1 runs for 2 inputs"),
    ("429", answering(429, msgspec.msgpack.encode(Busy(0, 250))), SandboxBusyError, "slot"),
    ("429 from a proxy", answering(429, b"slow down"), SandboxFailedError, "429"),
    ("400", answering(400, msgspec.msgpack.encode(Refused("unknown mode"))), RunRefusedError, "unknown mode"),
    ("truncated", truncated, SandboxUnreachableError, "127.0.0.1"),
    ("reset", reset, SandboxUnreachableError, "127.0.0.1"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "handler", "kind", "message"), FAULTS, ids=[row[0] for row in FAULTS])
async def test_every_fault_raises_its_error_class(
    what: str, handler: Handler, kind: type[Exception], message: str
) -> None:
    async with serving(handler) as url, EvalrunSandbox(url) as sandbox:
        with pytest.raises(kind, match=message) as error:
            await sandbox.run(REQUEST)
    assert type(error.value) is kind, what
    if isinstance(error.value, SandboxBusyError):
        assert error.value.retry_after_seconds == 0.25


async def test_unreachable_sandbox_is_an_error() -> None:
    async with EvalrunSandbox("http://127.0.0.1:1") as sandbox:
        with pytest.raises(SandboxUnreachableError):
            await sandbox.run(REQUEST)
        with pytest.raises(SandboxUnreachableError):
            await sandbox.describe()


async def test_a_good_answer_crosses_byte_for_byte_on_one_connection_with_the_token() -> None:
    seen: list[tuple[str | None, object, RunRequest]] = []

    async def handler(request: web.Request) -> web.Response:
        body = msgspec.msgpack.decode(await request.read(), type=RunRequest)
        seen.append((request.headers.get("Authorization"), request.transport, body))
        return web.Response(body=GOOD)

    async with serving(handler) as url, EvalrunSandbox(url + "/", tokens=BearerTokens("s3cret")) as sandbox:
        replies = [await sandbox.run(REQUEST) for _ in range(3)]
    assert [run.stdout for run in replies[0].runs] == [b"\xff\x00 1", b""]
    assert {token for token, _, _ in seen} == {"Bearer s3cret"}
    assert len({id(transport) for _, transport, _ in seen}) == 1
    assert all(body == REQUEST for _, _, body in seen)


async def test_sandbox_description_is_read() -> None:
    said = SandboxInfo("0.1.0", "full", 2, ["python"], "3.11.2")

    async def info(request: web.Request) -> web.Response:
        del request
        return web.Response(body=msgspec.json.encode(said), content_type="application/json")

    async with serving(reset, info) as url, EvalrunSandbox(url) as sandbox:
        assert (await sandbox.describe()).info == said


@pytest.mark.parametrize("info", [answering(404, b""), answering(200, b"pong"), reset])
async def test_describe_of_another_server_at_the_address_is_an_error(info: Handler) -> None:
    async with serving(reset, info) as url, EvalrunSandbox(url) as sandbox:
        with pytest.raises(SandboxError):
            await sandbox.describe()


async def test_a_cancelled_call_closes_its_connection() -> None:
    reached, gone = asyncio.Event(), asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        await request.read()
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
        return web.Response()

    async with serving(handler) as url, EvalrunSandbox(url) as sandbox:
        call = asyncio.create_task(sandbox.run(REQUEST))
        await reached.wait()
        call.cancel()
        await asyncio.wait_for(gone.wait(), 60)


async def test_a_hung_sandbox_is_a_timeout_of_the_sandbox() -> None:
    async def hang(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    async with serving(hang) as url, EvalrunSandbox(url, spare_seconds=0.2 - timeout_seconds(REQUEST)) as sandbox:
        with pytest.raises(SandboxTimeoutError):
            await sandbox.run(REQUEST)


def test_request_timeout_grows_with_the_number_of_inputs() -> None:
    one = RunRequest(language="python", code="", inputs=[b""], limits=Limits(time_seconds=10))
    many = RunRequest(language="python", code="", inputs=[b""] * 100, limits=Limits(time_seconds=10))
    assert timeout_seconds(one) >= evalrun_http.COMPILE_SECONDS + 2 * (2 * 10 + 5)
    assert timeout_seconds(many) - timeout_seconds(one) >= 99 * 25


async def test_a_large_program_arrives_whole_and_without_a_warning() -> None:
    large = RunRequest(language="python", code="", inputs=[bytes(range(256)) * 8192])
    seen: list[tuple[str | None, bytes]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.headers.get("Content-Length"), await request.read()))
        return web.Response(body=msgspec.msgpack.encode(echo(large)), content_type=CONTENT_TYPE)

    async with serving(handler) as url, EvalrunSandbox(url) as sandbox:
        await sandbox.run(large)
    wanted = msgspec.msgpack.encode(large)
    assert seen == [(str(len(wanted)), wanted)]


async def test_large_inputs_are_sent_once_and_again_only_to_a_restarted_sandbox() -> None:
    inputs = [bytes(range(256)) * 1024]
    large = RunRequest(language="python", code="", inputs=inputs, inputs_digest=digest_inputs(inputs))
    kept, bodies = [KeptInputs(1 << 20)], [0]

    async def info(request: web.Request) -> web.Response:
        del request
        return web.Response(body=msgspec.json.encode(SandboxInfo("1", "full", 2, ["python"], "3.11", keep_mib=1)))

    async def handler(request: web.Request) -> web.Response:
        body = await request.read()
        bodies.append(len(body))
        try:
            wanted = kept[0].whole(msgspec.msgpack.decode(body, type=RunRequest))
        except UnknownInputs as error:
            return web.Response(status=404, body=msgspec.msgpack.encode(Refused(str(error))))
        return web.Response(body=msgspec.msgpack.encode(echo(wanted)), content_type=CONTENT_TYPE)

    async with serving(handler, info) as url, EvalrunSandbox(url) as sandbox:
        await sandbox.describe()
        replies = [await sandbox.run(large) for _ in range(3)]
        kept[0] = KeptInputs(1 << 20)  # another pod, or the same started again
        replies += [await sandbox.run(large) for _ in range(2)]
    assert all(reply.runs[0].stdout == inputs[0] for reply in replies)
    assert [size > len(inputs[0]) for size in bodies[1:]] == [True, False, False, False, True, False]


async def test_older_sandbox_gets_requests_in_its_own_format() -> None:
    inputs = [bytes(WORTH_BYTES)]
    large = RunRequest(language="python", code="", inputs=inputs, inputs_digest=digest_inputs(inputs))
    seen: list[dict[str, object]] = []

    async def info(request: web.Request) -> web.Response:
        del request
        return web.Response(body=msgspec.json.encode(SandboxInfo("1", "full", 2, ["python"], "3.11", keep_mib=1)))

    async def handler(request: web.Request) -> web.Response:
        body = msgspec.msgpack.decode(await request.read())
        seen.append(body)
        if "inputs_digest" in body:
            return web.Response(status=400, body=msgspec.msgpack.encode(Refused("unknown field")))
        return web.Response(body=msgspec.msgpack.encode(echo(large)), content_type=CONTENT_TYPE)

    async with serving(handler, info) as url, EvalrunSandbox(url) as sandbox:
        await sandbox.describe()
        assert (await sandbox.run(large)).runs[0].stdout == inputs[0]
    assert seen[-1] == {"language": "python", "code": "", "inputs": inputs}
