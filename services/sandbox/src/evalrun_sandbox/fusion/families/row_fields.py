"""Reads a row's fields, which the stock server stores as JSON values or as JSON texts."""

import json
from typing import Any

from evalrun_sandbox.fusion.refusals import BadRequest
from evalrun_sandbox.fusion.schemas import Row


def read_id(row: Row, name: str) -> int | str:
    """Return the field that names the row. Raises BadRequest."""
    value = _read_field(row, name)
    if not isinstance(value, int | str):
        raise BadRequest(f"row: {name} must be a number or a text, not {type(value).__name__}")
    return value


def read_text(row: Row, name: str) -> str:
    """Return a text field. Raises BadRequest."""
    value = _read_field(row, name)
    if not isinstance(value, str):
        raise BadRequest(f"row: {name} must be a text, not {type(value).__name__}")
    return value


def read_mapping(row: Row, name: str) -> dict[str, Any]:
    """Return an object field. Raises BadRequest."""
    value = _parse_field(row, name)
    if not isinstance(value, dict):
        raise BadRequest(f"row: {name} must be an object, not {type(value).__name__}")
    return value


def read_list(row: Row, name: str) -> list[Any]:
    """Return a list field that is not empty. Raises BadRequest.

    The stock server accepts every completion of a problem without tests.
    """
    value = _parse_field(row, name)
    if not isinstance(value, list):
        raise BadRequest(f"row: {name} must be a list, not {type(value).__name__}")
    if not value:
        raise BadRequest(f"row: {name} is empty: a problem needs at least one test")
    return value


def _read_field(row: Row, name: str) -> Any:  # noqa: ANN401 - whatever JSON the row's makers chose
    if name not in row:
        raise BadRequest(f"row: {name} is missing")
    return row[name]


def _parse_field(row: Row, name: str) -> Any:  # noqa: ANN401 - as above
    value = _read_field(row, name)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, strict=False)
    except ValueError as error:
        raise BadRequest(f"row: {name} is not JSON ({error}); packed or pickled tests are refused") from error
