"""Parses request bodies; errors have FastAPI's format, which clients of the stock server may read."""

import json
from collections.abc import Awaitable, Callable
from email.message import Message
from typing import Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from evalrun_sandbox.fusion.refusals import BadRequest

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
RequestT = TypeVar("RequestT", bound=BaseModel)


class InvalidBody(Exception):  # noqa: N818 - an answer, not a failure of ours
    """The body does not match its schema; holds the list of errors."""

    def __init__(self, complaints: list[Any]) -> None:
        super().__init__("the body does not fit its schema")
        self.complaints = complaints


def read(model: type[RequestT], body: bytes, content_type: str | None) -> RequestT:
    """Parse a request.

    Args:
        model: the request's schema.
        body: the raw body.
        content_type: the header; if absent, the body is parsed as JSON.

    Raises:
        InvalidBody: the body does not match, or is not sent as JSON: a foreign web page can make a browser send other
            types without a check.
        BadRequest: the body cannot be parsed at all.
    """
    try:
        value: Any = _parse_json(body) if _is_json(content_type) else body.decode()
    except json.JSONDecodeError as error:
        raise InvalidBody(
            [_make_complaint("json_invalid", "JSON decode error", {}, error.pos, error=error.msg)]
        ) from error
    except (ValueError, RecursionError) as error:
        # The body is not UTF-8, has a number with thousands of digits, or is nested too deep.
        raise BadRequest("There was an error parsing the body") from error
    if value is None or not body:
        raise InvalidBody([_make_complaint("missing", "Field required", None)])
    try:
        return model.model_validate(value, from_attributes=True)
    except ValidationError as error:
        complaints = json.loads(error.json(include_url=False))
        for complaint in complaints:
            complaint["loc"] = ["body", *complaint["loc"]]
        raise InvalidBody(complaints) from error


def _is_json(content_type: str | None) -> bool:
    if not content_type:
        return True
    message = Message()
    message["Content-Type"] = content_type
    kind = message.get_content_subtype()
    return message.get_content_maintype() == "application" and (kind == "json" or kind.endswith("+json"))


def _parse_json(body: bytes) -> object:
    """Parse JSON. Reports lone surrogates, which no source file or stdin can contain. Raises ValueError."""
    if not body:
        return None
    text = body.decode("utf-8-sig")
    value = json.loads(text)
    if "\\ud" in text or "\\uD" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            what = "Input should be a valid string, unable to parse raw data as a unicode string"
            raise InvalidBody([_make_complaint("string_unicode", what, {})]) from error
    return value


def _make_complaint(kind: str, message: str, given: object, *place: int, **context: str) -> dict[str, Any]:
    found = {"type": kind, "loc": ["body", *place], "msg": message, "input": given}
    return {**found, "ctx": context} if context else found


@web.middleware
async def answer_as_fastapi(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer requests without a route (404, 405, 413) in JSON, with the reason as `detail`."""
    try:
        return await handler(request)
    except web.HTTPClientError as error:
        detail = error.reason if error.status != web.HTTPRequestEntityTooLarge.status_code else error.text
        headers = {name: value for name, value in error.headers.items() if name == "Allow"}
        return web.json_response({"detail": detail}, status=error.status, headers=headers)
