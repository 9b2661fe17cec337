"""The connections of the HTTP client: when one is used again, and when it is not."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from evalrun_judge.sandboxes.http_answer import BadAnswerError
from evalrun_judge.sandboxes.http_calls import HttpCalls

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Gives every request of every connection the same bytes back."""

    def __init__(self, answer: bytes = OK, *, read_body: bool = True, close: bool = False) -> None:
        self._answer, self._read_body, self._close = answer, read_body, close
        self.heads: list[bytes] = []
        self.connections = 0
        self.reached, self.ended = asyncio.Event(), asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            served = 0
            while served == 0 or not self._close:
                head = await reader.readuntil(b"\r\n\r\n")
                served += 1
                self.heads.append(head)
                self.reached.set()
                if self._read_body:
                    await reader.readexactly(int(head.partition(b"Content-Length: ")[2].partition(b"\r")[0]))
                writer.write(self._answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self.ended.set()


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[HttpCalls]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    calls = HttpCalls(f"http://127.0.0.1:{port}/base/", {"Authorization": "Bearer x"}, connect_seconds=5)
    try:
        yield calls
    finally:
        await calls.close()
        server.close()
        await server.wait_closed()


async def post(
    calls: HttpCalls, body: bytes = b"body", max_seconds: float = 10, max_bytes: int = 100
) -> tuple[int, bytes]:
    return await calls.call("POST", "/v1/run", body, max_seconds=max_seconds, max_bytes=100, headers={"X": "y"})


async def test_calls_in_turn_share_a_connection_and_calls_at_once_do_not() -> None:
    server = Server()
    async with serving(server) as calls:
        for _ in range(3):
            assert await post(calls) == (200, b"ok")
        assert server.connections == 1
        await asyncio.gather(post(calls), post(calls), post(calls))
        assert server.connections == 3
    first = server.heads[0].decode().split("\r\n")
    assert first[0] == "POST /base/v1/run HTTP/1.1"
    assert {"Authorization: Bearer x", "X: y", "Content-Length: 4"} <= set(first)
    assert [line for line in first if line.startswith("Host: 127.0.0.1:")]


async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    server = Server(close=True)
    async with serving(server) as calls:
        await post(calls)
        await server.ended.wait()
        with suppress(ConnectionError):  # where its end has not arrived yet, this call learns of it
            await post(calls)
        assert await post(calls) == (200, b"ok")
    assert server.connections >= 2


@pytest.mark.parametrize(
    "answer", [OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), OK + b"more", b"HTTP/1.1 x\r\n\r\n"]
)
async def test_a_connection_in_doubt_is_closed(answer: bytes) -> None:
    server = Server(answer)
    async with serving(server) as calls:
        for _ in range(2):
            try:
                assert await post(calls) == (200, b"ok")
            except BadAnswerError:
                assert answer.startswith(b"HTTP/1.1 x")
            await server.ended.wait()
    assert server.connections == 2


async def test_answer_before_the_request_was_sent_completely_closes_the_connection() -> None:
    server = Server(read_body=False, close=True)
    async with serving(server) as calls:
        assert await post(calls, body=bytes(64 << 20)) == (200, b"ok")
        assert await post(calls, body=b"") == (200, b"ok")
    assert server.connections == 2


async def test_a_call_whose_time_is_up_closes_its_connection() -> None:
    server = Server(b"HTTP/1.1 200 OK\r\n")
    async with serving(server) as calls:
        with pytest.raises(TimeoutError):
            await post(calls, max_seconds=0.05)
        await asyncio.wait_for(server.ended.wait(), 5)


async def test_closing_ends_the_calls_in_flight() -> None:
    server = Server(b"HTTP/1.1 200 OK\r\n")
    async with serving(server) as calls:
        call = asyncio.create_task(post(calls))
        await server.reached.wait()
        await calls.close()
        with pytest.raises(ConnectionError):
            await call


async def test_an_answer_of_more_than_may_be_is_not_read() -> None:
    async with serving(Server(b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n")) as calls:
        with pytest.raises(BadAnswerError, match="101"):
            await post(calls)


@pytest.mark.parametrize(
    ("url", "header"), [("ftp://a", "x"), ("http://", "x"), ("http://a", "x\r\nHost: b"), ("http://a", "é")]
)
def test_invalid_url_or_header_is_refused(url: str, header: str) -> None:
    with pytest.raises(ValueError, match=r"not a URL|header"):
        HttpCalls(url, {"Authorization": header}, connect_seconds=1)
