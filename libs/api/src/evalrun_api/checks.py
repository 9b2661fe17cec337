"""Checks of the API server before it evaluates rules: unknown fields, defaults, types and bounds.

Works on structural schemas only and knows each keyword that `structural` lets through, so that the CRD's schema decides
here and in the API server. Pure.
"""

import copy
import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from evalrun_api.api_model import DECIMAL_PATTERN, TOLERANCE_PATTERN
from evalrun_api.structural import Schema

Value = Any
"""JSON as a manifest holds it."""

DECIMAL_PATTERNS = (DECIMAL_PATTERN, TOLERANCE_PATTERN)

KINDS = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
NOUNS = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "an integer",
    "boolean": "true or false",
}


@dataclass(frozen=True)
class Violation:
    """A mistake in an object: the field, and what is wrong with it."""

    path: str
    """The field, e.g. `spec.datasets[0].source`; empty for the object itself."""
    message: str
    """The error and its remedy, in one line."""
    spoils: bool = True
    """Whether the field's value means nothing, so that no rule can speak of it."""


def child_path(path: str, name: str) -> str:
    """Return the path of a field of the object at `path`."""
    return f"{path}.{name}" if path else name


def apply_defaults(schema: Schema, value: Value) -> Value:
    """Return a copy in which absent fields have their defaults; a null where a default exists counts as absent."""
    if isinstance(value, dict):
        result = {}
        known = schema.get("properties", {})
        for name, item in value.items():
            child = known.get(name, schema.get("additionalProperties"))
            if item is None and child is not None and "default" in child:
                continue
            result[name] = item if child is None else apply_defaults(child, item)
        for name, child in known.items():
            if name not in result and "default" in child:
                result[name] = apply_defaults(child, copy.deepcopy(child["default"]))
        return result
    if isinstance(value, list) and "items" in schema:
        return [apply_defaults(schema["items"], item) for item in value]
    return value


def quote_decimals(schema: Schema, value: Value, path: str = "") -> Iterator[tuple[str, str]]:
    """Turn numbers into text, in place, where the API has a decimal as text. Return each field and its text.

    YAML writes `temperature: 0.8`. The API has no floats, because their text is not stable, and the API server refuses
    them.
    """
    children: list[tuple[int | str, Value, Schema | None, str]] = []
    if isinstance(value, dict):
        known = schema.get("properties", {})
        children = [(name, item, known.get(name), child_path(path, str(name))) for name, item in value.items()]
    elif isinstance(value, list):
        children = [(index, item, schema.get("items"), f"{path}[{index}]") for index, item in enumerate(value)]
    for key, item, child, where in children:
        if child is None:
            continue
        if isinstance(item, int | float) and not isinstance(item, bool):
            if child.get("pattern") in DECIMAL_PATTERNS:
                value[key] = format(Decimal(str(item)), "f")
                yield where, value[key]
        else:
            yield from quote_decimals(child, item, where)


def structural_problems(schema: Schema, value: Value, path: str = "") -> Iterator[Violation]:
    """Return everything about `value` that the schema itself, without its rules, refuses."""
    kind = schema["type"]
    fits = isinstance(value, KINDS[kind]) and not (kind == "integer" and isinstance(value, bool))
    if not fits:
        yield Violation(path, _wrong_type(kind, value))
    elif kind == "object":
        yield from _object_problems(schema, value, path)
    elif kind == "array":
        yield from _array_problems(schema, value, path)
    elif kind == "string":
        yield from _string_problems(schema, value, path)
    elif kind == "integer":
        low, high = schema.get("minimum"), schema.get("maximum")
        if (low is not None and value < low) or (high is not None and value > high):
            yield Violation(path, f"{value} is out of bounds: write {_range(low, high)}", spoils=False)


def _wrong_type(kind: str, value: Value) -> str:
    shown = json.dumps(value, default=str)
    shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
    if kind == "string" and isinstance(value, bool | int | float):
        return f'{shown} is not text: write it in quotes, "{shown}"'
    if kind in {"integer", "boolean"} and isinstance(value, str):
        return f"{shown} is text: write {NOUNS[kind]}, without quotes"
    return f"{shown} is not {NOUNS[kind]}"


def _object_problems(schema: Schema, value: dict[str, Value], path: str) -> Iterator[Violation]:
    known = schema.get("properties", {})
    if len(value) > schema.get("maxProperties", len(value)):
        yield Violation(path, f"has {len(value)} entries: write at most {schema['maxProperties']}")
    for name in schema.get("required", ()):
        if name not in value:
            yield Violation(child_path(path, name), f"is missing: {_says(known[name])}")
    for name, item in value.items():
        child = known.get(name, schema.get("additionalProperties"))
        if child is not None:
            yield from structural_problems(child, item, child_path(path, str(name)))
        elif known and path != "metadata":  # metadata has more fields than ours: Kubernetes' own
            yield Violation(child_path(path, str(name)), _unknown(str(name), known), spoils=False)


def _unknown(name: str, known: dict[str, Schema]) -> str:
    near = difflib.get_close_matches(name.replace("_", "").lower(), [field.lower() for field in known], n=1)
    if near:
        meant = next(field for field in known if field.lower() == near[0])
        is_list = known[meant].get("type") == "array"
        how = f" It is a list: write {meant}: and '- ' before the first field of each item." if is_list else ""
        return f"is no field; did you mean {meant}?{how}"
    return f"is no field; known here: {', '.join(known)}"


def _array_problems(schema: Schema, value: list[Value], path: str) -> Iterator[Violation]:
    low, high = schema.get("minItems"), schema["maxItems"]
    if len(value) < (low or 0) or len(value) > high:
        yield Violation(path, f"has {len(value)} items: write {_range(low, high)}", spoils=False)
    for index, item in enumerate(value):
        yield from structural_problems(schema["items"], item, f"{path}[{index}]")
    keys = schema.get("x-kubernetes-list-map-keys")
    unique = keys is not None or schema.get("x-kubernetes-list-type") == "set"
    seen: set[str] = set()
    for index, item in enumerate(value if unique else ()):
        identity = {key: item.get(key) for key in keys} if keys and isinstance(item, dict) else item
        text = json.dumps(identity, sort_keys=True, default=str)
        if text in seen:
            yield Violation(f"{path}[{index}]", f"{text} is listed twice: write it once", spoils=False)
        seen.add(text)


def _string_problems(schema: Schema, value: str, path: str) -> Iterator[Violation]:
    shown = json.dumps(value, ensure_ascii=False)
    low, high = schema.get("minLength"), schema.get("maxLength")
    if "enum" in schema and value not in schema["enum"]:
        near = difflib.get_close_matches(value.lower(), [word.lower() for word in schema["enum"]], n=1)
        hint = next((f"did you mean {word}? " for word in schema["enum"] if near and word.lower() == near[0]), "")
        yield Violation(path, f"{shown} is not known; {hint}Write one of {', '.join(schema['enum'])}")
    if len(value) < (low or 0) or (high is not None and len(value) > high):
        yield Violation(path, f"has {len(value)} characters: write {_range(low, high)}")
    if "pattern" in schema and not _matches(schema["pattern"], value):
        yield Violation(path, f"{shown} does not match {schema['pattern']}: {_says(schema)}")
    if schema.get("format") == "date-time" and not _is_time(value):
        yield Violation(path, f"{shown} is not a time: write it as 2026-01-31T12:00:00Z")


def _matches(pattern: str, value: str) -> bool:
    """Match as RE2 does: its `$` matches only at the end, while Python's also matches before a final newline."""
    return re.search(re.sub(r"\$$", r"\\Z", pattern), value) is not None


def _is_time(value: str) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _says(schema: Schema) -> str:
    """Return the field's own description as advice."""
    return str(schema.get("description", "see kubectl explain"))


def _range(low: int | None, high: int | None) -> str:
    if low is None:
        return f"at most {high}"
    return f"at least {low}" if high is None else f"{low} to {high}"
