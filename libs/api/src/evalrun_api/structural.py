"""From pydantic's JSON schema to the structural schema that a CRD needs.

Works by an allow-list: an unknown type or keyword raises an error with the field's path and is not dropped, since a
dropped keyword is a check that the API server does not make. It also insists on what the rules' cost budget and
`kubectl explain` need: a bound on every text, list and map, and a description of every field.
"""

import json
from typing import Any

from pydantic import BaseModel

from evalrun_api.api_model import MAX_BYTES, PLACE, VALIDATIONS
from evalrun_api.size_rule import size_rule

Schema = dict[str, Any]
"""A node of a JSON schema: JSON by nature."""

DROPPED = frozenset({"title"})
KEPT_EVERYWHERE = frozenset({"description", "default", VALIDATIONS})
KEPT: dict[str, frozenset[str]] = {
    "object": frozenset({"properties", "required", "additionalProperties", "maxProperties"}),
    "array": frozenset(
        {"items", "minItems", "maxItems", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"},
    ),
    "string": frozenset({"enum", "const", "pattern", "format", "minLength", "maxLength"}),
    "integer": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
}
METADATA: Schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}}
"""Bounded by the API server itself anyway; said here so that rules on the name have a cost."""


class UnsupportedSchemaError(Exception):
    """A model says something that a CRD cannot; the message starts with the field's path."""


def structural_schema(model: type[BaseModel]) -> Schema:
    """Return the structural schema of a whole object, rules included; `metadata` is left to the API server.

    Raises:
        UnsupportedSchemaError: the model uses a type or keyword that is not on the allow-list, or lacks a bound or a
            description.
    """
    document = model.model_json_schema(by_alias=True)
    converter = _Converter(document.get("$defs", {}))
    for name in ("apiVersion", "kind"):
        document["properties"][name] = {
            "type": "string", "maxLength": 64, "description": document["properties"][name]["description"],
        }  # fmt: skip
    document["properties"].pop("metadata")
    root = converter.convert({key: value for key, value in document.items() if key != "$defs"}, "")
    return _add_property_after_kind(root, "metadata", METADATA)


def _add_property_after_kind(root: Schema, name: str, schema: Schema) -> Schema:
    properties = root["properties"]
    first = {key: properties[key] for key in ("apiVersion", "kind")}
    rest = {key: value for key, value in properties.items() if key not in first}
    return {**root, "properties": {**first, name: schema, **rest}, "required": sorted({name, *root["required"]})}


def drop_cluster_rules(schema: Schema) -> Schema:
    """Return the schema for a run on one machine: rules that only a cluster can break are left out."""
    return _filter_rules(schema, keep_cluster=False)


def drop_markers(schema: Schema) -> Schema:
    """Return the schema for the API server: every rule, without keywords that the API server does not know."""
    return _filter_rules(schema, keep_cluster=True)


def _filter_rules(node: Schema, *, keep_cluster: bool) -> Schema:
    copied = dict(node)
    if VALIDATIONS in node:
        kept = [rule for rule in node[VALIDATIONS] if keep_cluster or PLACE not in rule]
        copied[VALIDATIONS] = [{key: value for key, value in rule.items() if key != PLACE} for rule in kept]
        if not kept:
            del copied[VALIDATIONS]
    if "properties" in node:
        copied["properties"] = {
            name: _filter_rules(child, keep_cluster=keep_cluster) for name, child in node["properties"].items()
        }
    for name in ("items", "additionalProperties"):
        if name in node:
            copied[name] = _filter_rules(node[name], keep_cluster=keep_cluster)
    return copied


class _Converter:
    def __init__(self, definitions: dict[str, Schema]) -> None:
        self._definitions = definitions

    def convert(self, node: Schema, path: str) -> Schema:
        node = self._resolve_references(node, path)
        max_bytes = node.pop(MAX_BYTES, None)
        kind = node.get("type")
        if kind not in KEPT:
            raise UnsupportedSchemaError(f"{path}: type {kind!r} has no place in a CRD; use {', '.join(KEPT)}")
        unknown = set(node) - KEPT[kind] - KEPT_EVERYWHERE - DROPPED - {"type"}
        if unknown:
            raise UnsupportedSchemaError(f"{path}: {', '.join(sorted(unknown))} is not known for type {kind}")
        result = {key: value for key, value in node.items() if key not in DROPPED}
        if "default" in result:
            default = _drop_nulls(result.pop("default"))
            if default is not None:
                result["default"] = default
                _tell_default(result)
        if kind == "object":
            self._convert_object(result, path)
        elif kind == "array":
            self._convert_array(result, path)
        elif kind == "string":
            _convert_string(result, path)
        if max_bytes is not None:
            result[VALIDATIONS] = [*result.get(VALIDATIONS, []), size_rule(result, max_bytes).as_schema()]
        return _order_keys(result)

    def _resolve_references(self, node: Schema, path: str) -> Schema:
        """Resolve `$ref` and `X | None`; keywords beside them override the target's, but rules of both are kept."""
        while "$ref" in node or "anyOf" in node:
            beside = {key: value for key, value in node.items() if key not in {"$ref", "anyOf"}}
            if "$ref" in node:
                target = self._definitions[node["$ref"].removeprefix("#/$defs/")]
            else:
                branches = [branch for branch in node["anyOf"] if branch != {"type": "null"}]
                if len(branches) != 1 or len(branches) == len(node["anyOf"]):
                    raise UnsupportedSchemaError(f"{path}: a union of types has no place in a CRD")
                target = branches[0]
            rules = [*target.get(VALIDATIONS, []), *beside.get(VALIDATIONS, [])]
            node = {**target, **beside, **({VALIDATIONS: rules} if rules else {})}
        return node

    def _convert_object(self, result: Schema, path: str) -> None:
        if "properties" in result:
            if result.pop("additionalProperties", None) is not False:
                raise UnsupportedSchemaError(f"{path}: a model must forbid unknown fields (extra='forbid')")
            converted = {}
            for name, child in result["properties"].items():
                converted[name] = self.convert(child, f"{path}.{name}" if path else name)
                if "description" not in converted[name]:
                    raise UnsupportedSchemaError(f"{path}.{name}: has no description for kubectl explain")
            result["properties"] = converted
        elif isinstance(result.get("additionalProperties"), dict):
            if "maxProperties" not in result:
                raise UnsupportedSchemaError(f"{path}: a map without max_length exceeds the rules' cost budget")
            result["additionalProperties"] = self.convert(result["additionalProperties"], f"{path}{{}}")
        else:
            raise UnsupportedSchemaError(f"{path}: an object needs fields, or one type for its values")

    def _convert_array(self, result: Schema, path: str) -> None:
        if "maxItems" not in result:
            raise UnsupportedSchemaError(f"{path}: a list without max_length exceeds the rules' cost budget")
        if "items" not in result:
            raise UnsupportedSchemaError(f"{path}: a list needs a type for its items")
        result["items"] = self.convert(result["items"], f"{path}[]")


def _convert_string(result: Schema, path: str) -> None:
    if "const" in result:
        result["enum"] = [result.pop("const")]
    if result.get("format", "date-time") != "date-time":
        raise UnsupportedSchemaError(f"{path}: format {result['format']} is not known")
    if not {"enum", "format", "maxLength"} & set(result):
        raise UnsupportedSchemaError(f"{path}: a text without max_length exceeds the rules' cost budget")


def _tell_default(result: Schema) -> None:
    """Add a scalar's default to its description: `kubectl explain` shows no other trace of it."""
    default = result["default"]
    if isinstance(default, str | int | bool) and "description" in result:
        result["description"] += f" Default: {json.dumps(default)}."


def _drop_nulls(value: Any) -> Any:  # noqa: ANN401 - a default may be any JSON
    """Drop unset fields: in a CRD they are absent, not null."""
    if isinstance(value, dict):
        return {key: _drop_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_drop_nulls(item) for item in value]
    return value


def _order_keys(node: Schema) -> Schema:
    """Put the keys that people read at the start, and keys with long values at the end."""
    first = [key for key in ("type", "description", "default") if key in node]
    last = [key for key in (VALIDATIONS, "required", "properties", "items", "additionalProperties") if key in node]
    middle = [key for key in node if key not in {*first, *last}]
    return {key: node[key] for key in (*first, *middle, *last)}
