"""A CEL rule that bounds an object as a whole, made from its schema.

Bounds of single fields are not enough: each must fit the largest legitimate value, and together they allow megabytes,
which every reader, store and decoder of the object would have to hold.
"""

from typing import Any

from evalrun_api.api_model import Rule

Schema = dict[str, Any]

NUMBER_BYTES = 20
TIME_BYTES = 40
PER_ITEM = 1
"""The comma after an item."""
PER_MEMBER = 4
"""The quotes of a name, the colon and the comma."""


def size_rule(schema: Schema, max_bytes: int) -> Rule:
    """Return the rule that an object takes at most `max_bytes` as JSON, escapes of characters not counted."""
    fixed, parts = _object(schema, "self", 0)
    return Rule(
        f"{_sum(fixed, parts)} <= {max_bytes}",
        f"the spec is too large, at most {max_bytes // 1024} KiB as JSON: put long texts into files (promptTemplate, "
        "manifest), or make several runs",
    )


def _size(node: Schema, value: str, depth: int) -> tuple[int, list[str]]:
    """Return the fixed number of bytes of `value`, and CEL expressions for the bytes that depend on its content."""
    kind = node["type"]
    if "enum" in node:
        return max(len(str(one).encode()) for one in node["enum"]) + 2, []
    if kind == "string":
        # Texts without a pattern may hold any character, of up to four bytes.
        text = value if "pattern" in node else f"bytes({value})"
        return (TIME_BYTES, []) if "maxLength" not in node else (2, [f"size({text})"])
    if kind == "object":
        return _map(node, value, depth) if "additionalProperties" in node else _object(node, value, depth)
    return _list(node, value, depth) if kind == "array" else (NUMBER_BYTES, [])


def _object(node: Schema, value: str, depth: int) -> tuple[int, list[str]]:
    fixed, parts = 2, []
    required = node.get("required", ())
    for name, child in node["properties"].items():
        field = f"{value}.{name}"
        child_fixed, child_parts = _size(child, field, depth)
        fixed += len(name) + PER_MEMBER
        if name in required:
            fixed += child_fixed
            parts += child_parts
        elif child_parts:
            parts.append(f"(has({field}) ? {_sum(child_fixed, child_parts)} : 0)")
        else:
            fixed += child_fixed
    return fixed, parts


def _map(node: Schema, value: str, depth: int) -> tuple[int, list[str]]:
    key = f"k{depth}"
    fixed, parts = _size(node["additionalProperties"], f"{value}[{key}]", depth + 1)
    each = _sum(fixed + PER_MEMBER, [f"size(bytes({key}))", *parts])
    return 2, [f"{value}.map({key}, {each}).sum()"]


def _list(node: Schema, value: str, depth: int) -> tuple[int, list[str]]:
    item = f"i{depth}"
    fixed, parts = _size(node["items"], item, depth + 1)
    if not parts:
        return 2, [f"size({value}) * {fixed + PER_ITEM}"]
    return 2, [f"{value}.map({item}, {_sum(fixed + PER_ITEM, parts)}).sum()"]


def _sum(fixed: int, parts: list[str]) -> str:
    return " + ".join([str(fixed), *parts])
