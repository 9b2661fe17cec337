"""Builtins bound before a program can replace them, and functions that read objects without running their code."""

from __future__ import annotations

import sys
from _collections import deque  # type: ignore[import-not-found]  # no stubs; a tenth of collections' cost

# The same as `typing.TYPE_CHECKING`, without the time that importing `typing` takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

Value: TypeAlias = "Any"
"""Any object that a program may have made."""
Json: TypeAlias = "Any"
"""Any JSON value."""

ATOMS = frozenset((type(None), bool, int, float, complex, str, bytes))
NAME_LENGTH = 200

# These names are bound at import, because a program may replace the builtins before its values are encoded.
type_, issubclass_, len_, id_, list_, set_, map_, all_, max_, min_, sorted_, str_, repr_, range_ = (
    type, issubclass, len, id, list, set, map, all, max, min, sorted, str, repr, range,
)  # fmt: skip
qualified_name = vars(type)["__qualname__"].__get__
module_of = vars(type)["__module__"].__get__
mro_of = vars(type)["__mro__"].__get__
own_of = vars(type)["__dict__"].__get__
getrefcount = sys.getrefcount


def find_base(kind: Value) -> Value:
    """Return the plain type that a type is or derives from; None if there is none."""
    for base in BASES:
        if kind is base or issubclass_(kind, base):
            return base
    return None


BASES = (list, tuple, dict, set, frozenset, deque, bytearray, complex, bytes, float, str, int)
CHANGING = (list, dict, set, deque, bytearray)


def read_state(thing: Value) -> dict[str, Value] | None:
    """Return the dictionary of an object's own attributes, read through `object` alone; None if it has none."""
    try:
        state = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return None
    return state if type_(state) is dict else None


def has_own(value: Value, name: str) -> bool:
    """Return whether `object` itself finds the attribute."""
    try:
        object.__getattribute__(value, name)
    except AttributeError:
        return False
    return True


def hashes_by_identity(kind: Value) -> bool:
    """Return whether a class leaves `__hash__` to `object`."""
    for ancestor in mro_of(kind):
        if "__hash__" in own_of(ancestor):
            return ancestor is object
    return True


def list_slots(kind: Value) -> list[str]:
    """Return the attributes that a class and its bases keep in slots."""
    found: list[str] = []
    for ancestor in mro_of(kind):
        slots = own_of(ancestor).get("__slots__", ())
        found += [slots] if type_(slots) is str else [name for name in slots if type_(name) is str]
    return [name for name in found if name not in ("__dict__", "__weakref__")]


def type_name(value: Value) -> str:
    """Return the name that the value's type was defined under, without running code of the value."""
    return str_(qualified_name(type_(value)))[:NAME_LENGTH]
