"""Decodes what the API server lists and watches, object by object. Pure.

A single object must not stop a whole list or watch: an object nested deeper than the decoder's stack is returned as
its metadata only, and the caller decides. Only then is the text scanned, by a loop that needs no stack.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
from lightkube import ApiError
from lightkube.core import decoders

from evalrun_cluster.objects import Object

WHOLE_PAGE_BYTES = 2 * 1024 * 1024
"""Pages beyond this size are decoded one object at a time: decoded, a page of large objects takes 25 times its text."""
IDENTITY_FIELDS = ("namespace", "name", "uid", "resourceVersion")
MAX_FIELD_BYTES = 4096
TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
PLAIN_VALUE = re.compile(rb"[^\s,\]}]+")
BLANKS = re.compile(rb"[\s,:]*")


class NotJsonError(httpx2.DecodingError):
    """Raised when an answer is no JSON, or was cut: handled as a connection that broke."""


@dataclass(frozen=True)
class UndecodableObject:
    """An object that cannot be decoded."""

    metadata: Mapping[str, str]
    """Namespace, name, uid and resourceVersion; those that could not be read are missing."""
    reason: str


@dataclass(frozen=True)
class ListPage:
    """A page of a list."""

    items: Iterator[Object | UndecodableObject]
    version: str
    """The list's resourceVersion."""
    continuation: str
    """Token of the next page; empty on the last page."""


def decode_page(text: bytes) -> ListPage:
    """Decode one page of a list; its items are decoded as they are asked for. Raises NotJsonError."""
    if len(text) <= WHOLE_PAGE_BYTES:
        try:
            more, version, whole = decoders.decode_list(text, dict)
        except (RecursionError, ValueError):
            pass
        else:
            return ListPage(iter(whole), version or "", more or "")
    page = dict(_members(text, 0))
    if "items" not in page:
        raise NotJsonError(f"no page of a list: {text[:100]!r}")
    metadata = dict(_members(text, page["metadata"].start)) if "metadata" in page else {}
    version, more = (_text_at(text, metadata.get(field)) for field in ("resourceVersion", "continue"))
    items = (_decode_at(text, span) for span in _elements(text, page["items"].start))
    return ListPage(items, version, more)


def decode_event(line: bytes) -> tuple[str, Object | UndecodableObject]:
    """Decode one event of a watch: the type of the change and the object.

    Raises:
        ApiError: the event is an error of the API server.
        NotJsonError: the line is no event.
    """
    try:
        event = decoders.decode_watch_event(line)
        kind, text, span = event.type, bytes(event.object), slice(0, len(event.object))
    except (RecursionError, ValueError):
        members = dict(_members(line, 0))
        if "object" not in members:
            raise NotJsonError(f"no event of a watch: {line[:100]!r}") from None
        kind, text, span = _text_at(line, members.get("type")), line, members["object"]
    if kind == "ERROR":
        raise ApiError(status=decoders.decode_status(text[span]))
    return kind, _decode_at(text, span)


def _decode_at(text: bytes, span: slice) -> Object | UndecodableObject:
    problem = "it is no object with a name, uid and resourceVersion"
    try:
        item = decoders.decode_object(text[span], dict)
        if {"name", "uid", "resourceVersion"} <= item["metadata"].keys():
            return dict(item)
    except (RecursionError, ValueError, TypeError, KeyError, AttributeError) as error:
        problem = f"{type(error).__name__}: {error}"
    members = dict(_members(text, span.start))
    metadata = dict(_members(text, members["metadata"].start)) if "metadata" in members else {}
    known = {field: _text_at(text, metadata[field]) for field in IDENTITY_FIELDS if field in metadata}
    return UndecodableObject(known, problem)


def _members(text: bytes, position: int) -> Iterator[tuple[str, slice]]:
    """Yield the names of an object's members and where their values stand. Raises NotJsonError."""
    position = _skip_blanks(text, position)
    if text[position : position + 1] != b"{":
        return
    position = _skip_blanks(text, position + 1)
    while text[position : position + 1] != b"}":
        key = slice(position, _find_end(text, position))
        position = _skip_blanks(text, key.stop)
        value = slice(position, _find_end(text, position))
        yield _text_at(text, key), value
        position = _skip_blanks(text, value.stop)


def _elements(text: bytes, position: int) -> Iterator[slice]:
    """Yield where the elements of an array stand. Raises NotJsonError."""
    position = _skip_blanks(text, position)
    if text[position : position + 1] != b"[":
        return
    position = _skip_blanks(text, position + 1)
    while text[position : position + 1] != b"]":
        element = slice(position, _find_end(text, position))
        yield element
        position = _skip_blanks(text, element.stop)


def _skip_blanks(text: bytes, position: int) -> int:
    found = BLANKS.match(text, position)
    return position if found is None else found.end()


def _find_end(text: bytes, position: int) -> int:
    """Return where the value at `position` ends. Raises NotJsonError."""
    if text[position : position + 1] not in (b"{", b"[", b'"'):
        plain = PLAIN_VALUE.match(text, position)
        if plain is None:
            raise NotJsonError("the text ends inside a value")
        return plain.end()
    depth = 0
    for token in TOKEN.finditer(text, position):
        first = text[token.start() : token.start() + 1]
        depth += 1 if first in (b"{", b"[") else -1 if first in (b"}", b"]") else 0
        if depth == 0:
            return token.end()
    raise NotJsonError("the text ends inside a value")


def _text_at(text: bytes, span: slice | None) -> str:
    """Return a string of the text; empty if it is missing or cannot be an identity."""
    if span is None or text[span.start : span.start + 1] != b'"' or span.stop - span.start > MAX_FIELD_BYTES:
        return ""
    value: Any = json.loads(text[span])
    return str(value)
