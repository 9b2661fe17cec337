"""Builds the service's OpenAPI document from the structs in `wire` and `sessions.messages`. Pure."""

from typing import Any

import msgspec

from evalrun_reward.sessions.messages import (
    ActionRequest,
    ActionResponse,
    Closed,
    RewardResponse,
    SessionRequest,
    StartRequest,
    StartResponse,
)
from evalrun_reward.wire import BatchRequest, BatchResponse, Health, OpenRlhfRequest, OpenRlhfResponse, Problem

_PARTS: tuple[type[msgspec.Struct], ...] = (
    BatchRequest,
    BatchResponse,
    OpenRlhfRequest,
    OpenRlhfResponse,
    Health,
    Problem,
    StartRequest,
    StartResponse,
    ActionRequest,
    ActionResponse,
    SessionRequest,
    Closed,
    RewardResponse,
)
_REFUSALS = {
    400: "The body cannot be read; the message says where.",
    401: "No bearer token, or another one.",
    413: "The body, or the number of samples, is too large.",
    429: "The queue is full, or this run holds its share of it: come back after Retry-After seconds.",
    503: "The service is draining: ask another replica.",
}
_SESSION_REFUSALS = _REFUSALS | {
    404: "No such session: it expired, or its store was emptied. This is no reward.",
    409: "Another action stands at that turn, or the session takes no more.",
    413: "The body is too large, or the session has had its turns or characters.",
    422: "The session cannot be judged as it was started.",
    429: "The queue is full, or too many sessions are open: come back after Retry-After seconds.",
    501: "The service was started without --session-store.",
    503: "Not judged, the store does not answer, or the service is draining: ask again.",
}


def document(version: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document."""
    schemas, components = msgspec.json.schema_components(
        _PARTS, ref_template="#/components/schemas/{name}", schema_hook=lambda kind: {}
    )
    of: dict[type[msgspec.Struct], dict[str, Any]] = dict(zip(_PARTS, schemas, strict=True))

    def answer(text: str, kind: type[msgspec.Struct]) -> dict[str, Any]:
        return {"description": text, "content": {"application/json": {"schema": of[kind]}}}

    def post(
        summary: str,
        body: type[msgspec.Struct],
        result: type[msgspec.Struct],
        refusals: dict[int, str],
        answered: str = "One entry a sample, in order.",
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
                "responses": {"200": answer(answered, result), **refused},
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

    def call(summary: str, body: type[msgspec.Struct], result: type[msgspec.Struct], answered: str) -> dict[str, Any]:
        return post(summary, body, result, _SESSION_REFUSALS, answered)

    return {
        "openapi": "3.1.0",
        "info": {"title": "evalrun reward service", "version": version},
        "paths": {
            "/v1/rewards": post("Judge a batch of answers.", BatchRequest, BatchResponse, _REFUSALS),
            "/get_reward": remote,
            "/start_instance": call("Start a session.", StartRequest, StartResponse, "The session."),
            "/process_action": call("Run or submit a program.", ActionRequest, ActionResponse, "What it did."),
            "/postprocess": call("Take no more actions.", SessionRequest, Closed, "Nothing."),
            "/compute_reward": call("Judge the last program.", SessionRequest, RewardResponse, "The reward."),
            "/healthz": {"get": {"summary": "Whether requests are taken.", "responses": {
                "200": answer("They are.", Health), "503": answer("The service is draining.", Health)}}},
            "/openapi.json": {"get": {"summary": "This document.", "responses": {"200": {"description": "It."}}}},
        },
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }  # fmt: skip
