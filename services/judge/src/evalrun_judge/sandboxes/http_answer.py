"""One HTTP/1.1 answer, read from the pieces in which it comes. Pure: no sockets.

Only what servers send to a call that knows its answer's type: a status, a length or chunks, and whether the connection
goes on. What else it could be (a body that the connection's end ends, an upgrade, two lengths) is no answer.
"""

from dataclasses import dataclass

MAX_HEAD_BYTES = 64 * 1024
MAX_CHUNK_LINE_BYTES = 4096

_CRLF = b"\r\n"


class BadAnswerError(Exception):
    """What came is no answer that this reader takes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    body: bytes
    reusable: bool
    """The connection takes another request."""


class AnswerReader:
    """Reads one answer."""

    def __init__(self, most_bytes: int) -> None:
        """Start before the status line; a body of more than `most_bytes` is refused."""
        self._most_bytes = most_bytes
        self._data = bytearray()
        self._status = 0
        """0: the head has not come yet."""
        self._length: int | None = None
        """Bytes of the body; None: it comes in chunks."""
        self._body = bytearray()
        """Of whole chunks."""
        self._reusable = True
        self._in_trailer = False

    def feed(self, data: bytes) -> Answer | None:
        """Take the next piece; gives the answer once it is whole. Raises BadAnswerError."""
        self._data += data
        while self._status == 0:  # also after an interim answer (1xx), which another follows
            end = self._data.find(b"\r\n\r\n")
            if end > MAX_HEAD_BYTES or (end < 0 and len(self._data) > MAX_HEAD_BYTES):
                raise BadAnswerError(f"a head of more than {MAX_HEAD_BYTES} bytes")
            if end < 0:
                return None
            self._read_head(bytes(self._data[:end]))
            del self._data[: end + 4]
        if self._length is None:
            return self._read_chunks()
        if len(self._data) < self._length:
            return None
        reusable = self._reusable and len(self._data) == self._length
        return Answer(self._status, bytes(self._data[: self._length]), reusable)

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.split(_CRLF)
        version, _, rest = first.partition(b" ")
        code = rest[:3]
        if version not in (b"HTTP/1.1", b"HTTP/1.0") or len(code) != 3 or not code.isdigit():
            raise BadAnswerError(f"it begins with {first[:80]!r}, which is no HTTP/1.1")
        status = int(code)
        if status == 101 or status < 100:
            raise BadAnswerError(f"status {status}, which nobody asked for")
        if status < 200:
            return
        self._reusable = version == b"HTTP/1.1"
        lengths: set[bytes] = set()
        chunked = False
        for line in lines:
            name, _, value = line.partition(b":")
            name, value = name.lower(), value.strip()
            if name == b"content-length":
                lengths.add(value)
            elif name == b"transfer-encoding":
                chunked = True
                if value.lower() != b"chunked":
                    raise BadAnswerError(f"transfer-encoding {value[:80]!r}")
            elif name == b"connection" and value.lower() == b"close":
                self._reusable = False
        self._set_length(status, lengths, chunked=chunked)
        self._status = status

    def _set_length(self, status: int, lengths: set[bytes], *, chunked: bool) -> None:
        if status in (204, 304):
            self._length = 0
        elif chunked and not lengths:
            self._length = None
        elif not chunked and len(lengths) == 1:
            (text,) = lengths
            if not text.isdigit() or len(text) > 18:
                raise BadAnswerError(f"content-length {text[:80]!r}")
            self._length = int(text)
            self._check_size(self._length)
        else:
            raise BadAnswerError("its length is not said, or said twice")

    def _read_chunks(self) -> Answer | None:
        while True:
            end = self._data.find(_CRLF)
            if end > MAX_CHUNK_LINE_BYTES or (end < 0 and len(self._data) > MAX_CHUNK_LINE_BYTES):
                raise BadAnswerError("a chunk's first line without an end")
            if end < 0:
                return None
            if self._in_trailer:
                del self._data[: end + 2]
                if end == 0:
                    return Answer(self._status, bytes(self._body), self._reusable and not self._data)
                continue
            size = _chunk_size(bytes(self._data[:end]))
            self._check_size(len(self._body) + size)
            whole = end + 2 + size + 2
            if size == 0:
                self._in_trailer = True
                del self._data[: end + 2]
                continue
            if len(self._data) < whole:
                return None
            if self._data[whole - 2 : whole] != _CRLF:
                raise BadAnswerError("a chunk longer than it says")
            self._body += self._data[end + 2 : whole - 2]
            del self._data[:whole]

    def _check_size(self, size: int) -> None:
        if size > self._most_bytes:
            raise BadAnswerError(f"{size} bytes; no answer to this request has more than {self._most_bytes}")


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits or len(digits) > 15 or not all(digit in b"0123456789abcdefABCDEF" for digit in digits):
        raise BadAnswerError(f"a chunk of size {line[:80]!r}")
    return int(digits, 16)
