"""Typed access to plain JSON; values of an unexpected type count as absent. Pure."""

import math
from collections.abc import Mapping

Json = Mapping[str, object]


def inside(value: object, *path: str) -> object:
    """Return the value at a path of nested objects, or None if any part is absent."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def mapping(value: object, *path: str) -> Json:
    """Return the object at a path, or an empty object."""
    found = inside(value, *path)
    return found if isinstance(found, Mapping) else {}


def text(value: object, *path: str) -> str:
    """Return the text at a path; numbers as text, empty where there is neither."""
    found = inside(value, *path)
    return "" if found is None or isinstance(found, Mapping | list) else str(found)


def amount(value: object, *path: str) -> float | None:
    """Return the number at a path, or None if it is absent or not finite."""
    found = inside(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return float(found) if math.isfinite(found) else None


def count(value: object, *path: str) -> int:
    """Return the integer at a path, or 0."""
    found = inside(value, *path)
    return found if isinstance(found, int) else 0
