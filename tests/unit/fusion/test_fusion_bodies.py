"""Bodies as FastAPI reads them, and what it says of those that do not fit."""

import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from evalrun_sandbox.fusion.bodies import InvalidBody, answer_as_fastapi, read
from evalrun_sandbox.fusion.refusals import BadRequest
from evalrun_sandbox.fusion.schemas import RunCodeRequest

JSON = "application/json"
GOOD = b'{"code": "print(1)", "language": "python"}'


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (GOOD, JSON), (GOOD, None), (GOOD, ""), (GOOD, "Application/JSON; charset=utf-8"), (GOOD, "application/x+json"),
        (b"\xef\xbb\xbf" + GOOD, JSON), (GOOD[:-1] + b', "language": "python"}', JSON),
    ],
)  # fmt: skip
def test_json_body_is_read_under_any_json_content_type(body: bytes, content_type: str | None) -> None:
    assert read(RunCodeRequest, body, content_type).code == "print(1)"


def test_surrogates_in_pairs_are_one_character() -> None:
    body = json.dumps({"code": "print('\U0001f600 \\\\ud800')", "language": "python"}).encode()
    assert "\U0001f600" in read(RunCodeRequest, body, JSON).code


@pytest.mark.parametrize(
    ("body", "content_type", "kind", "place"),
    [
        (b"", JSON, "missing", []),
        (b"null", JSON, "missing", []),
        (b"[]", JSON, "model_attributes_type", []),
        (b'"x"', JSON, "model_attributes_type", []),
        (b"{", JSON, "json_invalid", [1]),
        (b'{"code": ', JSON, "json_invalid", [9]),
        (GOOD, "text/plain", "model_attributes_type", []),
        (b"code=1", "application/x-www-form-urlencoded", "model_attributes_type", []),
        (b"", "text/plain", "missing", []),
        (b'{"code": ""}', JSON, "missing", ["language"]),
        (b'{"code": "", "language": "python", "files": []}', JSON, "dict_type", ["files"]),
        (b'{"code": "\\ud800", "language": "python"}', JSON, "string_unicode", []),
        (b'{"code": "", "language": "python", "files": {"\\uDFFF": ""}}', JSON, "string_unicode", []),
    ],
)
def test_body_that_does_not_fit_the_model_raises_its_complaint(
    body: bytes, content_type: str, kind: str, place: list[Any]
) -> None:
    with pytest.raises(InvalidBody) as found:
        read(RunCodeRequest, body, content_type)
    [complaint] = found.value.complaints
    assert (complaint["type"], complaint["loc"]) == (kind, ["body", *place])
    assert set(complaint) >= {"msg", "input"}
    json.dumps(complaint)


@pytest.mark.parametrize(
    "body",
    [b'{"code": "\xff"}', b'{"code": "\xed\xa0\x80"}', b"[" * 100_000, b"1" * 5000, GOOD.decode().encode("utf-16")],
)
def test_undecodable_body_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(BadRequest, match="There was an error parsing the body"):
        read(RunCodeRequest, body, JSON)


@pytest.mark.parametrize(
    ("raised", "status", "detail"),
    [
        (web.HTTPNotFound(), 404, "Not Found"),
        (web.HTTPMethodNotAllowed("PUT", ["GET"]), 405, "Method Not Allowed"),
        (web.HTTPRequestEntityTooLarge(10, 20), 413, web.HTTPRequestEntityTooLarge(10, 20).text),
    ],
)
async def test_errors_of_the_router_are_answered_in_json(
    raised: web.HTTPException, status: int, detail: str | None
) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        raise raised

    answer = await answer_as_fastapi(make_mocked_request("GET", "/"), handler)
    assert isinstance(answer, web.Response)
    assert answer.text is not None
    assert (answer.status, json.loads(answer.text)) == (status, {"detail": detail})
    assert answer.headers.get("Allow") == (None if status != 405 else "GET")
