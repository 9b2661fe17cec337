"""What is read as an HTTP answer, whatever pieces it comes in, and what is not."""

import gc
import weakref
from collections.abc import Iterable

import pytest

from evalrun_judge.sandboxes.http_answer import MAX_HEAD_BYTES, AnswerReader, BadAnswerError, HttpResponse

MOST = 100


def head(*lines: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    return "".join(f"{line}\r\n" for line in (status, *lines, "")).encode()


def read(pieces: Iterable[bytes]) -> HttpResponse | None:
    reader = AnswerReader(MOST)
    answer = None
    for piece in pieces:
        assert answer is None, "whole before its end"
        answer = reader.feed(piece)
    return answer


def kept(status: int, body: bytes) -> HttpResponse:
    return HttpResponse(status, body, reusable=True)


def last(status: int, body: bytes) -> HttpResponse:
    return HttpResponse(status, body, reusable=False)


CHUNKED = head("Transfer-Encoding: chunked")

# what, what comes, what is read
GOOD: list[tuple[str, bytes, HttpResponse]] = [
    ("length", head("content-length:2") + b"ok", kept(200, b"ok")),
    ("its case and spaces", head("CONTENT-Length:  2 ", "X: y") + b"ok", kept(200, b"ok")),
    ("no body", head("Content-Length: 0"), kept(200, b"")),
    ("the most that may be", head("Content-Length: 100") + b"x" * 100, kept(200, b"x" * 100)),
    ("a status without a reason", head("Content-Length: 1", status="HTTP/1.1 503") + b"!", kept(503, b"!")),
    ("204", head(status="HTTP/1.1 204 No Content"), kept(204, b"")),
    ("close", head("Content-Length: 1", "Connection: Close") + b"!", last(200, b"!")),
    ("HTTP/1.0", head("Content-Length: 1", status="HTTP/1.0 200 OK") + b"!", last(200, b"!")),
    ("after 100", head(status="HTTP/1.1 100 Continue") + head("Content-Length: 1") + b"!", kept(200, b"!")),
    ("chunks", CHUNKED + b"2\r\nok\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n", kept(200, b"ok0123456789")),
    ("no chunks", CHUNKED + b"0\r\n\r\n", kept(200, b"")),
    ("a trailer", CHUNKED + b"1\r\n!\r\n0\r\nX: y\r\nZ: 0\r\n\r\n", kept(200, b"!")),
]


@pytest.mark.parametrize(("what", "data", "answer"), GOOD, ids=[row[0] for row in GOOD])
def test_answer_is_read_alike_in_any_pieces(what: str, data: bytes, answer: HttpResponse) -> None:
    assert read([data]) == answer, what
    assert read([data[n : n + 1] for n in range(len(data))]) == answer
    for cut in range(1, len(data)):
        assert read([data[:cut], data[cut:]]) == answer
        assert read([data[:cut]]) is None


@pytest.mark.parametrize("data", [head("Content-Length: 1") + b"!HTTP", CHUNKED + b"0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"])
def test_surplus_bytes_make_the_connection_not_reusable(data: bytes) -> None:
    answer = read([data])
    assert answer is not None
    assert not answer.reusable


def test_an_answer_lives_no_longer_than_its_last_user() -> None:
    gc.disable()
    try:
        reader = AnswerReader(MOST)
        assert reader.feed(head("Content-Length: 2") + b"ok") is not None
        gone = weakref.ref(reader)
        del reader
        assert gone() is None
    finally:
        gc.enable()


# what, what comes, what is said of it
BAD: list[tuple[str, bytes, str]] = [
    ("another protocol", b"SSH-2.0-OpenSSH\r\n\r\n", "no HTTP"),
    ("HTTP/2", head("Content-Length: 0", status="HTTP/2 200"), "no HTTP"),
    ("no number", head("Content-Length: 0", status="HTTP/1.1 2x0 OK"), "no HTTP"),
    ("an upgrade", head(status="HTTP/1.1 101 Switching Protocols"), "Upgrade"),
    ("an upgrade that says so", head("Connection: upgrade", "Upgrade: x", status="HTTP/1.1 101 y"), "upgrade"),
    ("no length", head(), "length"),
    ("two lengths", head("Content-Length: 1", "Content-Length: 2") + b"12", "no HTTP"),
    ("the same length twice", head("Content-Length: 1", "content-length: 1") + b"!", "no HTTP"),
    ("length and chunks", head("Content-Length: 1", "Transfer-Encoding: chunked") + b"1", "no HTTP"),
    ("another coding", head("Transfer-Encoding: gzip, chunked"), "gzip"),
    ("a length that is none", head("Content-Length: -1"), "no HTTP"),
    ("a length in other digits", head("Content-Length: 0x1") + b"1", "no HTTP"),
    ("a length of many digits", head("Content-Length: " + "9" * 30), "no HTTP"),
    ("more than may be", head("Content-Length: 101"), "101 bytes"),
    ("more than may be, in chunks", CHUNKED + b"64\r\n" + b"x" * 100 + b"\r\n1\r\n!", "101 bytes"),
    ("a chunk of no size", CHUNKED + b"\r\n\r\n", "no HTTP"),
    ("a chunk of a negative size", CHUNKED + b"-1\r\n\r\n", "no HTTP"),
    ("a chunk of a size without an end", CHUNKED + b"1" * 100, "no HTTP"),
    ("a chunk longer than it says", CHUNKED + b"1\r\n123\r\n", "no HTTP"),
    ("a head without an end", b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD_BYTES, "head"),
]


@pytest.mark.parametrize(("what", "data", "message"), BAD, ids=[row[0] for row in BAD])
def test_malformed_answer_raises_bad_answer(what: str, data: bytes, message: str) -> None:
    with pytest.raises(BadAnswerError, match=message):
        assert read([data]) is None, what
