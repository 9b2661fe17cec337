"""Conditions on samples, e.g. `status=timeout` or `answer~import os`: parsed, and applied to Arrow batches. Pure."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evalrun_results.arrow_values import to_numbers
from evalrun_results.sample_rows.fields import BY_NAME, FieldKind, SampleField
from evalrun_runtime.exits import BadInputError

NONE: Final = "none"
"""Stands for a value that is absent: `score=none`."""
ALTERNATIVES: Final = "|"
_WRITTEN: Final = re.compile(r"\s*(\w+)\s*(!=|>=|<=|=|>|<|~)\s*(.*?)\s*", re.DOTALL)
_FLAGS: Final = {"true": True, "yes": True, "false": False, "no": False}
_ORDERS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le
}  # fmt: skip
_ARROW: Final = {
    "=": pc.equal, ">": pc.greater, "<": pc.less, ">=": pc.greater_equal, "<=": pc.less_equal
}  # fmt: skip

Value = str | float | bool | None


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition: the field compares with any of the values."""

    field: SampleField
    operator: str
    """`=`, `!=`, `>`, `<`, `>=`, `<=`, or `~`: the text contains the value, in any case."""
    values: tuple[Value, ...]
    """None: an absent value."""


def parse_condition(written: str) -> Condition:
    """Parse a condition.

    Raises:
        BadInputError: the text is no condition, names an unknown field, or its value does not fit the field.
    """
    match = _WRITTEN.fullmatch(written)
    if match is None:
        raise BadInputError(f"{written!r}: write FIELD=VALUE, e.g. status=timeout, tokens>=2000 or answer~import")
    name, sign, value = match.groups()
    if (field := BY_NAME.get(name)) is None:
        raise BadInputError(f"{written!r}: no field {name!r}: known are {', '.join(BY_NAME)}")
    if sign == "~":
        if field.kind is not FieldKind.TEXT:
            raise BadInputError(f"{written!r}: ~ searches texts, and {name} is a {field.kind}: write = instead")
        return Condition(field, sign, (value,))
    if sign in _ORDERS and field.kind is not FieldKind.NUMBER:
        raise BadInputError(f"{written!r}: {sign} compares numbers, and {name} is a {field.kind}: write = or !=")
    parts = value.split(ALTERNATIVES) if sign in ("=", "!=") else [value]
    return Condition(field, sign, tuple(_parse_value(part.strip(), field, written) for part in parts))


def _parse_value(text: str, field: SampleField, written: str) -> Value:
    if text == NONE:
        return None
    if field.kind in (FieldKind.TEXT, FieldKind.TAGS):
        return text
    if field.kind is FieldKind.FLAG:
        if text.lower() not in _FLAGS:
            raise BadInputError(f"{written!r}: {field.name} is true, false or {NONE}")
        return _FLAGS[text.lower()]
    try:
        return float(text)
    except ValueError as error:
        raise BadInputError(f"{written!r}: {field.name} is a number, not {text!r}") from error


def list_columns(conditions: Sequence[Condition]) -> tuple[str, ...]:
    """Return the columns that conditions read."""
    return tuple(dict.fromkeys(condition.field.column for condition in conditions))


def choose_rows(batch: pa.RecordBatch, conditions: Sequence[Condition]) -> pa.RecordBatch:
    """Return the rows of a batch for which every condition holds. An absent value meets only `=none` and `!=`."""
    for condition in conditions:
        batch = batch.filter(_mask(batch.column(condition.field.column), condition))
    return batch


def _mask(column: pa.Array, condition: Condition) -> pa.Array:
    if condition.operator == "~":
        found = pc.match_substring(column, condition.values[0], ignore_case=True)
        return pc.fill_null(found, fill_value=False)
    if condition.field.kind is FieldKind.TAGS:
        mask = _has_any(column, condition.values)
        return pc.invert(mask) if condition.operator == "!=" else mask
    sign = "=" if condition.operator == "!=" else condition.operator
    mask = None
    for value in condition.values:
        each = pc.is_null(column) if value is None else _compare_column(column, sign, value)
        mask = each if mask is None else pc.or_(mask, each)
    return pc.invert(mask) if condition.operator == "!=" else mask


def _has_any(column: pa.Array, values: Sequence[Value]) -> pa.Array:
    """Return, for each list of texts, whether any is among the values; a value None stands for an empty list."""
    wanted = pa.array([value for value in values if value is not None], pa.string())
    hits = pc.fill_null(pc.is_in(pc.list_flatten(column), wanted), fill_value=False)
    found = np.zeros(len(column), np.bool_)
    found[to_numbers(pc.list_parent_indices(column).filter(hits), np.int64)] = True
    mask = pa.array(found)
    return pc.or_(mask, _is_empty(column)) if None in values else mask


def _is_empty(column: pa.Array) -> pa.Array:
    return pc.equal(pc.fill_null(pc.list_value_length(column), 0), 0)


def _compare_column(column: pa.Array, sign: str, value: Value) -> pa.Array:
    if isinstance(value, float):
        column = column.cast(pa.float64())
    return pc.fill_null(_ARROW[sign](column, value), fill_value=False)
