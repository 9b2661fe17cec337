"""The service's OpenAPI document, made of the structs in `wire`. Pure."""

from typing import Any

import msgspec

from evalrun_reward.wire import BatchRequest, BatchResponse, Health, OpenRlhfRequest, OpenRlhfResponse, Problem

_PARTS: tuple[type[msgspec.Struct], ...] = (
    BatchRequest,
    BatchResponse,
    OpenRlhfRequest,
    OpenRlhfResponse,
    Health,
    Problem,
)
_REFUSALS = {
    400: "The body cannot be read; the message says where.",
    401: "No bearer token, or another one.",
    413: "The body, or the number of samples, is too large.",
    429: "The queue is full, or this run holds its share of it: come back after Retry-After seconds.",
    503: "The service is draining: ask another replica.",
}


def document(version: str) -> dict[str, Any]:
    """Return the document of OpenAPI 3.1."""
    schemas, components = msgspec.json.schema_components(
        _PARTS, ref_template="#/components/schemas/{name}", schema_hook=lambda kind: {}
    )
    of: dict[type[msgspec.Struct], dict[str, Any]] = dict(zip(_PARTS, schemas, strict=True))

    def answer(text: str, kind: type[msgspec.Struct]) -> dict[str, Any]:
        return {"description": text, "content": {"application/json": {"schema": of[kind]}}}

    def post(
        summary: str, body: type[msgspec.Struct], result: type[msgspec.Struct], refusals: dict[int, str]
    ) -> dict[str, Any]:
        refused = {str(status): answer(text, Problem) for status, text in refusals.items()}
        return {
            "post": {
                "summary": summary,
                "parameters": [
                    {
                        "name": "evalrun-timeout-ms",
                        "in": "header",
                        "description": "Milliseconds that the caller waits; what has no verdict by then is not judged.",
                        "schema": {"type": "integer", "minimum": 0},
                    }
                ],
                "requestBody": {"required": True, "content": {"application/json": {"schema": of[body]}}},
                "responses": {"200": answer("One entry a sample, in order.", result), **refused},
                "security": [{"token": []}],
            }
        }

    remote = post("OpenRLHF's remote reward model.", OpenRlhfRequest, OpenRlhfResponse, _REFUSALS)
    remote["post"]["responses"]["422"] = answer("A label holds no tests, or names an unknown problem.", Problem)
    remote["post"]["responses"]["503"] = answer("The judge could not tell, or the service is draining.", Problem)
    remote["post"]["parameters"] += [
        {
            "name": "run",
            "in": "query",
            "schema": {"type": "string"},
            "description": "Who asks; places are shared by it.",
        },
        {"name": "shape", "in": "query", "schema": {"type": "string", "enum": ["dense", "sparse"]}},
    ]
    return {
        "openapi": "3.1.0",
        "info": {"title": "evalrun reward service", "version": version},
        "paths": {
            "/v1/rewards": post("Judge a batch of answers.", BatchRequest, BatchResponse, _REFUSALS),
            "/get_reward": remote,
            "/healthz": {"get": {"summary": "Whether requests are taken.", "responses": {
                "200": answer("They are.", Health), "503": answer("The service is draining.", Health)}}},
            "/openapi.json": {"get": {"summary": "This document.", "responses": {"200": {"description": "It."}}}},
        },
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }  # fmt: skip
