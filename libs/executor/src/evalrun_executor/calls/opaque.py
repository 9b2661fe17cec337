"""Describes the type of an object that cannot cross: its name, and the special methods that the object has."""

from __future__ import annotations

import sys

from evalrun_executor.calls.originals import (
    NAME_LENGTH,
    Json,
    Value,
    module_of,
    mro_of,
    own_of,
    qualified_name,
    str_,
    type_,
)

SPECIALS = [
    "bool",
    "len",
    "iter",
    "next",
    "call",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "contains",
    "getitem",
    "setitem",
    "delitem",
    "str",
    "repr",
    "format",
    "int",
    "float",
    "complex",
    "index",
    "hash",
    "abs",
    "neg",
    "pos",
    "invert",
    "round",
    "trunc",
    "floor",
    "ceil",
    "reversed",
    "enter",
    "exit",
    "length_hint",
    "bytes",
    "copy",
    "deepcopy",
] + [
    prefix + name
    for name in [
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "lshift",
        "rshift",
        "and",
        "or",
        "xor",
        "matmul",
        "divmod",
    ]
    for prefix in ("", "r", "i")
    if prefix + name != "idivmod"
]
"""Special methods that an opaque object serves by calls, without their underscores."""


def description(kind: Value, base: Value = None) -> Json:
    """Return the description of an opaque object's type: name, module if it is a standard type, special methods.

    The description is read through `type` alone, so that a metaclass of the program never runs. For a type that derives
    from the plain type `base`, only the special methods that it defines itself are listed.
    """
    ways = []
    mro = mro_of(kind)
    classes = [own_of(ancestor) for ancestor in mro[: mro.index(base if base is not None else object)]]
    for number, name in enumerate(SPECIALS):
        special = f"__{name}__"
        for own in classes:
            if special in own:
                # A class that sets a special method to None switches it off, as `__hash__ = None` does, so the search
                # ends there too.
                if own[special] is not None:
                    ways.append(number)
                break
    module = module_of(kind) if own_of(kind).get("__module__", "builtins") else ""
    if type_(module) is not str or module not in _OPAQUE_MODULES or sys.modules.get(module) is None:
        module = ""
    return [str_(qualified_name(kind))[:NAME_LENGTH], module, ways]


_OPAQUE_MODULES = frozenset(("builtins", "re", "itertools", "functools", "collections", "types", "_asyncio"))
