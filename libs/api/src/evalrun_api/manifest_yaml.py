"""Reads YAML as kubectl does, so that a file means the same here and in a cluster.

PyYAML alone differs where it hurts: `1e-6` is text to it and a number to kubectl, `2026-01-31` a date and not text,
`1:30` ninety, and of a key that is written twice it silently takes the last.
"""

import json
import re
from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode

_FLOAT = re.compile(r"^([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$")
_INTEGER = re.compile(r"^[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$")
_BOOLEAN = re.compile(r"^(?:y|Y|yes|Yes|YES|n|N|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$")
_REAL_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser where PyYAML was built with it


class ManifestLoader(_REAL_LOADER):  # type: ignore[misc]  # which base it is depends on PyYAML's build
    """PyYAML's safe loader with kubectl's scalars, and without doubled keys."""

    bool_values = {**yaml.SafeLoader.bool_values, "y": True, "n": False}  # noqa: RUF012 - PyYAML's own protocol
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own protocol

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping.

        Raises:
            ConstructorError: a key is written twice, or is not text.
        """
        seen: set[str] = set()
        for key_node, _ in node.value:
            name = str(key_node.value)
            if key_node.tag != "tag:yaml.org,2002:merge" and name in seen:
                raise ConstructorError(None, None, f"the key {name!r} is written twice", key_node.start_mark)
            seen.add(name)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        for key in mapping:
            if not isinstance(key, str):
                raise ConstructorError(None, None, f"the key {key!r} is not text: write it in quotes", node.start_mark)
        return mapping


ManifestLoader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOLEAN, list("yYnNtTfFoO"))
ManifestLoader.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))
ManifestLoader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
ManifestLoader.add_implicit_resolver(
    "tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]
)
ManifestLoader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"^(?:<<)$"), ["<"])


def read_documents(text: str) -> list[Any]:
    """Return the documents of a YAML text as JSON values; empty ones are left out.

    Raises:
        yaml.YAMLError: the text is not YAML, or holds what JSON cannot; the error names line and column if they are
            known.
    """
    try:
        documents = [document for document in yaml.load_all(text, ManifestLoader) if document is not None]
        json.dumps(documents, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:  # bytes and sets, nan, an anchor that contains itself
        raise ConstructorError(None, None, f"holds what JSON cannot: {error}", None) from error
    return documents


def describe_mistake(error: yaml.MarkedYAMLError, file: object, text: str) -> str:
    """Return a message that names the line at which a file's text is not YAML, and why."""
    mark = error.problem_mark
    if mark is None:
        return f"{file}: {error.problem or 'is not YAML'}"
    line = "".join(text.splitlines()[mark.line : mark.line + 1])
    is_indented_by_tab = line[: mark.column + 1].lstrip(" ").startswith("\t")
    says = "indent with blanks, not with a tab" if is_indented_by_tab else error.problem or "is not YAML"
    return f"{file}:{mark.line + 1}: {says}"
