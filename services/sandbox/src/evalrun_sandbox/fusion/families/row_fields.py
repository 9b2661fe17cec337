"""Reads a row's fields, which the stock server stores as JSON values or as JSON texts."""

import json
from typing import Any

from evalrun_sandbox.fusion.refusals import BadRequest
from evalrun_sandbox.fusion.schemas import Row


def id_of(row: Row, name: str) -> int | str:
    """Return the field that names the row. Raises BadRequest."""
    value = _given(row, name)
    if not isinstance(value, int | str):
        raise BadRequest(f"row: {name} must be a number or a text, not {type(value).__name__}")
    return value


def text_of(row: Row, name: str) -> str:
    """Return a text field. Raises BadRequest."""
    value = _given(row, name)
    if not isinstance(value, str):
        raise BadRequest(f"row: {name} must be a text, not {type(value).__name__}")
    return value


def mapping_of(row: Row, name: str) -> dict[str, Any]:
    """Return an object field. Raises BadRequest."""
    value = _parsed(row, name)
    if not isinstance(value, dict):
        raise BadRequest(f"row: {name} must be an object, not {type(value).__name__}")
    return value


def list_of(row: Row, name: str) -> list[Any]:
    """Return a list field that is not empty. Raises BadRequest.

    A problem without tests accepts every answer in the stock server.
    """
    value = _parsed(row, name)
    if not isinstance(value, list):
        raise BadRequest(f"row: {name} must be a list, not {type(value).__name__}")
    if not value:
        raise BadRequest(f"row: {name} is empty: a problem needs at least one test")
    return value


def _given(row: Row, name: str) -> Any:  # noqa: ANN401 - whatever JSON the row's makers chose
    if name not in row:
        raise BadRequest(f"row: {name} is missing")
    return row[name]


def _parsed(row: Row, name: str) -> Any:  # noqa: ANN401 - as above
    value = _given(row, name)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, strict=False)
    except ValueError as error:
        raise BadRequest(f"row: {name} is not JSON ({error}); packed or pickled tests are refused") from error
