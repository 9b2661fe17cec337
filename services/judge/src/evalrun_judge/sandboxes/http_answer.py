"""Parses an HTTP/1.1 response incrementally. Pure: no sockets.

llhttp parses (`httptools`). This module limits what a reply may be: it has a length or comes in chunks, and has no more
bytes than the call expects. A body that ends with the connection, or an upgrade, is refused.
"""

from dataclasses import dataclass, replace

import httptools

MAX_HEAD_BYTES = 64 * 1024


class BadAnswerError(Exception):
    """A response that this reader does not accept."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response."""

    status: int
    body: bytes
    reusable: bool
    """Whether the connection accepts another request."""


class AnswerReader:
    """Parses a response. The `on_` methods are callbacks of the parser."""

    def __init__(self, max_bytes: int) -> None:
        """Start before the status line; a body of more than `max_bytes` is refused."""
        self._max_bytes = max_bytes
        self._parser = httptools.HttpResponseParser(self)
        self._head_bytes = 0
        self._in_head = True
        self._length: int | None = None
        """Length of the body, if the head contains it."""
        self._chunked = False
        self._pieces: list[bytes] = []
        self._body_bytes = 0
        self._answer: HttpResponse | None = None
        self._more = False
        """Whether bytes came after the response."""

    def feed(self, data: bytes) -> HttpResponse | None:
        """Parse the next piece. Return the response once it is complete. Raises BadAnswerError."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            raise BadAnswerError("an upgrade, which nobody asked for") from error
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, BadAnswerError):
                raise error.__context__ from None
            if self._answer is None:
                raise BadAnswerError(f"no HTTP/1.1: {error}") from error
            self._more = True
        if self._answer is None:
            self._check_head(len(data))
            return None
        # Break the reference cycle of reader and parser: large answers are freed without waiting for the collector.
        del self._parser
        return replace(self._answer, reusable=False) if self._more else self._answer

    def _check_head(self, came: int) -> None:
        if self._in_head:
            self._head_bytes += came
            if self._head_bytes > MAX_HEAD_BYTES:
                raise BadAnswerError(f"a head of more than {MAX_HEAD_BYTES} bytes")

    def on_message_begin(self) -> None:
        """Called by `httptools`; also after an interim response (1xx), which another response follows."""
        self._more = self._answer is not None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by `httptools`, which has already refused two lengths, a length beside chunks, and invalid numbers."""
        match name.lower():
            case b"content-length":
                self._length = int(value)
            case b"transfer-encoding":
                if value.strip().lower() != b"chunked":
                    raise BadAnswerError(f"transfer-encoding {value[:80]!r}")
                self._chunked = True
            case _:
                pass

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._more or status < 200:
            return
        self._in_head = False
        if self._length is not None:
            self._check_size(self._length)
        elif not self._chunked and status not in (204, 304):
            raise BadAnswerError("its length is not said")

    def on_body(self, body: bytes) -> None:
        if not self._more:
            self._body_bytes += len(body)
            self._check_size(self._body_bytes)
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._answer is None and status >= 200:
            self._answer = HttpResponse(status, b"".join(self._pieces), self._parser.should_keep_alive())

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            raise BadAnswerError(f"{size} bytes; no answer to this request has more than {self._max_bytes}")
